"""Pushing a data set's folder to the Hugging Face Hub, once."""

import os
from pathlib import Path
from threading import Thread
from typing import Any

from hud_tui.errors import (
    HudError,
    HudNoKey,
    HudUnauthorized,
    HudUnclear,
    HudUnreachable,
    HudUsage,
    refused,
)
from hud_tui.older.parquet import EXTRA, quiet
from hud_tui.rl.text import one_line

PUSH_S = 900.0
"""Longest wait for all of it: the library itself waits for ever."""
UNCLEAR = "it may have happened: look at the Hub before you push again"
NO_TOKEN = "set HF_TOKEN to a token that may write, or log in: hf auth login"


def require_token(token: str | None) -> None:
    """See to it, before anything is written or asked, that there is a token to push with.

    Args:
        token: The Hub's, where a variable has it; else the one that its own tools keep.

    Raises:
        HudUsage: The library is not installed.
        HudNoKey: There is none. Whether it may write, the Hub says.
    """
    try:
        from huggingface_hub import get_token
    except ImportError as error:
        raise HudUsage("pushing needs the huggingface_hub library", EXTRA) from error
    if not (token or get_token()):
        raise HudNoKey("no token for the Hugging Face Hub", NO_TOKEN)


def push(folder: Path, name: str, private: bool, token: str | None) -> str:
    """Create the data set where there is none, and commit the folder to it.

    Args:
        folder: The data set's.
        name: Its owner and name on the Hub.
        private: Whether only its owner may read it; one that is public is then refused.
        token: The Hub's; None takes the one that its own tools keep.

    Returns:
        Where it is to be seen.

    Raises:
        HudUsage: The library is not installed; or a public data set is there already.
        HudUnauthorized: No token, or one that may not write there.
        HudRefused: The Hub says no.
        HudUnclear: No answer, or none in time; or the Hub's own fault.
    """
    outcome: list[str | BaseException] = []

    def work() -> None:
        try:
            outcome.append(_push(folder, name, private, token))
        except BaseException as error:
            outcome.append(error)

    thread = Thread(target=work, daemon=True)  # one that hangs must not keep the program
    thread.start()
    thread.join(PUSH_S)
    if not outcome:
        late = HudUnreachable(f"the Hub has not answered for {PUSH_S:.0f} s")
        raise HudUnclear(late, hint=UNCLEAR)
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _push(folder: Path, name: str, private: bool, token: str | None) -> str:
    quiet()
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError
    except ImportError as error:
        raise HudUsage("pushing needs the huggingface_hub library", EXTRA) from error
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=token)
    asked = False
    try:
        is_there = _look(api, name, private)
        asked = True
        if not is_there:
            api.create_repo(name, repo_type="dataset", private=private, exist_ok=True)
        api.upload_folder(
            repo_id=name,
            folder_path=folder,
            repo_type="dataset",
            commit_message="Write the tasks with hud-tui convert",
            allow_patterns=["README.md", "data/*.parquet"],
        )
    except HudError:
        raise
    except LocalTokenNotFoundError as error:
        raise HudUnauthorized(401, "no token for the Hugging Face Hub", NO_TOKEN) from error
    except HfHubHTTPError as error:
        raise _refusal(error, token) from error
    except Exception as error:  # whichever HTTP library it has this year
        reason = _without(token, one_line(str(error) or type(error).__name__))
        lost = HudUnreachable(f"no answer from the Hugging Face Hub: {reason}", "try again later")
        raise (HudUnclear(lost, hint=UNCLEAR) if asked else lost) from error
    return f"{api.endpoint}/datasets/{name}"


def _look(api: Any, name: str, private: bool) -> bool:
    """Whether the data set is there. Raises HudUsage: it is, and is public."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        there = api.repo_info(name, repo_type="dataset")
    except RepositoryNotFoundError:
        return False
    if private and there.private is not True:
        hint = "make it private on the Hub first, or leave --private out"
        raise HudUsage(f"the data set {one_line(name)} is there and is public", hint)
    return True


def _refusal(error: Any, token: str | None) -> HudError:
    status = getattr(getattr(error, "response", None), "status_code", None) or 500
    said = getattr(error, "server_message", None) or str(error).splitlines()[0]
    hint = NO_TOKEN if status in (401, 403) else ""
    failure = refused(status, _without(token, one_line(said, 300)), hint)
    return failure if status < 500 else HudUnclear(failure, hint=UNCLEAR)


def _without(token: str | None, text: str) -> str:
    return text.replace(token, "***") if token else text
