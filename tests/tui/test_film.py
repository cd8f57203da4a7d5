"""The film at the README's top: how it is made, and that the one that is there can be shown."""

import re
from itertools import pairwise
from xml.etree import ElementTree

from textual.app import App, ComposeResult
from textual.widgets import Static

from tests.tui.film import Film, Shot, shot
from tests.tui.scenes import SCREENSHOTS

SVG = "{http://www.w3.org/2000/svg}"
KEYFRAMES = re.compile(r"@keyframes f(\d+)\{(.*?\})\}")


class Page(App[None]):
    def compose(self) -> ComposeResult:
        yield Static("[bold]a < b[/bold]\nthe same", id="page")


async def filmed() -> tuple[Shot, Shot]:
    app = Page()
    async with app.run_test(size=(20, 3)) as pilot:
        await pilot.pause()
        first = shot(app.screen, 1.5, ["Enter"], "one & two")
        app.query_one("#page", Static).update("c\nthe same")
        await pilot.pause()
        return first, shot(app.screen, 2.5, [], "three")


def seen(svg: str) -> list[tuple[float, float]]:
    """From when to when each frame is seen, in percent."""
    spans = []
    for number, (name, rule) in enumerate(KEYFRAMES.findall(svg)):
        moments = [(float(at), to) for at, to in re.findall(r"([\d.]+)%\{visibility:(\w+)", rule)]
        [start] = [at for at, to in moments if to == "visible"]
        spans.append((start, min([at for at, to in moments if at > start], default=100.0)))
        assert int(name) == number
    return spans


async def test_each_screen_has_its_time_and_rows_are_drawn_once() -> None:
    shots = await filmed()
    svg = Film(shots, "a film").svg()
    assert seen(svg) == [(0.0, 37.5), (37.5, 100.0)]
    assert (svg.count(">the same<"), svg.count(">a &lt; b<"), svg.count(">c<")) == (1, 1, 1)
    root = ElementTree.fromstring(svg)
    first, second = (root.find(f"{SVG}g[@id='f{number}']") for number in range(2))
    assert first is not None
    assert second is not None
    uses = [{use.get("href") for use in frame.iter(f"{SVG}use")} for frame in (first, second)]
    assert len(uses[0] & uses[1]) == 1
    said = [[text.text for text in frame.iter(f"{SVG}text")] for frame in (first, second)]
    assert said == [["Enter", "one & two"], ["three"]]


def test_the_readme_s_film_plays_by_itself() -> None:
    """A page shows it as a picture: no script, nothing from elsewhere, and small."""
    svg = (SCREENSHOTS / "tour.svg").read_text()
    assert len(svg) < 1e6
    root = ElementTree.fromstring(svg)
    tags = {node.tag.removeprefix(SVG) for node in root.iter()}
    assert tags == {"svg", "title", "style", "defs", "g", "rect", "use", "text"}
    ids = {node.get("id") for node in root.iter()}
    assert {use.get("href", "")[1:] for use in root.iter(f"{SVG}use")} <= ids
    assert "url(" not in svg
    assert "@import" not in svg
    spans = seen(svg)
    assert len(spans) == sum(node.get("class") == "f" for node in root.iter(f"{SVG}g")) >= 8
    assert (spans[0][0], spans[-1][1]) == (0.0, 100.0)
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert ".f{visibility:hidden}#f0{visibility:visible}" in svg, (
        "it stands where motion is unwanted"
    )
    assert "prefers-reduced-motion" in svg
