"""The table of actions and their keys, and which keys are in use."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hud_tui.key_names import spell


@dataclass(frozen=True)
class Action:
    """What a key does in one place."""

    view: str
    """Where it works: ``app``, ``list``, ``dialog``, or the name of a view."""
    name: str
    """Name of the method, without ``action_``, of the app, the widget or the view's screen."""
    keys: str
    """Textual's key names, separated by commas; the first is displayed."""
    label: str
    """At most two words, for the footer."""
    help: str
    """One sentence, for the help."""
    footer: bool = True
    priority: bool = False
    """Whether it also works in dialogs and input fields."""

    @property
    def id(self) -> str:
        """Unique id, e.g. ``app.view.models``."""
        return self.view + "." + self.name.replace("(", ".").translate(_QUOTES)

    @property
    def shown(self) -> str:
        """The first key in the usual notation, e.g. ``?`` or ``^p``."""
        return spell(self.keys.partition(",")[0])

    @property
    def all_shown(self) -> str:
        """All keys, e.g. ``? f1``."""
        return " ".join(spell(key) for key in self.keys.split(","))


_QUOTES = str.maketrans({"'": None, ")": None, '"': None, " ": None, ",": "."})


VIEWS = ("models", "launch", "live", "checkpoints", "runs", "jobs", "alarms")
"""The views, in the order of their keys, from 1."""


EXPORT = "Write what is on the screen to a new file: SVG, CSV, JSON, or a report."


# Every key of the app, in one table.
#
# Bindings, the footer, the help on ``?``, the palette, ``hud-tui keys`` and the README's list
# of keys are all made from it, so a key that is shown is a key that works. A key has one meaning,
# whatever the view: docs/keys.md says which. A question (a dialog, the first screen) takes letters
# as answers.


Names = tuple[str, str, str, str]
Row = Names | tuple[*Names, bool] | tuple[*Names, bool, bool]
"""The fields of an `Action` after its view: name, keys, label, help; then footer, priority."""
ROWS: dict[str, tuple[Row, ...]] = {
    "panel": (("close", "escape", "back", "Back to the view."),),
    "history": (("choose", "enter", "set head", "Preview setting the head to it."),),
    "head": (("evaluate", "E", "evaluate", "Evaluate it before it is served."),),
    "compare": (
        ("open", "enter", "rollouts", "Both sides' rollouts of the task; a step's batch."),
        ("compare", "c", "side by side", "Read a rollout of A beside one of B."),
        ("evaluate", "E", "evaluate", "Evaluate both on the same tasks; asks how."),
    ),
    "ship": (
        ("evaluate", "E", "sample", "Sample fresh rollouts of all within a budget."),
        ("set_head", "H", "set head", "Preview serving it; asks first."),
        ("compare", "c", "compare", "Show the others beside it."),
        ("resume_sampling", "R", "go on", "Go on with the sampling that was cut short."),
        ("cancel_sampling", "X", "stop", "Stop sampling; what is sampled is kept."),
    ),
    "bisect": (
        ("evaluate", "E", "bisect", "Evaluate checkpoints within a budget until it is found."),
        ("before_after", "B", "what changed", "What changed at the step that did it."),
        ("set_head", "H", "set head", "Preview serving the last good checkpoint; asks first."),
        ("resume_sampling", "R", "go on", "Go on with what was cut short."),
        ("cancel_sampling", "X", "stop", "Stop evaluating; what is sampled is kept."),
    ),
    "submit": (("baseline", "E", "baseline", "Evaluate the model before it trains."),),
    "app": (
        ("view('models')", "1", "Models", "Choose or fork a model."),
        ("view('launch')", "2", "Launch", "Check a taskset and submit a run."),
        ("view('live')", "3", "Live", "Watch the run."),
        ("view('checkpoints')", "4", "Checkpoints", "See the checkpoints; set the head."),
        ("view('runs')", "5", "Runs", "All runs of all models in one table."),
        ("view('jobs')", "6", "Jobs", "Read jobs, traces and rollouts."),
        ("alarms", "7,exclamation_mark", "Alarms", "What is wrong, and what to do."),
        ("help", "question_mark,f1", "help", "All keys of this view; Enter runs one."),
        (
            "command_palette",
            "colon,ctrl+p",
            "go to",
            "Go to a model, checkpoint, run, job, taskset, task, view or action by name.",
            False,
        ),
        ("reconnect", "ctrl+r", "reconnect", "Reconnect; start the service.", False, True),
        ("raw", "J", "as JSON", "The model and its run as the service has them.", False),
        ("machines", "8", "Machines", "Machines over ssh, and rented pods.", False),
        ("log", "C", "command log", "Every change made from this machine.", False),
        ("theme", "t", "theme", "Next: dark, light, high contrast, colour-blind.", False),
        (
            "reset_layout",
            "ctrl+l",
            "reset layout",
            "All panes, filters and charts as at first; asks first.",
            False,
        ),
        ("quit", "q", "quit", "Quit; asks while a run trains.", False),
        ("interrupt", "ctrl+c,ctrl+q", "quit", "Copy the selection, or quit.", False, True),
    ),
    "connect": (
        ("begin", "enter", "begin", "The embedded service; after a failure, retry."),
        ("local", "l", "embedded", "Use this machine's own service."),
        ("key", "h", "HUD key", "Type a HUD key, for this session only."),
        ("retry", "r", "retry", "Connect again."),
        ("edit", "e", "edit URL", "Correct the URL of --host, and connect."),
    ),
    "list": (
        ("move(-1)", "up,k", "up", "One row up.", False),
        ("move(1)", "down,j", "down", "One row down.", False),
        ("page(-1)", "pageup,ctrl+u", "page up", "One page up.", False),
        ("page(1)", "pagedown,ctrl+d", "page down", "One page down.", False),
        ("first", "home,g", "top", "To the first row.", False),
        ("last", "end,G", "end", "To the last row.", False),
    ),
    "picker": (
        ("pick(-1)", "left,h", "previous", "The previous choice.", False),
        ("pick(1)", "right,l,space", "next", "The next choice.", False),
    ),
    "fold": (
        ("fold", "enter,space", "unfold", "Show the other fields, or hide them."),
        ("unfold", "right,l", "unfold", "Show the other fields.", False),
        ("close_fold", "left,h", "fold", "Hide them.", False),
    ),
    "dialog": (
        ("confirm", "y", "Yes", "Do what the dialog says.", False),
        ("cancel", "escape,n", "Cancel", "Leave everything as it is.", False),
        ("next", "right,down,l,j", "Next", "Go to the next button.", False),
        ("scroll_lines(1)", "pagedown", "More", "Scroll a long text down.", False),
        ("scroll_lines(-1)", "pageup", "Back", "Scroll a long text up.", False),
        ("previous", "left,up,h,k", "Previous", "Go to the previous button.", False),
    ),
    "json": (
        ("fold", "enter,space", "fold", "Fold or unfold the line."),
        ("search", "slash", "search", "Find a key or a value."),
        ("match(1)", "n", "next match", "The next match."),
        ("match(-1)", "N", "previous match", "The previous match.", False),
        ("copy", "y", "copy path", "Copy the path of the line."),
        ("copy_as", "Y", "copy value", "Copy the value, as JSON."),
        ("fold_all", "a", "unfold all", "Unfold the line and all below it."),
        ("unfold", "right,l", "unfold", "Unfold the line.", False),
        ("close_fold", "left,h", "fold", "Fold the line, or go to its parent.", False),
        ("leave", "escape,q", "back", "Out of the search; back to the view."),
    ),
    "models": (
        ("choose", "enter", "choose", "Select a model of yours; fork a base."),
        ("fork", "F", "fork", "Fork the model under the cursor, under a name."),
        ("filter", "slash", "filter", "Show only the models with this text."),
        ("refresh", "r", "refresh", "Read the catalog again."),
        ("copy", "y", "copy slug", "Copy the model's slug."),
        ("protect", "P", "protect", "Ask for its name before a change; or not."),
        ("leave", "escape", "back", "Leave the filter; then clear it."),
        ("export", "ctrl+e", "export", EXPORT, False),
    ),
    "launch": (
        ("choose", "enter", "check", "Check the taskset under the cursor."),
        ("submit", "ctrl+s", "submit", "Submit the run."),
        ("file", "ctrl+o", "open file", "Type the path of a task file, or of an environment."),
        ("edit", "e", "edit run", "Edit the run's parameters."),
        ("try", "T", "try tasks", "Sample groups to see which tasks give signal."),
        ("play", "ctrl+t", "play", "Be the policy of the task under the cursor."),
        ("leave_out", "space", "leave out", "Leave the task out; or take it in."),
        (
            "drop",
            "D",
            "drop no-signal",
            "Leave out every task without signal; or take them in again.",
        ),
        ("order", "o", "order", "Signal first, or as in the file."),
        ("filter", "slash", "filter", "Show only the tasks with these words."),
        ("details", "d", "details", "Read all that the checks found."),
        ("refresh", "r", "check again", "Read and check the taskset again."),
        ("copy", "y", "copy slug", "Copy the slug of the task under the cursor."),
        ("field(1)", "down", "next field", "To the next field.", False),
        ("field(-1)", "up", "previous field", "To the previous field.", False),
        ("leave", "escape", "back", "Out of the filter; back to the tasksets.", False),
        ("export", "ctrl+e", "export", EXPORT, False),
    ),
    "checkpoints": (
        ("set_head", "H", "set head", "Preview serving this checkpoint; asks first."),
        ("roll_back", "b", "roll back 1", "Set the head to its parent; asks first."),
        ("best", "asterisk", "best", "Go to the best checkpoint."),
        ("undo", "u,z", "undo", "Undo the last move of the head; asks first."),
        ("redo", "U,Z", "redo", "Redo the move that was undone; asks first."),
        ("evaluate", "E", "evaluate", "Evaluate A and B, or this; asks how."),
        ("compare", "c", "compare", "Compare A with B, or this with the head."),
        ("ship", "Q", "ship", "Which of the marked ones to serve; or of head, best, newest, base."),
        (
            "bisect",
            "I",
            "bisect",
            "Find the step that did the damage: between the two marked, or before this one.",
        ),
        ("open", "enter,space", "open", "Unfold the steps, or fold them; else show the details."),
        (
            "filter",
            "slash",
            "filter",
            "By name, or reward>.6 loss:ppo step:100..200 kl<.01 is:pinned; ! inverts one.",
        ),
        ("follow", "f", "follow", "Keep the cursor on the head; or stop."),
        ("jump", "apostrophe", "jump", "To the head, the best, an alarm's onset."),
        ("mark", "m", "mark", "Mark it as A, B and so on, to compare up to 8; or unmark it."),
        ("try", "T", "try", "Sample one prompt from both, side by side."),
        ("fork", "F", "fork", "Fork a model that starts here."),
        ("details", "d", "details", "Show or hide the details."),
        ("note", "e", "edit note", "Edit its note; it stays on this machine."),
        ("pin", "p", "pin", "Keep its state whatever the disk limit; asks first."),
        ("cancel_evaluation", "X", "cancel", "Cancel an evaluation; asks first."),
        (
            "resume_evaluation",
            "R",
            "resume",
            "Resume an evaluation that was cut short: only what is missing is sampled.",
        ),
        ("history", "V", "head history", "Who set the head, where and when."),
        ("copy", "y", "copy id", "Copy the checkpoint's id."),
        ("unmark", "M", "unmark", "Remove the marks."),
        ("fold_all", "a", "unfold all", "Unfold every run; or fold them all."),
        ("leave", "escape", "back", "Leave the filter; then clear it."),
        ("fold", "h,left", "fold", "Fold the steps around the cursor.", False),
        ("unfold", "l,right", "unfold", "Unfold the steps.", False),
        ("refresh", "r", "refresh", "Read the tree again.", False),
        ("export", "ctrl+e", "export", EXPORT, False),
    ),
    "live": (
        (
            "cursor(-1)",
            "left,left_square_bracket",
            "step",
            "The crosshair one step earlier, on every chart.",
        ),
        ("open", "enter", "open", "Enlarge the pane; open the crosshair's step, or a group."),
        ("pane(1)", "tab", "pane", "Go to the next pane."),
        ("follow", "f", "follow", "Follow the newest step, or freeze the screen."),
        ("smooth(1)", "s", "smooth", "Smooth the curves more."),
        ("next_view", "v", "view", "Groups: by reward, by step, waste. Charts: range."),
        ("order", "o", "order", "Sort the groups: by task, or signal first."),
        ("compare", "c", "compare", "Overlay another branch or model on the curves."),
        (
            "before_after",
            "B",
            "changes",
            "What changed at this step, from the marked one to it, or at the alarm: tasks, batch.",
        ),
        (
            "bisect",
            "I",
            "bisect",
            "Find the step that did the damage: between the marked one and this, or at the alarm.",
        ),
        ("mark", "m", "mark", "Mark this step as A, to see what changed from there; or unmark it."),
        ("play", "space", "play/pause", "Pause what is replayed, or play it on."),
        ("replay_step(1)", "full_stop", "next step", "Replay one step more; it pauses."),
        ("replay_step(-1)", "comma", "step back", "Replay up to the step before."),
        ("replay_speed(1)", "w", "faster", "Replay twice as fast."),
        ("replay_speed(-1)", "W", "slower", "Replay half as fast."),
        ("replay_to", "at", "go to step", "Replay up to a step that you type."),
        ("cancel_run", "X", "cancel", "Cancel the run; asks first."),
        ("resume_run", "R", "resume", "Resume a run that ended early; asks first."),
        (
            "zoom(1)",
            "plus,equals_sign",
            "zoom in",
            "Show half as many steps, around the crosshair.",
        ),
        ("zoom(-1)", "minus", "zoom out", "Show twice as many steps."),
        ("zoom(0)", "0", "all steps", "Show all of the run."),
        ("time", "percent_sign", "time", "Where the time goes; the discarded rollouts."),
        ("details", "d", "run", "The run's parameters, and what it started from."),
        ("charts", "a", "all charts", "Show, hide and order charts; what each means."),
        ("axis", "x", "axis", "X axis: steps, time or tokens."),
        ("log", "L", "log", "Logarithmic or linear y axis."),
        ("outliers", "O", "outliers", "Clip outliers off the chart, or show them."),
        ("leave", "escape", "back", "Out of the full pane; the crosshair; the comparison."),
        (
            "cursor(1)",
            "right,right_square_bracket",
            "later",
            "The crosshair one step later.",
            False,
        ),
        (
            "cursor(-10)",
            "shift+left",
            "10 earlier",
            "Ten steps earlier, or 1 % of those shown.",
            False,
        ),
        ("cursor(10)", "shift+right", "10 later", "Ten steps later, or 1 % of those shown.", False),
        ("first", "home", "first step", "The crosshair to the first step.", False),
        ("last", "end", "newest", "Remove the crosshair: the newest step.", False),
        ("pan(-1)", "ctrl+left,alt+left", "pan earlier", "Show earlier steps.", False),
        ("pan(1)", "ctrl+right,alt+right", "pan later", "Show later steps.", False),
        ("smooth(-1)", "S", "smooth less", "Smooth less; the raw curves at the end.", False),
        ("pane(-1)", "shift+tab", "previous pane", "Go to the previous pane.", False),
        ("move(-1, 0)", "h", "left", "The metric to the left.", False),
        ("move(1, 0)", "l", "right", "The metric to the right.", False),
        ("move(0, -1)", "up,k", "up", "One row up.", False),
        ("move(0, 1)", "down,j", "down", "One row down.", False),
        ("page(-1)", "pageup,ctrl+u", "page up", "One page up.", False),
        ("page(1)", "pagedown,ctrl+d", "page down", "One page down.", False),
        ("edge(-1)", "g", "top", "To the top of the pane.", False),
        ("edge(1)", "G", "end", "To the end of the pane.", False),
        ("copy", "y", "copy job", "Copy the job's id.", False),
        ("export", "ctrl+e", "export", EXPORT, False),
    ),
    "time": (
        ("cursor(-1)", "left,left_square_bracket", "step", "The step before, by itself."),
        ("cursor(1)", "right,right_square_bracket", "later", "The next step; then the newest."),
        ("pane(1)", "tab", "pane", "The timeline, or the discarded rollouts."),
        ("open", "enter", "open", "The rollout under the cursor, with its group."),
        ("move(1)", "down,j", "down", "The next rollout of the timeline.", False),
        ("move(-1)", "up,k", "up", "The rollout before.", False),
        ("zoom(1)", "plus,equals_sign", "fewer steps", "Show half as many steps."),
        ("zoom(-1)", "minus", "more steps", "Show twice as many steps."),
        ("order", "o", "sort", "Sort the discarded rollouts by the next column."),
        ("cursor(-10)", "shift+left", "10 earlier", "Ten steps earlier.", False),
        ("cursor(10)", "shift+right", "10 later", "Ten steps later.", False),
        ("first", "home", "first step", "The first step.", False),
        ("last", "end", "newest", "The newest steps together.", False),
        ("pane(-1)", "shift+tab", "previous pane", "The other pane.", False),
        ("help", "question_mark,f1", "help", "All keys of the timeline.", False),
        ("leave", "escape", "back", "Back to Live; the crosshair stays."),
    ),
    "charts": (
        ("show_or_hide", "space", "show", "Show or hide this metric."),
        ("place(-1)", "less_than_sign,shift+up", "up", "Its chart one place up."),
        ("place(1)", "greater_than_sign,shift+down", "down", "One place down."),
        ("enlarge", "enter", "enlarge", "Show it large, and close the list."),
        ("reset", "0", "reset", "Show all charts, in the default order."),
        ("leave", "escape", "back", "Close the list.", False),
    ),
    "group": (
        ("rollout(1)", "right,l,right_curly_bracket", "next", "The next rollout (lower reward)."),
        (
            "rollout(-1)",
            "left,h,left_curly_bracket",
            "previous",
            "The previous rollout (higher reward).",
        ),
        ("open", "enter", "read", "Read the rollout: its turns, tools and tokens."),
        ("compare", "c", "side by side", "Read it beside another one of the group."),
        ("move(1)", "down,j", "down", "Scroll the texts down."),
        ("move(-1)", "up,k", "up", "Scroll the texts up."),
        ("page(1)", "pagedown,ctrl+d", "page down", "One page down."),
        ("page(-1)", "pageup,ctrl+u", "page up", "One page up."),
        ("group(1)", "right_parenthesis", "next group", "The step's next group."),
        ("group(-1)", "left_parenthesis", "previous group", "The step's previous group."),
        ("copy", "y", "copy", "Copy the rollout's answer."),
        ("help", "question_mark,f1", "help", "All keys of the group; Enter runs one."),
        ("leave", "escape", "back", "Back to the run."),
    ),
    "play": (
        ("let_policy", "T", "policy", "The policy makes this turn, or all; asks which."),
        ("take_over", "space", "take over", "Make the next turn yourself."),
        ("replay_step(1)", "full_stop", "replay", "Replay the next recorded turn."),
        ("replay_step(-1)", "comma", "one back", "Begin again, up to the turn before."),
        ("replay_to", "at", "to a turn", "Replay up to a turn that you type."),
        ("details", "d", "tools", "The tools in full, with their schemas."),
        ("fold_all", "a", "unfold all", "Unfold every turn; or fold them all."),
        ("page(1)", "pagedown", "page down", "Scroll the conversation down."),
        ("page(-1)", "pageup", "page up", "Scroll the conversation up."),
        ("fold", "enter", "unfold", "Unfold the turn, or fold it; in a field: to the next.", False),
        ("field(1)", "down", "next field", "To the next field.", False),
        ("field(-1)", "up", "previous field", "To the previous field.", False),
        ("help", "question_mark,f1", "help", "All keys of the game; Enter runs one."),
        ("leave", "escape", "back", "Out of the field; then leave the game."),
    ),
    "overlays": (
        ("choose", "enter", "compare", "Overlay it on the curves."),
        ("leave", "escape", "back", "Leave the curves as they are.", False),
    ),
    "runs": (
        ("open", "enter", "open", "Select its model, and show the run in Live."),
        ("mark", "space,m", "mark", "Mark it to compare, or unmark it; go to the next."),
        ("compare", "c", "compare", "Overlay the marked runs in one chart."),
        (
            "before_after",
            "B",
            "changes",
            "What changed from the last checkpoint of one run to that of the other.",
        ),
        ("ship", "Q", "ship", "Which head to serve: of the marked runs, or of its sweep."),
        ("arrange", "o,a", "sort", "Sort by a column; show, hide and order columns."),
        (
            "filter",
            "slash",
            "filter",
            "By any text, or lr:3e-4 reward>.8 state:running age<2h is:alarm; ! inverts one.",
        ),
        ("next_view", "v", "group", "Group by what differs, by sweep, or not at all."),
        ("jump", "apostrophe", "to the tree", "Its last step in the tree."),
        ("edit", "e", "edit", "Edit its name, and its note on this machine."),
        ("cancel_run", "X", "cancel", "Cancel the run, or its sweep; asks first."),
        ("resume_run", "R", "resume", "Resume the run, or its sweep; asks first."),
        ("details", "d", "details", "Everything that is known of the run."),
        ("columns(1)", "right,l", "columns", "The columns to the right.", False),
        ("columns(-1)", "left,h", "columns", "The columns to the left.", False),
        ("unmark", "M", "unmark", "Remove all marks."),
        ("leave", "escape", "back", "Leave the filter; then clear it."),
        ("copy", "y", "copy id", "Copy the run's id."),
        ("refresh", "r", "refresh", "Read the table again.", False),
        ("export", "ctrl+e", "export", EXPORT, False),
    ),
    "columns": (
        ("choose", "enter", "sort", "Sort by this column; once more, the other way."),
        ("show_or_hide", "space", "show", "Show or hide this column."),
        ("place(-1)", "less_than_sign,shift+up", "left", "One place to the left."),
        ("place(1)", "greater_than_sign,shift+down", "right", "One to the right."),
        ("next_view", "v", "group", "Group the runs by this column; or ungroup them."),
        ("reset", "0", "reset", "The usual columns, newest first, no groups."),
        ("leave", "escape", "back", "Close the list.", False),
    ),
    "compared": (
        ("cursor(-1)", "left,left_square_bracket", "step", "One step earlier."),
        ("move(1)", "down,j", "run", "The next run in the order."),
        ("next_view", "v", "metric", "The next metric that they report."),
        ("charts", "a", "all metrics", "Choose the metric from a list."),
        ("axis", "x", "axis", "Align by steps, time or tokens."),
        ("smooth(1)", "s", "smooth", "Smooth the curves more."),
        ("show_or_hide", "space", "hide", "Hide the run's curve, or show it."),
        ("open", "enter", "open", "The run in Live, at the crosshair's step."),
        ("jump", "apostrophe", "to the tree", "That step in the tree."),
        ("log", "L", "log", "Logarithmic or linear y axis."),
        ("leave", "escape", "back", "Remove the crosshair; back to the table."),
        ("cursor(1)", "right,right_square_bracket", "later", "One step later.", False),
        ("cursor(-10)", "shift+left", "10 earlier", "Ten steps earlier.", False),
        ("cursor(10)", "shift+right", "10 later", "Ten steps later.", False),
        ("first", "home", "first step", "The crosshair to the first step.", False),
        ("last", "end", "newest", "Remove the crosshair.", False),
        ("move(-1)", "up,k", "up", "The run before.", False),
        ("smooth(-1)", "S", "smooth less", "Smooth the curves less.", False),
        ("help", "question_mark,f1", "help", "All keys of the comparison.", False),
    ),
    "jobs": (
        ("open", "enter", "open", "The job's rollouts; then one rollout."),
        ("step(-1)", "left_square_bracket", "older step", "One step, or page, older."),
        ("step(1)", "right_square_bracket", "newer step", "One step, or page, newer."),
        ("follow", "f", "follow", "Stay on the newest step; or stop."),
        (
            "filter",
            "slash",
            "filter",
            "Jobs by any text; rollouts also by reward<.2 task:add stop:length is:cut.",
        ),
        ("search", "backslash", "find in all", "Search in what all rollouts say and do."),
        ("leave", "escape", "back", "One level out; first out of the filter."),
        ("cancel_job", "X", "cancel", "Cancel the job's run; asks first."),
        ("resume_job", "R", "resume", "Resume a run that ended early; asks first."),
        ("copy", "y", "copy id", "Copy the id of the job or of the rollout."),
        ("play", "ctrl+t", "play", "Replay the rollout, and take over at any turn."),
        ("refresh", "r", "refresh", "Read it again.", False),
        ("export", "ctrl+e", "export", EXPORT, False),
    ),
    "rollout": (
        ("fold", "enter,space", "unfold", "Unfold the turn, or fold it."),
        ("fold_all", "a", "unfold all", "Unfold every turn; or fold them all."),
        ("rollout(1)", "right,l,right_curly_bracket", "next", "The next rollout of the list."),
        ("rollout(-1)", "left,h,left_curly_bracket", "previous", "The previous rollout."),
        ("filter", "slash", "find", "Find text in the rollout, also in folded turns."),
        (
            "search",
            "backslash",
            "find in all",
            "Search in all rollouts of the step, run or evaluation.",
        ),
        ("match(1)", "n", "next match", "The next place where the text was found."),
        ("match(-1)", "N", "previous match", "The previous match.", False),
        (
            "next_view",
            "v",
            "colours",
            "Colour tokens by surprise, importance ratio or advantage; or not at all.",
        ),
        (
            "details",
            "d",
            "tokens",
            "The turn's tokens with their logprobs; alternatives to the least likely ones.",
        ),
        (
            "compare",
            "c",
            "side by side",
            "Show another of its group beside it, from the first difference; or it alone.",
        ),
        ("pane(1)", "tab", "group", "The other of two; then the group as a list; then back."),
        ("copy", "y", "copy", "Copy as text, Markdown or JSON; or what is selected."),
        ("play", "ctrl+t", "play", "Replay the rollout, and take over at any turn."),
        ("refresh", "r", "refresh", "Read it again.", False),
        ("leave", "escape,q", "back", "Out of the search; back to the list."),
    ),
    "search": (
        ("open", "enter", "read", "Read the rollout, where the words stand."),
        (
            "filter",
            "slash",
            "search",
            "By words, or tool:order error reward<.2 turns>5 task:add is:cut; ! inverts one.",
        ),
        ("next_view", "v", "step or job", "Search in the step, or in all of the job."),
        ("copy", "y", "copy id", "Copy the rollout's id."),
        ("refresh", "r", "refresh", "Read the rollouts again.", False),
        ("leave", "escape,q", "back", "To the list; back."),
    ),
    "alarms": (
        ("open", "enter", "onset", "Its metric in Live, at the step it began with."),
        ("before_after", "B", "changes", "What changed where it began: tasks, rollouts, batches."),
        ("bisect", "I", "bisect", "Find the step that did it, by evaluations."),
        ("set_head", "H", "set head", "Preview serving the last checkpoint before it."),
        ("acknowledge", "space", "acknowledge", "Mark it as seen; or as not seen."),
        ("snooze", "A", "snooze", "Mute its detector for 100 steps; or unmute it."),
        ("copy", "y", "copy", "Copy the alarm's text."),
        ("leave", "escape", "back", "Back to Live."),
        ("export", "ctrl+e", "export", EXPORT, False),
    ),
    "log": (
        ("open", "enter", "details", "The whole entry, as JSON."),
        ("copy", "y", "copy command", "Copy the hud-tui command that does the same."),
        ("copy_as", "Y", "copy as", "Copy it for hud, as curl, or as a Python program."),
        ("filter", "slash", "filter", "Show only the entries with these words."),
        ("refresh", "r", "refresh", "Read the log again.", False),
        ("leave", "escape,q", "back", "Out of the filter; back to the view."),
    ),
    "machines": (
        ("choose", "enter", "use", "Train there or here; or finish its set-up."),
        ("add", "i", "add", "Set a machine up over ssh, or rent GPUs; asks first."),
        ("refresh", "r", "refresh", "Ask the machine how it is, and Prime's list."),
        ("next_view", "v", "logs", "Details, the set-up's log, or the server's log."),
        ("end", "K", "end", "Terminate the pod, or remove the set-up; asks first."),
        ("protect", "P", "protect", "Ask for a pod's name before it ends; or no longer."),
        ("copy", "y", "copy ssh", "Copy the ssh command for it."),
        ("leave", "escape,q", "back", "Back to the view."),
    ),
}
"""The actions of each place, most used first."""
ACTIONS = tuple(Action(view, *row) for view, rows in ROWS.items() for row in rows)

STEERING = frozenset(
    {
        *(f"{place}.set_head" for place in ("alarms", "ship", "bisect")),
        *(f"checkpoints.{name}" for name in ("set_head", "roll_back", "undo", "redo")),
        "history.choose",
    }
)
"""Ids of what moves a head."""
WRITES = STEERING | {
    *("models.fork", "launch.submit", "launch.try", "launch.play", "jobs.play", "rollout.play"),
    *("checkpoints.try", "checkpoints.pin", "checkpoints.fork", "checkpoints.evaluate"),
    *("checkpoints.cancel_evaluation", "checkpoints.resume_evaluation", "compare.evaluate"),
    *("live.cancel_run", "live.resume_run", "jobs.cancel_job", "jobs.resume_job"),
    *("runs.cancel_run", "runs.resume_run"),
    *("machines.choose", "machines.add", "machines.end"),
    *(f"{panel}.evaluate" for panel in ("ship", "bisect")),
    *(f"{panel}.{act}_sampling" for panel in ("ship", "bisect") for act in ("resume", "cancel")),
}
"""Ids of what changes the service, or has it compute: not done with ``--read-only``, nor by a key
that may only read."""


BY_ID = {action.id: action for action in ACTIONS}
_in_use: dict[str, str] = {}


def remap(keymap: Mapping[str, str]) -> None:
    """Use these keys, by action id, from now on."""
    _in_use.clear()
    _in_use.update(keymap)


def with_keys(action: Action, keymap: Mapping[str, str]) -> Action:
    """The action with its keys in a keymap; unchanged if it has none there."""
    return replace(action, keys=keymap[action.id]) if action.id in keymap else action


def of_view(view: str) -> list[Action]:
    """The actions of a view with the keys in use, most used first."""
    return [with_keys(action, _in_use) for action in ACTIONS if action.view == view]


def key(id_: str) -> str:
    """The first key in use of an action, in the usual notation."""
    return with_keys(BY_ID[id_], _in_use).shown


def keyed(text: str) -> str:
    """A text of this program with keys filled in, e.g. ``{app.reconnect} starts it``.

    At the beginning of a sentence ``{^jobs.open}`` gives ``Enter`` where ``{jobs.open}`` gives
    ``enter``.
    """
    return NAMED.sub(_written, text)


NAMED = re.compile(r"\{(\^?)([a-z]+\.[a-z_.0-9-]+)\}")
"""An action in a text of this program, by its id."""


def _written(match: re.Match[str]) -> str:
    shown = key(match[2])
    return shown.capitalize() if match[1] and shown.isalpha() and len(shown) > 1 else shown
