"""The wire: bodies and replies of calls that change a model or a job."""

from typing import Literal

from pydantic import Field

from hud_tui.wire import Json, Model, Request, Response


class Fork(Request):
    """POST /v2/models/fork."""

    source_model_id: str
    name: str = Field(min_length=1, max_length=100)
    checkpoint_id: str | None = None
    """Embedded: start at this checkpoint of the source, or at `BASE`. If it is absent, as from
    HUD's SDK, the fork starts at the head of the moment; null is refused unless there is none."""


class SetHead(Request):
    """Body of PUT /v2/models/{model_id}/head."""

    checkpoint_id: str


class HeadSet(Model):
    """The reply to PUT /v2/models/{model_id}/head."""

    previous: str | None = None
    """Embedded: id of the head that was replaced; null for the weights that the model started
    from."""
    moved_at: float | None = None
    """Embedded: Unix seconds of the move; null if it was the head already."""


class RenameJob(Request):
    """PATCH /v2/jobs/{id}."""

    name: str = Field(min_length=1, max_length=200)


class CancelJob(Request):
    """POST /v2/rollouts/cancel_job."""

    job_id: str


class CancelJobResult(Response):
    cancelled: int
    status: str | None = None


class Settled(Response):
    """POST /v1/models/{id}/train/calls/{key}/settle (embedded)."""

    state: Literal["done", "dropped", "never"]
    """dropped: its gradients were discarded; never: the call did not arrive, and is refused if it
    does."""
    call: str | None = None
    reply: Json | None = None
    """The reply of the call."""
