"""Forward passes that wait for their custom loss's gradients."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from hud_tui.service.batches import Batch
from hud_tui.service.engines.base import Datum
from hud_tui.service.ids import new_id
from hud_tui.service.refusals import bad_field, not_found

KEPT = 16
"""Forward passes kept a model; the oldest goes first."""
LIFETIME_S = 3600.0


@dataclass(frozen=True)
class Pass:
    """What was passed forward."""

    batch: Batch
    datums: Sequence[Datum]
    at: float


class Forwards:
    """Forward passes by their ids. They end with the weights that they were made with."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Pass] = OrderedDict()

    def keep(self, batch: Batch, datums: Sequence[Datum]) -> str:
        """Remember a pass under a new id."""
        id_ = new_id()
        self._kept[id_] = Pass(batch, datums, monotonic())
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return id_

    def get(self, forward_id: str) -> Pass:
        """The pass of an id.

        Raises:
            Refused: 404, it never was, expired, or the weights have changed since.
        """
        found = self._kept.get(forward_id)
        if found is None or monotonic() - found.at > LIFETIME_S:
            self._kept.pop(forward_id, None)
            raise not_found(
                "forward pass (ids end with the next step or set_head)", forward_id[:100]
            )
        return found

    def clear(self) -> None:
        """The weights change: no pass is current any more."""
        self._kept.clear()


def output_weights(
    datums: Sequence[Datum], weights: Sequence[Sequence[float]]
) -> list[list[float]]:
    """The weights at output positions, out of rows over prompt and output.

    Args:
        datums: N turns of P prompt and T output tokens.
        weights: −dC/dlogprob, shape (N, P + T).

    Raises:
        Refused: 422, a row is missing or of another length, or not finite.
    """
    if len(weights) != len(datums):
        raise bad_field("weights", f"{len(weights)} rows for {len(datums)} datums")
    rows = []
    for number, (datum, row) in enumerate(zip(datums, weights, strict=True)):
        total = len(datum.prompt) + len(datum.output)
        if len(row) != total:
            raise bad_field(f"weights.{number}", f"{len(row)} weights for {total} tokens")
        if any(value - value != 0 for value in row):
            raise bad_field(f"weights.{number}", "a weight is not finite")
        rows.append(list(row[len(datum.prompt) :]))
    return rows
