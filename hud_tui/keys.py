"""Names of keys: as Textual has them, as people write them, and which ones a terminal can send.

Source: Textual 8.2, ``textual.keys``; compared with it by the tests.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from unicodedata import name as unicode_name

NAMED = frozenset(
    {
        *("enter", "escape", "tab", "space", "backspace", "delete", "insert", "home", "end"),
        *("pageup", "pagedown", "up", "down", "left", "right"),
        *(f"f{number}" for number in range(1, 25)),
    }
)
_MOVING = NAMED - {"enter", "escape", "tab", "space", "backspace"}
"""Keys that terminals send together with ctrl and shift."""
_ALSO = {"esc": "escape", "pgup": "pageup", "pgdn": "pagedown", "del": "delete", "return": "enter"}
_ALSO |= {"←": "left", "→": "right", "↑": "up", "↓": "down", "backtab": "shift+tab"}
_REPLACED = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
_SAME = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+h": "backspace"}
"""What terminals send the same for."""


def key_of(character: str) -> str:
    """Textual's name of a printable character, e.g. ``question_mark``."""
    if character == " ":
        return "space"
    if character.isalnum():
        return character
    name = unicode_name(character, character).lower().replace("-", "_").replace(" ", "_")
    return _REPLACED.get(name, name)


_CHARACTERS = {key_of(character): character for character in map(chr, range(33, 127))}
_SPELLED = _CHARACTERS | {
    **{"escape": "esc", "pageup": "pgup", "pagedown": "pgdn"},
    **{"left": "←", "right": "→", "up": "↑", "down": "↓"},
}


def spell(key: str) -> str:
    """One of Textual's key names as people write it, e.g. ``?``, ``^p``, ``shift+←``."""
    *held, name = key.split("+")
    written = _SPELLED.get(name, name)
    return "".join("^" if one == "ctrl" else f"{one}+" for one in held) + written


def types_text(key: str) -> bool:
    """Whether a field takes the key for itself."""
    return key in _CHARACTERS or len(key) == 1 or key in ("space", "backspace", "delete")


def read_key(written: str) -> str:
    """A key as Textual names it, from either way to write it.

    Raises:
        ValueError: There is no such key, or terminals do not send it; with what to write.
    """
    text = _ALSO.get(written.lower(), written)
    if len(text) == 1 and text.isprintable():
        return key_of(text)
    if len(text) == 2 and text[0] == "^":
        text = f"ctrl+{text[1]}"
    *held, name = text.lower().split("+")
    name = _ALSO.get(name, name)
    key = "+".join([*sorted(held), name])
    if not held and (name in NAMED or name in _CHARACTERS):
        return key
    if held and _is_sent(sorted(held), name):
        return key
    raise ValueError(_why_not(held, name, key))


def _is_sent(held: list[str], name: str) -> bool:
    if held == ["ctrl"]:
        letter = len(name) == 1 and name.isascii() and name.isalpha()
        return name in _MOVING or (letter and f"ctrl+{name}" not in _SAME)
    if held == ["shift"]:
        return name in _MOVING or name == "tab"
    if held == ["alt"]:
        return name in _MOVING or (len(name) == 1 and name.isascii() and name.isalnum())
    return held == ["ctrl", "shift"] and name in _MOVING


def _why_not(held: list[str], name: str, key: str) -> str:
    if key in _SAME:
        return f"terminals send the same for it as for {_SAME[key]}"
    if held == ["shift"] and len(name) == 1 and name.isalpha():
        return f"no such key; write {name.upper()}"
    known = name in NAMED or name in _CHARACTERS or (len(name) == 1 and bool(held))
    if set(held) <= {"ctrl", "shift", "alt"} and known:
        return "terminals do not send that"
    close = get_close_matches(name, sorted(NAMED | set(_CHARACTERS) | set(_ALSO)), n=1)
    meant = f"; did you mean {'+'.join([*held, close[0]])}?" if close else "."
    return f"no such key{meant} They are written like ?, F, ctrl+s, shift+left, f5, enter"


# Action: one thing that a key does.


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


# The keys that work in every view, and those of lists, dialogs, panels and what else opens.


APP = (
    Action("app", "view('models')", "1", "Models", "Choose or fork a model."),
    Action("app", "view('launch')", "2", "Launch", "Check a taskset and submit a run."),
    Action("app", "view('live')", "3", "Live", "Watch the run."),
    Action("app", "view('checkpoints')", "4", "Checkpoints", "Steer the checkpoint tree."),
    Action("app", "view('jobs')", "5", "Jobs", "Read jobs, traces and rollouts."),
    Action("app", "alarms", "6,exclamation_mark", "Alarms", "What is wrong, and what to do."),
    Action("app", "help", "question_mark,f1", "help", "All keys of this view; Enter runs one."),
    Action("app", "command_palette", "ctrl+p", "palette", "Find any action by name.", False),
    Action(
        "app", "reconnect", "ctrl+r", "reconnect", "Connect again; start the service.", False, True
    ),
    Action("app", "raw", "J", "as JSON", "All that the service says of the model and run.", False),
    Action("app", "log", "C", "commands", "What was changed from here; to do it again.", False),
    Action(
        "app",
        "theme",
        "t",
        "theme",
        "Next: dark, light, high contrast, colour-blind.",
        False,
    ),
    Action(
        "app",
        "reset_layout",
        "ctrl+l",
        "reset layout",
        "Panes, folds, filters, charts as at first; asks.",
        False,
    ),
    Action("app", "quit", "q", "quit", "Leave; asks while a run trains.", False),
    Action(
        "app", "interrupt", "ctrl+c,ctrl+q", "quit", "Copy the selection, or leave.", False, True
    ),
)

CONNECT = (
    Action("connect", "begin", "enter", "begin", "The embedded service; or the same again."),
    Action("connect", "local", "l", "embedded", "Use this machine's own service."),
    Action("connect", "key", "h", "HUD key", "Type a HUD key, for this session only."),
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

PICKER = (
    Action("picker", "pick(-1)", "left,h", "before", "The choice before.", False),
    Action("picker", "pick(1)", "right,l,space", "next", "The next choice.", False),
)

JSON = (
    Action("json", "fold", "enter,space", "fold", "Fold or unfold the line."),
    Action("json", "search", "slash", "search", "Find a key or a value."),
    Action("json", "next_match(1)", "n", "next", "The next match."),
    Action("json", "next_match(-1)", "N", "previous", "The match before.", False),
    Action("json", "copy_path", "y", "copy path", "Copy the path of the line."),
    Action("json", "copy_value", "Y", "copy value", "Copy the value, as JSON."),
    Action("json", "unfold_all", "a", "unfold all", "Unfold the line and all below it."),
    Action("json", "unfold", "right,l", "unfold", "Unfold the line.", False),
    Action("json", "close_fold", "left,h", "fold", "Fold the line, or go to what it is in.", False),
    Action("json", "leave", "escape,q", "back", "Out of the search; back to the view."),
)

DIALOG = (
    Action("dialog", "confirm", "y", "Do it", "Do what the dialog says.", False),
    Action("dialog", "cancel", "escape,n", "Cancel", "Leave everything as it is.", False),
    Action("dialog", "next", "right,down,l,j", "Next", "Go to the next button.", False),
    Action("dialog", "scroll_lines(1)", "pagedown", "More", "Go on in a long text.", False),
    Action("dialog", "scroll_lines(-1)", "pageup", "Back", "Go back in it.", False),
    Action("dialog", "previous", "left,up,h,k", "Previous", "Go to the one before.", False),
)

PANEL = (Action("panel", "close", "escape", "back", "Back to the view."),)
HISTORY = (Action("history", "choose", "enter", "set head", "Preview serving it again."),)

CHARTS = (
    Action("charts", "show_or_hide", "space", "show", "Show this metric, or hide it."),
    Action("charts", "place(-1)", "K", "earlier", "Its chart one place earlier."),
    Action("charts", "place(1)", "J", "later", "Its chart one place later."),
    Action("charts", "enlarge", "enter", "enlarge", "Show it large, and close the list."),
    Action("charts", "reset", "0", "as at first", "Show all, in the order they come in."),
    Action("charts", "leave", "escape", "back", "Close the list.", False),
)
GROUP = (
    Action("group", "rollout(1)", "right,l", "next", "The next rollout, not so good."),
    Action("group", "rollout(-1)", "left,h", "before", "The rollout before, better."),
    Action("group", "move(1)", "down,j", "down", "Scroll the texts down."),
    Action("group", "move(-1)", "up,k", "up", "Scroll the texts up."),
    Action("group", "page(1)", "pagedown,ctrl+d", "page down", "One page down."),
    Action("group", "page(-1)", "pageup,ctrl+u", "page up", "One page up."),
    Action("group", "group(1)", "right_curly_bracket", "next group", "The step's next group."),
    Action("group", "group(-1)", "left_curly_bracket", "last group", "The step's group before."),
    Action("group", "copy", "y", "copy", "Copy what the rollout said."),
    Action("group", "help", "question_mark,f1", "help", "All keys of the group; Enter runs one."),
    Action("group", "leave", "escape", "back", "Back to the run."),
)
OVERLAYS = (
    Action("overlays", "choose", "enter", "compare", "Lay it over the curves."),
    Action("overlays", "leave", "escape", "back", "Leave the curves as they are.", False),
)
LOG = (
    Action("log", "open", "enter", "details", "All of the entry, as JSON."),
    Action("log", "copy_hud", "y", "as hud", "Copy the hud command that does the same."),
    Action("log", "copy_curl", "c", "as curl", "Copy a curl line that does the same."),
    Action("log", "copy_python", "p", "as Python", "Copy a program that does the same."),
    Action("log", "filter", "slash", "filter", "Show only the entries with these words."),
    Action("log", "refresh", "r", "refresh", "Read the log again.", False),
    Action("log", "leave", "escape,q", "back", "Out of the filter; back to the view."),
)


# The keys of the views, each view's most used first.


VIEWS = ("models", "launch", "live", "checkpoints", "jobs", "alarms")
"""The views, in the order of their keys 1 … 6."""

EXPORT = "Write what is on the screen to a new file: SVG, CSV, JSON, or a report."

MODELS = (
    Action("models", "choose", "enter", "choose", "Follow a model of yours; fork a base."),
    Action("models", "fork", "F", "fork", "Fork the model under the cursor, under a name."),
    Action("models", "filter", "slash", "filter", "Show only the models with this text."),
    Action("models", "refresh", "r", "refresh", "Read the catalog again."),
    Action("models", "copy", "y", "copy slug", "Copy the model's slug."),
    Action("models", "protect", "P", "protect", "Ask for its name before a change; or not."),
    Action("models", "leave", "escape", "back", "Leave the filter; then clear it.", False),
    Action("models", "export", "e", "export", EXPORT, False),
)
LAUNCH = (
    Action("launch", "choose", "enter", "check", "Check the taskset under the cursor."),
    Action("launch", "submit", "ctrl+s", "submit", "Submit the run."),
    Action("launch", "path", "slash", "file", "Type the path of a task file."),
    Action("launch", "form", "e", "edit run", "Go to the run's fields."),
    Action("launch", "measure", "m", "try tasks", "Roll out groups to see which tasks teach."),
    Action("launch", "leave_out", "x", "leave out", "Leave out the task under the cursor; or not."),
    Action("launch", "leave_dead", "X", "out: dead", "Leave out all that teach nothing; or not."),
    Action("launch", "sort", "o", "sort", "Most spread first, or as in the file.", False),
    Action("launch", "findings", "f", "findings", "Read all that the checks found.", False),
    Action("launch", "refresh", "r", "check again", "Read and check the taskset again."),
    Action("launch", "copy", "y", "copy slug", "Copy the slug of the task under the cursor."),
    Action("launch", "field(1)", "down", "next field", "To the next field.", False),
    Action("launch", "field(-1)", "up", "last field", "To the field before.", False),
    Action("launch", "leave", "escape", "back", "Back to the tasksets.", False),
    Action("launch", "export", "E", "export", EXPORT, False),
)
LIVE = (
    Action("live", "cursor(-1)", "left", "step", "The crosshair one step earlier, on every chart."),
    Action(
        "live", "open", "enter", "open", "The step's groups; there, the group under the cursor."
    ),
    Action("live", "pane(1)", "tab", "pane", "Go to the next pane."),
    Action("live", "smooth(1)", "s", "smooth", "Smooth the curves more."),
    Action("live", "freeze", "f", "freeze", "Hold what is on the screen; again to follow."),
    Action("live", "cancel_run", "X", "cancel", "End the run, after asking."),
    Action("live", "resume_run", "R", "resume", "Take up a run that was stopped, after asking."),
    Action("live", "zoom(1)", "i", "zoom in", "Show half as many steps, around the crosshair."),
    Action("live", "zoom(-1)", "O", "out", "Show twice as many steps."),
    Action("live", "overlay", "v", "compare", "Lay another branch or model over the curves."),
    Action("live", "charts", "m", "charts", "Choose, order and hide charts; what each one means."),
    Action("live", "log", "L", "log", "Logarithmic or linear curves."),
    Action("live", "axis", "x", "x axis", "Measure by steps, by time or by tokens."),
    Action("live", "clip", "c", "clip", "Let outliers leave the chart, or not."),
    Action("live", "groups", "g", "groups", "Go to the groups."),
    Action("live", "face", "w", "strip", "The groups by reward, step by step, or by waste."),
    Action("live", "order", "o", "order", "Sort the groups: by task, or teaching first."),
    Action("live", "full", "plus", "full pane", "Give the pane all of the view, or fold it back."),
    Action(
        "live", "leave", "escape", "back", "Out of the full pane; the crosshair; compare.", False
    ),
    Action("live", "cursor(1)", "right", "later", "The crosshair one step later.", False),
    Action(
        "live",
        "cursor(-10)",
        "shift+left",
        "leap back",
        "Ten steps earlier; in sight of many, a hundredth of them.",
        False,
    ),
    Action(
        "live",
        "cursor(10)",
        "shift+right",
        "leap on",
        "Ten steps later; in sight of many, a hundredth of them.",
        False,
    ),
    Action("live", "first", "home", "first step", "The crosshair to the first step.", False),
    Action("live", "last", "end", "newest", "No crosshair: follow the newest step.", False),
    Action("live", "zoom(0)", "0", "all steps", "Show all of the run.", False),
    Action("live", "pan(-1)", "left_square_bracket", "pan back", "Show earlier steps.", False),
    Action("live", "pan(1)", "right_square_bracket", "pan on", "Show later steps.", False),
    Action("live", "envelope", "b", "raw values", "Show or hide the range of raw values.", False),
    Action(
        "live", "smooth(-1)", "S", "smooth less", "Smooth less; the raw curves at the end.", False
    ),
    Action("live", "pane(-1)", "shift+tab", "last pane", "Go to the pane before.", False),
    Action("live", "move(-1, 0)", "h", "left", "The metric to the left.", False),
    Action("live", "move(1, 0)", "l", "right", "The metric to the right.", False),
    Action("live", "move(0, -1)", "up,k", "up", "One row up.", False),
    Action("live", "move(0, 1)", "down,j", "down", "One row down.", False),
    Action("live", "page(-1)", "pageup,ctrl+u", "page up", "One page up.", False),
    Action("live", "page(1)", "pagedown,ctrl+d", "page down", "One page down.", False),
    Action("live", "copy", "y", "copy job", "Copy the job's id.", False),
    Action("live", "export", "e", "export", EXPORT, False),
)
CHECKPOINTS = (
    Action(
        "checkpoints", "set_head", "H", "set head", "Serve this checkpoint; shows what it does."
    ),
    Action("checkpoints", "roll_back", "u", "back one", "Serve the head's parent; asks first."),
    Action("checkpoints", "undo", "z", "undo", "Serve what was served before; asks first."),
    Action("checkpoints", "redo", "Z", "redo", "Do again what was undone; asks first.", False),
    Action("checkpoints", "toggle_fold", "enter,space", "fold", "Fold or unfold a straight run."),
    Action(
        "checkpoints",
        "filter",
        "slash",
        "filter",
        "By name, or reward>.6 loss:ppo step:100..200 kl<.01 is:pinned; ! inverts one.",
    ),
    Action("checkpoints", "mark", "m", "mark", "Mark it as A or B, to compare two; or unmark it."),
    Action("checkpoints", "compare", "c", "compare", "A with B; or with the head, what is here."),
    Action("checkpoints", "try", "s", "sample", "Sample one prompt from both, side by side."),
    Action("checkpoints", "follow", "f", "follow", "Keep the cursor on the head; or stop."),
    Action(
        "checkpoints",
        "jump",
        "apostrophe",
        "▶ ★ ⚑",
        "To the head, to the best, to where an alarm began.",
    ),
    Action("checkpoints", "details", "d", "details", "Show or hide the details."),
    Action("checkpoints", "copy", "y", "copy id", "Copy the checkpoint's id."),
    Action("checkpoints", "note", "n", "note", "Write a note on it; it stays on this machine."),
    Action("checkpoints", "pin", "p", "pin", "Keep its state whatever the disk limit; asks first."),
    Action("checkpoints", "fork", "B", "fork", "A model of your own that starts here."),
    Action("checkpoints", "history", "v", "head history", "Where the head was set, when, by whom."),
    Action("checkpoints", "unmark", "M", "unmark", "Take both marks off.", False),
    Action("checkpoints", "fold_all", "a", "all", "Unfold every run; or fold them all.", False),
    Action("checkpoints", "fold", "h,left", "fold", "Fold the run around the cursor.", False),
    Action("checkpoints", "unfold", "l,right", "unfold", "Unfold the run.", False),
    Action("checkpoints", "refresh", "r", "refresh", "Read the tree again.", False),
    Action("checkpoints", "leave", "escape", "back", "Leave the filter; then clear it.", False),
    Action("checkpoints", "export", "e", "export", EXPORT, False),
)
JOBS = (
    Action("jobs", "open", "enter", "open", "The job's rollouts; then one rollout."),
    Action("jobs", "leave", "escape", "back", "One level out; first out of the filter."),
    Action("jobs", "rollout(1)", "right_curly_bracket", "next", "The next rollout."),
    Action("jobs", "rollout(-1)", "left_curly_bracket", "previous", "The rollout before."),
    Action("jobs", "shade", "c", "colours", "Shade tokens by logprob, ratio, or advantage."),
    Action("jobs", "step(-1)", "left_square_bracket", "older step", "One step, or page, older."),
    Action("jobs", "step(1)", "right_square_bracket", "newer step", "One step, or page, newer."),
    Action("jobs", "follow", "f", "follow", "Look at the newest step, whichever that is."),
    Action("jobs", "filter", "slash", "find", "Rows by any text of theirs; text in a rollout."),
    Action("jobs", "copy", "y", "copy", "Copy the answer that is shown, or the id."),
    Action("jobs", "copy_as", "Y", "copy as", "Copy the rollout as text, Markdown or JSON."),
    Action(
        "jobs", "cancel_job", "X", "stop job", "Stop the job between two rollouts, after asking."
    ),
    Action("jobs", "resume_job", "R", "resume", "Let a stopped run go on, after asking."),
    Action(
        "jobs", "match(1)", "n", "next match", "The next place where the text was found.", False
    ),
    Action("jobs", "match(-1)", "N", "match before", "Where it was found before.", False),
    Action("jobs", "refresh", "r", "refresh", "Read it again.", False),
    Action("jobs", "export", "e", "export", EXPORT, False),
)
ALARMS = (
    Action("alarms", "open", "enter", "onset", "Go to the step it began with, in Live."),
    Action("alarms", "set_head", "H", "set head", "Serve the last checkpoint before it; asks."),
    Action("alarms", "acknowledge", "a", "acknowledge", "It is seen; again to take that back."),
    Action("alarms", "snooze", "A", "snooze", "Keep its detector quiet for 100 steps; or wake it."),
    Action("alarms", "copy", "y", "copy", "Copy what the alarm says."),
    Action("alarms", "leave", "escape", "back", "Back to Live.", False),
    Action("alarms", "export", "e", "export", EXPORT, False),
)


# Every key of the app, in one table.
#
# Bindings, the footer, the help on ``?``, the palette, ``hud-tui keys`` and the README's list
# of keys are all made from it, so a key that is shown is a key that works.

ACTIONS = (
    *(*PANEL, *HISTORY, *APP, *CONNECT),
    *(*LIST, *PICKER, *DIALOG, *JSON),
    *(*MODELS, *LAUNCH, *CHECKPOINTS, *LIVE),
    *(*CHARTS, *GROUP, *OVERLAYS),
    *(*JOBS, *ALARMS, *LOG),
)

WRITES = frozenset(
    {
        *("models.fork", "launch.submit", "launch.measure", "alarms.set_head"),
        *(f"checkpoints.{name}" for name in ("set_head", "roll_back", "undo", "redo")),
        *("checkpoints.try", "checkpoints.pin", "checkpoints.fork"),
        *("live.cancel_run", "live.resume_run", "jobs.cancel_job", "jobs.resume_job"),
    }
)
"""Ids of what changes the service, or has it compute: not done with ``--read-only``."""


_BY_ID = {action.id: action for action in ACTIONS}
_in_use: dict[str, str] = {}


def remap(keymap: Mapping[str, str]) -> None:
    """From now on, these keys (by action's id) are the ones that work and are shown."""
    _in_use.clear()
    _in_use.update(keymap)


def with_keys(action: Action, keymap: Mapping[str, str]) -> Action:
    """The action with the keys that a keymap has for it, if any."""
    return replace(action, keys=keymap[action.id]) if action.id in keymap else action


def of_view(view: str) -> list[Action]:
    """One view's actions with the keys in use, most used first."""
    return [with_keys(action, _in_use) for action in ACTIONS if action.view == view]


def key(id_: str) -> str:
    """The first key in use of an action, as people write it."""
    return with_keys(_BY_ID[id_], _in_use).shown


def keyed(text: str) -> str:
    """Our own text that says what to press, e.g. ``{app.reconnect} starts it``.

    At the beginning of a sentence ``{^jobs.open}`` gives ``Enter`` where ``{jobs.open}``
    gives ``enter``.
    """
    return _NAMED.sub(_written, text)


_NAMED = re.compile(r"\{(\^?)([a-z]+\.[a-z_.0-9-]+)\}")


def _written(found: re.Match[str]) -> str:
    shown = key(found[2])
    return shown.capitalize() if found[1] and shown.isalpha() and len(shown) > 1 else shown
