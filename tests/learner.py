"""A policy of the tiny engine in the test's own process."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hud_tui.service.engines.base import Adam, Datum, Sampled, SampleRequest, Saved, advantages
from hud_tui.service.engines.tiny import worker
from hud_tui.service.engines.tiny.conversations import Conversations
from hud_tui.service.engines.tiny.memory import Memory
from hud_tui.service.engines.tiny.model import Weights
from hud_tui.service.engines.tiny.parts import of_requests
from hud_tui.service.engines.tiny.worker import Mapped, Place, Policy, copied


class Learner(worker.Learner):
    """What the engine asks of its processes, done here."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._memory = Memory()
        self._forget()

    def _forget(self) -> None:
        token_bytes = 8 * self.config.layers * self.config.width
        self.conversations = Conversations(self._memory, token_bytes)

    @property
    def policy(self) -> Policy:
        return Policy(self.weights, self.config)

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sampled]:
        mapped, sampled = Mapped(self._memory.descriptor), list[Sampled]()
        known = [self.conversations.look_up(request) for request in requests]
        for part in of_requests(requests):
            asked = [
                mapped.asked(self.config, vars(request), one.before, one.keep and one.keep.start)
                for request, one in zip(requests[part], known[part], strict=True)
            ]
            sampled += self.policy.sample(asked)
        for request, one, answer in zip(requests, known, sampled, strict=True):
            self.conversations.keep(request, one, answer)
        return sampled

    def forward(self, datums: Sequence[Datum]) -> list[list[float]]:
        return self.policy.forward(datums)

    def measure(self, datums: Sequence[Datum], config: Mapping[str, float]) -> dict[str, float]:
        return self.policy.measure(datums, config)

    def forward_backward(
        self, datums: Sequence[Datum], loss_fn: str, config: Mapping[str, float]
    ) -> dict[str, float]:
        return self._add(*self.policy.gradients(datums, advantages(datums), loss_fn, config))

    def backward(
        self, datums: Sequence[Datum], weights: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        return self._add(*self.policy.gradients(datums, weights))

    def _add(self, grads: Weights | None, metrics: dict[str, float]) -> dict[str, float]:
        self.add([] if grads is None else [grads])
        return metrics

    def optim_step(self, adam: Adam, directory: Path, place: Place = copied) -> Saved:
        saved = super().optim_step(adam, directory, place)
        self._forget()
        return saved
