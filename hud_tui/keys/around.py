"""The keys that work in every view, and those of lists, dialogs, panels and what else opens."""

from hud_tui.keys.action import Action

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
