"""Text with keys in it that can be clicked, and the last line of a panel, which is such a text."""

from textual.visual import VisualType
from textual.widgets import Static

from hud_tui.tui.clickable import foot


class ClickableText(Static):
    """Looks as any text: the colours that links have would drown what it says."""

    def __init__(self, content: VisualType = "", id: str | None = None) -> None:
        super().__init__(content, id=id, markup=False)
        self.auto_links = False


class FootLine(ClickableText):
    """What the keys of a panel do; a click on one does it."""

    ALLOW_SELECT = False

    def __init__(self, text: str, id: str) -> None:
        """`text` names keys by their ids, two blanks between one and the next."""
        super().__init__(foot(text), id=id)

    def say(self, text: str) -> None:
        """Show another text of ours."""
        self.update(foot(text))
