"""Opened: the policy that a model's training session has open, at the head it was opened from."""

from time import monotonic

from hud_tui.service.policies import Policies, Policy
from hud_tui.service.store import Store, heads
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.nodes import Node


class Opened:
    def __init__(self, model: ModelRow, store: Store, policies: Policies) -> None:
        self.used_at = 0.0
        """When training last needed it, in seconds of the monotonic clock."""
        self.policy: Policy | None = None
        self.node: Node | None = None
        """Where `policy` stands; None for the weights that the model started from."""
        self._model = model
        self._store = store
        self._policies = policies

    @property
    def is_lost(self) -> bool:
        """Whether the engine stopped since it was opened."""
        return self.policy is not None and not self._policies.alive(self.policy)

    async def get(self) -> Policy:
        """The policy, opened from the head where none is open."""
        self.used_at = monotonic()
        if self.policy is None:
            node = await self._store.read(heads.head, self._model.id)
            source = self._policies.source(self._model, node)
            self.policy = await self._policies.open(source, self._model)
            self.node = node
            self._policies.trains(self._model.id, source, self.policy)
        return self.policy

    def stepped(self, node: Node) -> None:
        """Its weights are those of a new head."""
        assert self.policy is not None
        self.node = node
        self._policies.trains(self._model.id, node.state_path, self.policy)

    def forget(self) -> None:
        """It is gone, or will be: the next `get` opens the head."""
        self.policy, self.node = None, None

    async def close(self) -> None:
        """Close it as soon as nobody samples from it."""
        policy = self.policy
        self.forget()
        if policy is not None:
            await self._policies.retire(policy)
