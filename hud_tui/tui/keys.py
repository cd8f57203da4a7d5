"""Every key of the app, in one table.

Bindings, the footer, the help on ``?``, the palette and the README's list of keys are
all made from it, so a key that is shown is a key that works.
"""

from dataclasses import dataclass

from textual.binding import Binding, BindingType


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


_QUOTES = str.maketrans("", "", "')\"")
_SPELLED = {
    "question_mark": "?",
    "slash": "/",
    "escape": "esc",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "apostrophe": "'",
    "minus": "-",
    "plus": "+",
    "underscore": "_",
    "comma": ",",
    "colon": ":",
    "full_stop": ".",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "pageup": "pgup",
    "pagedown": "pgdn",
}


def spell(key: str) -> str:
    """One of Textual's key names as people write it."""
    *held, name = key.split("+")
    written = _SPELLED.get(name, name)
    return "".join("^" if one == "ctrl" else f"{one}+" for one in held) + written


VIEWS = ("models", "launch", "live", "checkpoints", "jobs")
"""The views, in the order of their keys 1 … 5."""

APP = (
    Action("app", "view('models')", "1", "Models", "Choose or fork a model."),
    Action("app", "view('launch')", "2", "Launch", "Check a taskset and submit a run."),
    Action("app", "view('live')", "3", "Live", "Watch the run."),
    Action("app", "view('checkpoints')", "4", "Checkpoints", "Steer the checkpoint tree."),
    Action("app", "view('jobs')", "5", "Jobs", "Read jobs, traces and rollouts."),
    Action("app", "help", "question_mark,f1", "help", "All keys of this view; Enter runs one."),
    Action("app", "command_palette", "ctrl+p", "palette", "Find any action by name.", False),
    Action("app", "reconnect", "ctrl+r", "reconnect", "Connect again; start the service.", False),
    Action("app", "theme", "t", "theme", "Change between dark and light.", False),
    Action("app", "quit", "q", "quit", "Leave; asks while a run trains.", False),
    Action(
        "app", "interrupt", "ctrl+c,ctrl+q", "quit", "Copy the selection, or leave.", False, True
    ),
)

CONNECT = (
    Action("connect", "begin", "enter", "begin", "The embedded service; or the same again."),
    Action("connect", "local", "l", "embedded service", "Use this machine's own service."),
    Action("connect", "key", "h", "HUD with a key", "Type a HUD key, for this session only."),
    Action("connect", "retry", "r", "try again", "Connect again."),
)

LIST = (
    Action("list", "move(-1)", "up,k", "up", "One row up.", False),
    Action("list", "move(1)", "down,j", "down", "One row down.", False),
    Action("list", "page(-1)", "pageup,ctrl+u", "page up", "One page up.", False),
    Action("list", "page(1)", "pagedown,ctrl+d", "page down", "One page down.", False),
    Action("list", "first", "home,g", "first", "To the first row.", False),
    Action("list", "last", "end,G", "last", "To the last row.", False),
)

DIALOG = (
    Action("dialog", "confirm", "y", "Do it", "Do what the dialog says.", False),
    Action("dialog", "cancel", "escape,n", "Cancel", "Leave everything as it is.", False),
    Action("dialog", "next", "right,down,l,j", "Next", "Go to the next button.", False),
    Action("dialog", "previous", "left,up,h,k", "Previous", "Go to the one before.", False),
)

MODELS: tuple[Action, ...] = (
    Action("models", "choose", "enter", "choose", "Follow a model of yours; fork a base."),
    Action("models", "fork", "F", "fork", "Fork the model under the cursor, under a name."),
    Action("models", "filter", "slash", "filter", "Show only the models with this text."),
    Action("models", "refresh", "r", "refresh", "Read the catalog again."),
    Action("models", "copy", "y", "copy slug", "Copy the model's slug."),
    Action("models", "leave", "escape", "back", "Leave the filter; then clear it.", False),
)
LAUNCH: tuple[Action, ...] = (
    Action("launch", "choose", "enter", "check", "Check the taskset under the cursor."),
    Action("launch", "submit", "ctrl+s", "submit", "Submit the run."),
    Action("launch", "path", "slash", "file", "Type the path of a task file."),
    Action("launch", "form", "e", "edit run", "Go to the run's fields."),
    Action("launch", "refresh", "r", "check again", "Read and check the taskset again."),
    Action("launch", "copy", "y", "copy slug", "Copy the slug of the task under the cursor."),
    Action("launch", "field(1)", "down", "next field", "To the next field.", False),
    Action("launch", "field(-1)", "up", "last field", "To the field before.", False),
    Action("launch", "leave", "escape", "back", "Back to the tasksets.", False),
)
LIVE: tuple[Action, ...] = ()
CHECKPOINTS: tuple[Action, ...] = ()
JOBS: tuple[Action, ...] = ()

ACTIONS = (*APP, *CONNECT, *LIST, *DIALOG, *MODELS, *LAUNCH, *CHECKPOINTS, *LIVE, *JOBS)


def bindings(view: str) -> list[BindingType]:
    """The bindings of one view, of the app, or of a common widget."""
    return [
        Binding(
            action.keys,
            action.name,
            action.label,
            show=action.footer,
            priority=action.priority,
            id=action.id,
        )
        for action in of_view(view)
    ]


def of_view(view: str) -> list[Action]:
    """One view's actions, most used first."""
    return [action for action in ACTIONS if action.view == view]
