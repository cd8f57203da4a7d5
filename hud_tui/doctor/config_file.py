"""The config file: whether the app can use it."""

from collections.abc import Mapping

from hud_tui.config import NAME, config_dir, read_config
from hud_tui.doctor.report import Finding
from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line


def check_config(environ: Mapping[str, str]) -> Finding:
    """What is wrong with it, as the app would say when it starts."""
    directory = config_dir(environ)
    try:
        config = read_config(directory)
    except HudUsage as error:
        return Finding("config", "failure", error.message, error.hint, code=error.exit_code)
    file = one_line(directory / NAME, 400)
    if not (directory / NAME).exists():
        return Finding("config", "ok", f"there is no {file}: all is as it comes")
    keys = f"; {len(config.keys)} actions have other keys" if config.keys else ""
    return Finding("config", "ok", f"{file} can be used{keys}")
