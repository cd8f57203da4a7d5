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
    """Where it works: ``app``, or one view's name."""
    name: str
    """The method ``action_<name>`` of the app or of that view's screen."""
    keys: str
    """As Textual spells them, separated by commas; the first is the one shown."""
    label: str
    """Two words at most, for the footer."""
    help: str
    """One sentence."""
    footer: bool = True

    @property
    def id(self) -> str:
        return f"{self.view}.{self.name.partition('(')[0]}"


VIEWS = ("models", "launch", "live", "checkpoints", "jobs")
"""The views, in the order of their keys 1 … 5."""

APP = (
    Action("app", "view('models')", "1", "Models", "Choose or fork a model."),
    Action("app", "view('launch')", "2", "Launch", "Check a taskset and submit a run."),
    Action("app", "view('live')", "3", "Live", "Watch the run."),
    Action("app", "view('checkpoints')", "4", "Checkpoints", "Steer the checkpoint tree."),
    Action("app", "view('jobs')", "5", "Jobs", "Read jobs, traces and rollouts."),
    Action("app", "help", "question_mark,f1", "Help", "All keys of this view."),
    Action("app", "command_palette", "ctrl+p", "Palette", "Find any action by name.", False),
    Action("app", "quit", "q,ctrl+q", "Quit", "Leave; a run goes on in the background.", False),
)

DIALOG = (
    Action("dialog", "confirm", "y", "Do it", "Do what the dialog says.", False),
    Action("dialog", "cancel", "escape,n", "Cancel", "Leave everything as it is.", False),
    Action("dialog", "next", "right,down,l,j", "Next", "Go to the next button.", False),
    Action("dialog", "previous", "left,up,h,k", "Previous", "Go to the one before.", False),
)

MODELS: tuple[Action, ...] = ()
LAUNCH: tuple[Action, ...] = ()
LIVE: tuple[Action, ...] = ()
CHECKPOINTS: tuple[Action, ...] = ()
JOBS: tuple[Action, ...] = ()

ACTIONS = (*APP, *DIALOG, *MODELS, *LAUNCH, *CHECKPOINTS, *LIVE, *JOBS)


def bindings(view: str) -> list[BindingType]:
    """The bindings of one view, or of the app."""
    return [
        Binding(action.keys, action.name, action.label, show=action.footer, id=action.id)
        for action in ACTIONS
        if action.view == view
    ]
