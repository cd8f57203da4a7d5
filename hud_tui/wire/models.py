"""Models that can be trained, and what an engine says of itself."""

from pydantic import Field

from hud_tui.wire.base import Request, Response


class Provider(Response):
    name: str | None = None


class TrainingDefaults(Response):
    """What a run on this model starts from."""

    learning_rate: float
    group_size: int
    max_tokens: int
    tasks_per_step: int
    steps: int


class Disk(Response):
    """What a model's checkpoints take on the service's disk (embedded)."""

    checkpoint_bytes: int
    """Of one, as last measured."""
    used_bytes: int
    """By the checkpoints of all models."""
    max_bytes: int
    """Beyond this the oldest are thinned."""
    free_bytes: int | None = None
    """What the disk has room for besides."""


class EngineState(Response):
    """What samples and trains a model, and where."""

    engine: str
    """``tiny`` or ``tinker``."""
    server: str | None = None
    """URL of the server that has its weights; None on this machine."""
    queue: str = "active"
    """``active``, or what requests wait for, in plain words."""
    slots: int = 0
    """Training runs that are open on the server now."""
    ttl_s: int | None = None
    """How long the server keeps a checkpoint; None: until it is deleted."""
    saves_per_step: int = 0
    """Checkpoints that every optimizer step leaves on `server`, which keeps (and may bill for)
    them; 0 where there is no server. The tree, metrics, rewards and rollouts are kept on this
    machine in either case; with a server, a checkpoint's file here only says where it is there."""


class Model(Response):
    """One row of the catalog, GET /v2/models; also the reply to a fork."""

    id: str
    model_name: str
    """The slug that the gateway serves it under."""
    name: str | None = None
    sdk_agent_type: str | None = None
    is_trainable: bool = False
    provider: Provider | None = None
    created_at: str | None = None
    checkpoint_count: int | None = None
    training_defaults: TrainingDefaults | None = None
    """Embedded."""
    base_model: str | None = None
    """Embedded: the base whose architecture and vocabulary it has."""
    context_length: int | None = None
    """Embedded: most tokens of prompt and answer together."""
    forked_from: str | None = None
    """Embedded: slug of the source, with ``@checkpoint-name`` where it had a head."""
    disk: Disk | None = None
    """Embedded; None where checkpoints are kept on a server (`engine.server`)."""
    engine: EngineState | None = None
    """Embedded."""


class Fork(Request):
    """POST /v2/models/fork."""

    source_model_id: str
    name: str = Field(min_length=1, max_length=100)
    checkpoint_id: str | None = None
    """Embedded: start at this checkpoint of the source and not at its head."""
