"""What the failure of an engine's call means for the session that made it."""

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hud_tui.service.engines.base import (
    EngineError,
    EngineLost,
    EngineRefused,
    NotFinite,
    PolicyLost,
    StateGone,
)
from hud_tui.service.policies import Policy
from hud_tui.service.refusals import Refused

if TYPE_CHECKING:
    from hud_tui.service.sessions import Session


class PassFailures:
    """Around a pass."""

    def __init__(self, session: "Session", policy: Policy) -> None:
        self._session, self._policy = session, policy

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PolicyLost | NotFinite):
            await self._session.drop()
        elif isinstance(error, EngineLost):
            self._session.lost(self._policy)
        elif isinstance(error, StateGone):
            await self._session.gone()
            raise Refused(410, str(error)) from error
        elif isinstance(error, EngineError):
            raise Refused(422, str(error)) from error
        elif error is not None:
            await self._session.drop()  # whether it accumulated is not known


class StepFailures:
    """Around an optimizer step, from the engine's call until it is in the tree."""

    def __init__(self, session: "Session", policy: Policy, directory: Path) -> None:
        """`directory`: where the step's files are written."""
        self._session, self._policy, self._directory = session, policy, directory

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if isinstance(error, EngineLost) and not isinstance(error, PolicyLost):
            self._session.lost(self._policy)
        elif isinstance(error, EngineRefused):
            self._policy.held = False
        else:
            await self._session.drop()
        if isinstance(error, Exception):  # a step that was cut off may be in the tree by now
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        if isinstance(error, EngineRefused):
            raise self._session.nothing_moved(str(error)) from error
