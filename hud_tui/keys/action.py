"""Action: one thing that a key does."""

from dataclasses import dataclass

from hud_tui.key_names import spell


@dataclass(frozen=True)
class Action:
    """One thing that a key does."""

    view: str
    """Where it works: ``app``, ``list``, ``dialog``, or one view's name."""
    name: str
    """The method ``action_<name>`` of the app, of that widget or of that view's screen."""
    keys: str
    """As Textual spells them, separated by commas; the first is the one shown."""
    label: str
    """Two words at most, for the footer."""
    help: str
    """One sentence."""
    footer: bool = True
    priority: bool = False
    """Whether it works in a dialog and in a field too."""

    @property
    def id(self) -> str:
        """E.g. ``app.view.models``: unique in the table."""
        return self.view + "." + self.name.replace("(", ".").translate(_QUOTES)

    @property
    def shown(self) -> str:
        """The first key as people write it, e.g. ``?`` or ``^p``."""
        return spell(self.keys.partition(",")[0])

    @property
    def all_shown(self) -> str:
        """Every key, e.g. ``? f1``."""
        return " ".join(spell(key) for key in self.keys.split(","))


_QUOTES = str.maketrans({"'": None, ")": None, '"': None, " ": None, ",": "."})
