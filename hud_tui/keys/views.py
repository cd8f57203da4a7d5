"""The keys of the views, each view's most used first."""

from hud_tui.keys.action import Action

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
