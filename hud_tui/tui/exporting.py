"""Exporting: what is on the screen, in a new file, as the user chooses."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hud_tui.errors import HudError
from hud_tui.rl.export.names import plain_name
from hud_tui.rl.export.sheet import csv_pieces, json_pieces
from hud_tui.rl.text import clean
from hud_tui.storage import write_folder, write_numbered
from hud_tui.tui.screens.dialogs import ChoiceDialog

if TYPE_CHECKING:
    from hud_tui.rl.export.sheet import Sheet
    from hud_tui.tui.screens.base import HudScreen

TABLES = {"csv": csv_pieces, "json": json_pieces}


async def export(view: HudScreen) -> None:
    """Ask what the view is to become, write it, and say where it is."""
    sheet, directory = view.sheet(), view.hud.export_dir
    reported = view.hud.run_now.loaded
    choices = [("svg", "SVG"), *([("csv", "CSV"), ("json", "JSON")] if sheet else [])]
    choices += [("report", "Report")] if reported else []
    lines = ["SVG: the screen as it is drawn"]
    lines += [f"CSV, JSON: {sheet.name}, all rows, every digit"] if sheet else []
    lines += ["Report: the run in Markdown, with charts"] if reported else []
    lines.append(clean(f"into {directory.absolute()}; never over a file", 400))
    dialog = ChoiceDialog("Export", lines, choices, yes="svg", safe=True)
    chosen = await view.app.push_screen_wait(dialog)
    if chosen is None:
        return
    try:
        file = await to_thread(_writer(view, chosen, sheet, directory))
    except HudError as error:
        view.tell(error)
        return
    view.notify(clean(f"wrote {file.absolute()}", 400), markup=False, timeout=8)


def _writer(
    view: HudScreen, chosen: str, sheet: Sheet | None, directory: Path
) -> Callable[[], Path]:
    """What writes it, away from the screen; the screen is drawn here and now."""
    run, book, now = view.hud.run_now, view.hud.notebook, view.hud.clock()
    stem = plain_name("hud" if run.model is None else run.model.model_name)
    if chosen == "svg":
        from hud_tui.rl.export.drawing import allowed

        picture = allowed(view.app.export_screenshot(title="hud-tui", simplify=True))
        return lambda: write_numbered(directory, f"{stem}-{view.VIEW}", ".svg", [picture])
    if chosen == "report" or sheet is None:
        from hud_tui.rl.export.report import Kept, report_files

        kept = Kept(view.hud.service, dict(book.notes), tuple(book.moves))
        return lambda: write_folder(directory, f"{stem}-report", report_files(run, kept, now))
    pieces = TABLES[chosen](sheet)
    return lambda: write_numbered(directory, f"{stem}-{sheet.name}", f".{chosen}", pieces)
