"""Evaluations that this program makes, each in a file with its task rows, by the job's id."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from hud_tui.client.kept_files import KeptFiles
from hud_tui.rl.work import EVALUATION
from hud_tui.storage import stored_in, write_atomic
from hud_tui.wire import Body, Group, JobError, Json, WorkState

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient


class StoredEvaluation(Body):
    """The content of a file."""

    service: str
    """`HudClient.service_id` of the service that has the model."""
    evaluation: WorkState
    tasks: list[Json]
    environment: Json | None = None
    """How its rollouts are made, if on an environment of the user's own."""

    def changed(self, **fields: object) -> "StoredEvaluation":
        return self.model_copy(update={"evaluation": self.evaluation.model_copy(update=fields)})

    @property
    def rewards(self) -> dict[str, list[float]]:
        """The rewards by task."""
        return {group.task_slug: list(group.rewards) for group in self.evaluation.groups}

    def scored(
        self, rewards: Mapping[str, Sequence[float]], **fields: object
    ) -> "StoredEvaluation":
        """With these rewards by task."""
        groups = [Group(task_slug=slug, rewards=list(row)) for slug, row in rewards.items()]
        every = [reward for row in rewards.values() for reward in row]
        mean = sum(every) / len(every) if every else None
        return self.changed(groups=groups, done=len(every), mean_reward=mean, **fields)

    def ended(self, status: str, why: str | None = None) -> "StoredEvaluation":
        error = None if why is None else JobError(code="rollouts", message=why)
        return self.changed(status=status, error=error, finished_at=time())

    def over(self, trouble: str) -> "StoredEvaluation":
        """After every rollout was tried; failed ones are not in the statistics. `trouble`: error of
        the last one that failed."""
        evaluation = self.evaluation
        failed = evaluation.total - evaluation.done
        why = f"{failed} of {evaluation.total} rollouts failed: {trouble}: resume it to repeat them"
        ended = self.ended("failed", why) if failed else self.ended("succeeded")
        if not evaluation.done:
            return ended
        fields = {
            "id": evaluation.id,
            "job_id": evaluation.id,
            "split": evaluation.split,
            "name": evaluation.name,
            "created_at": datetime.now(UTC).isoformat(timespec="microseconds"),
            "max_tokens": evaluation.parameters.get("max_tokens"),
            "temperature": evaluation.parameters.get("temperature"),
        }
        from hud_tui.rl.evaluation import summarize

        result = summarize(evaluation.groups, evaluation.parameters.get("solved_at", 1.0))
        return ended.changed(result=result.model_copy(update=fields))


class EvaluationFiles(KeptFiles[StoredEvaluation]):
    def __init__(self, folder: Path | None) -> None:
        """`folder`: where they are; None: nothing is kept."""
        super().__init__(folder, StoredEvaluation)

    def read(self, evaluation_id: str) -> StoredEvaluation | None:
        """An evaluation by its id, of whichever service; None if this program does not make it."""
        is_plain = all(letter.isalnum() or letter == "-" for letter in evaluation_id)
        if self._folder is None or not is_plain:
            return None
        return self._read(self._file(evaluation_id))

    async def find(self, client: "HudClient", evaluation_id: str) -> StoredEvaluation | None:
        """As `read`, of the client's service."""
        stored = self.read(evaluation_id)
        return stored if stored is not None and await client.is_of(stored.service) else None

    async def of_model(self, client: "HudClient", model_id: str) -> list[StoredEvaluation]:
        """All evaluations of a model, oldest first."""
        matches = [kept for kept in self.all() if kept.evaluation.model_id == model_id]
        services = {kept.service for kept in matches}
        own = {service: await client.is_of(service) for service in services}
        matches = [kept for kept in matches if own[kept.service]]
        return sorted(matches, key=lambda kept: kept.evaluation.created_at or 0.0)

    def write(self, stored: StoredEvaluation) -> None:
        """Store an evaluation. Raises HudUsage if it cannot be written."""
        file = self._file(stored.evaluation.id)
        with stored_in(file):
            write_atomic(file, json.dumps(stored.model_dump(mode="json"), allow_nan=False))

    def _read(self, file: Path) -> StoredEvaluation | None:
        stored = super()._read(file)
        # older versions did not write its kind
        return None if stored is None else stored.changed(kind=EVALUATION)


def without_groups(evaluation: WorkState) -> WorkState:
    return evaluation.model_copy(update={"groups": []})
