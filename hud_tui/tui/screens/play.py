"""PlayScreen: a game, in which the user is the policy of one rollout."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from time import monotonic

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, Static

from hud_tui.errors import HudError
from hud_tui.keys import keyed
from hud_tui.rl.game import PERSON, POLICY, RECORDED, Game, Grade, Move, Phase, Tool
from hud_tui.rl.outcome import grade_notes, stop_text, subscores
from hud_tui.rl.text import clean, one_line
from hud_tui.rl.transcript import (
    ASSISTANT,
    GRADING,
    EnvironmentPart,
    Transcript,
    laid_out,
    transcript_of,
)
from hud_tui.rl.transcript_forms import reward_text
from hud_tui.rollouts.play import Play
from hud_tui.tui.keys import GAMES, OPENS, FootLine
from hud_tui.tui.screens.base import TextPanel
from hud_tui.tui.screens.dialogs import (
    ChoiceDialog,
    ConfirmDialog,
    InputDialog,
    Over,
    show_error,
    show_notice,
)
from hud_tui.tui.theme import RAMP, ramp_index
from hud_tui.tui.widgets.tool_form import ToolForm, with_lines
from hud_tui.tui.widgets.transcript import TranscriptView
from hud_tui.tui.widgets.transcript_blocks import Side

Begin = Callable[[Callable[[Game], object]], Awaitable[Play]]
"""Makes a game; its argument is called with each state."""
Keep = Callable[[Play], Awaitable[str]]
"""Keeps a game that was graded; returns what was done, in a line."""

NOT_RECORDED = "No recorded turn is left."
REPLAY = "{play.replay_step.1} replay  {play.replay_to} to a turn  {play.let_policy} policy"
BACK = "{play.replay_step.-1} one turn back"
SCROLL = "{play.page.-1} {play.page.1} scroll"
YOURS = f"{{play.let_policy}} policy  {{play.details}} tools  {SCROLL}"
TYPING = f"enter next field, then call  tab next  {SCROLL}"
ANSWERING = f"enter answer (ends the game)  {SCROLL}"
POLICYS = f"{{play.take_over}} take over  {SCROLL}"
END = "{play.help} help  {play.leave} back"
OUT = "{play.leave} leave the field"
"""The last line, by what can be done."""
AWAY = "the service does not answer: {app.reconnect} connects again, and the game goes on"
WAITED_S = 1.0
"""Seconds from which on it is said how long something takes."""
LEFT = [
    "The game has not ended, so it is not graded.",
    "What was played is kept as a cancelled rollout.",
]
NO_ANSWER = ["The answer is empty; it ends the game and is graded."]
WHO = {PERSON: "you", POLICY: "policy", RECORDED: "replayed"}


class PlayScreen(Over[None]):
    VIEW = "play"
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (18, "-short"), (30, "-tall")]  # noqa: RUF012

    def __init__(self, name: str, begin: Begin, replay: int = 0, keep: Keep | None = None) -> None:
        """`name`: of what is played, for the title; `replay`: recorded turns to replay at first;
        `keep`: what is to be done with a game that was graded."""
        super().__init__()
        self.heading = f"play {one_line(name, 60)}"
        self.game = Game(name)
        self.form = ToolForm(id="play-form")
        self.view = TranscriptView(id="play-turns", all_open=True)
        self.view.failure = "No turn yet."
        self.answer = Input(id="play-answer", placeholder="your last answer", compact=True)
        self._begin, self._replay, self._keep = begin, replay, keep
        self._play: Play | None = None
        self._games = 0
        """Games begun so far."""
        self._answered_turns = 0
        """Turns that were made when it was last yours."""
        self._since = monotonic()
        """When the present state began."""

    def compose(self) -> ComposeResult:
        with Vertical(id="play") as box:
            box.border_title = self.heading
            yield Static("", id="play-said", markup=False)
            yield self.view
            with Vertical(id="play-move"):
                yield self.form
                with Horizontal(id="play-last"):
                    yield self.answer
                    yield Button("Answer", id="play-send", compact=True)
            yield Button("Play again", id="play-again", compact=True)
            yield FootLine(END, id="play-foot")

    def on_mount(self) -> None:
        self.form.display = False
        self.view.focus()
        self.set_interval(WAITED_S, self._say)
        self.play_it()

    @work(exclusive=True, group=GAMES)
    async def play_it(self) -> None:
        """Play one game to its end."""
        self._games += 1
        number = self._games

        def changed(game: Game) -> None:
            if number == self._games:  # the game before may still be ending
                self.take(game)

        try:
            self._play = play = await self._begin(changed)
            self.take(play.game)
            play.is_kept = self._keep is not None
            play.replay(self._replay)
            await play.run()
            if self._keep is not None and self.game.grade is not None:
                show_notice(self.app, await self._keep(play))
        except HudError as error:
            if self.game.grade is not None:  # it is only not kept
                show_error(self.app, error)
            else:
                self.take(self.game.failed(error.message, error.hint))

    def take(self, game: Game) -> None:
        before, self.game, self._since = self.game, game, monotonic()
        if self.is_mounted:
            self._show(before)

    @work(exclusive=True, group="show")
    async def _show(self, before: Game) -> None:
        game = self.game
        self.set_class(game.is_over, "-over")
        self.set_class(bool(game.prompt) and not game.is_over, "-begun")
        self._say()
        self._hint()
        self.view.show([Side(transcript_of_game(game))], False)
        if game.task:
            title = f"play {one_line(game.source, 40)} {one_line(game.task, 60)}"
            self.query_one("#play", Vertical).border_title = title
        self.call_after_refresh(self.view.action_last)
        is_first = game.phase is Phase.YOURS and before.phase is Phase.STARTING
        if game.phase is Phase.YOURS:
            await self.form.show(game.tools)
            self._after_a_call()
        if is_first and not game.upcoming:
            if game.tools:
                self.form.focus_first()
            else:
                self.answer.focus()
        elif game.is_over:
            self.query_one("#play-again", Button).focus()

    def on_descendant_focus(self) -> None:
        self._hint()

    def _hint(self) -> None:
        """Say what can be done now."""
        hints = {Phase.YOURS: f"{YOURS}  {END}", Phase.POLICYS: f"{POLICYS}  {END}"}
        text = hints.get(self.game.phase, f"{SCROLL}  {END}")
        if self.game.phase is Phase.YOURS and self.game.upcoming:
            back = f"  {BACK}" if self._replayed else ""
            text = f"{REPLAY}{back}  {{play.details}} tools  {SCROLL}  {END}"
        elif self.game.is_over and self._replayed:
            text = f"{BACK}  {{play.replay_to}} to a turn  {SCROLL}  {END}"
        if isinstance(self.focused, Input):
            text = f"{ANSWERING if self.focused is self.answer else TYPING}  {OUT}"
        self.query_one(FootLine).show_text(text)

    def _after_a_call(self) -> None:
        """Empty the form once what it called is answered, so that Enter does not call it again, and
        go to the choice of the next tool."""
        turns, self._answered_turns = self._answered_turns, len(self.game.turns)
        if not turns < self._answered_turns or self.game.turns[-1].by != PERSON:
            return
        self.form.clear()
        if self.form.has_focus_within:
            self.form.focus_first()

    def _say(self) -> None:
        """What the game waits for, or how it ended."""
        said = said_of(self.game, monotonic() - self._since)
        if self._play is not None and self._play.link.is_away and not self.game.is_over:
            said += Content.styled(f"  ·  {keyed(AWAY)}", "$warning")
        self.query_one("#play-said", Static).update(said)

    # What the player does.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing is replayed in a game that began from no rollout."""
        if action in ("replay_step", "replay_to") and self.game.phase is not Phase.STARTING:
            return bool(self.game.upcoming or self._replayed)
        return super().check_action(action, parameters)

    @property
    def is_yours(self) -> bool:
        """Whether a turn is yours to make; says why, if it is not."""
        if self.game.phase is not Phase.YOURS:
            show_notice(self.app, said_of(self.game, 0.0).plain, "warning")
        return self.game.phase is Phase.YOURS

    def _move(self, move: Move) -> None:
        if self._play is not None and self.is_yours:
            self._play.move(move)

    @on(ToolForm.Called)
    def _called(self, event: ToolForm.Called) -> None:
        self._move(event.move)

    @on(Input.Submitted, "#play-answer")
    @on(Button.Pressed, "#play-send")
    def _answered(self) -> None:
        if self.answer.value.strip() or not self.is_yours:
            self._move(Move(with_lines(self.answer.value)))
        else:
            self._ask_to_answer_nothing()

    @work(exclusive=True, group=OPENS)
    async def _ask_to_answer_nothing(self) -> None:
        dialog = ConfirmDialog("An empty answer", NO_ANSWER, "Answer", keep="Back")
        if await self.app.push_screen_wait(dialog):
            self._move(Move(self.answer.value))

    @on(Button.Pressed, "#play-again")
    def _pressed_again(self) -> None:
        self._again(0)

    def _again(self, replay: int) -> None:
        """Begin again, and replay so many recorded turns."""
        self._replay, self._answered_turns, self.answer.value = replay, 0, ""
        self.form.clear()
        self.take(Game(self.game.source))
        self.view.focus()
        self.play_it()

    @work(exclusive=True, group=OPENS)
    async def action_let_policy(self) -> None:
        """Ask for how long the policy is to go on."""
        if self._play is None or not self.is_yours:
            return
        choices = [("turn", "This turn"), ("rest", "To the end")]
        weights = "by the weights that sampled the rollout"
        how = "as it is served now" if self._play.checkpoint is None else weights
        lines = [f"{one_line(self._play.policy, 60)} goes on from here, {how}."]
        dialog = ChoiceDialog("Let the policy go on", lines, choices, yes="turn", safe=True)
        chosen = await self.app.push_screen_wait(dialog)
        if chosen is not None:
            self._play.let_policy(chosen == "rest")

    @property
    def _replayed(self) -> int:
        """Recorded turns made so far."""
        return sum(turn.by == RECORDED for turn in self.game.turns)

    def action_replay_step(self, by: int) -> None:
        """Replay the next recorded turn; or begin again, up to the one before."""
        if by < 0:
            self._replay_up_to(self._replayed - 1)
        elif self._play is not None and self.is_yours:
            if self.game.upcoming:
                self._play.replay(1)
            else:
                self._say_none_is_recorded()

    def _say_none_is_recorded(self) -> None:
        is_known = self.game.phase is not Phase.STARTING
        show_notice(self.app, NOT_RECORDED if is_known else said_of(self.game, 0.0).plain)

    @work(exclusive=True, group=OPENS)
    async def action_replay_to(self) -> None:
        most = self._replayed + len(self.game.upcoming)
        if not most:
            self._say_none_is_recorded()
            return

        def check(text: str) -> str:
            return "" if text.isdigit() and int(text) <= most else f"a number, 0 to {most}"

        lines = [f"{most} turns are recorded."]
        dialog = InputDialog("Replay up to turn", lines, "Replay", check=check)
        typed = await self.app.push_screen_wait(dialog)
        if typed:
            self._replay_up_to(int(typed))

    def _replay_up_to(self, turns: int) -> None:
        """Have so many recorded turns made, from the beginning if need be."""
        can_go_on = self.game.phase in (Phase.STARTING, Phase.YOURS)
        is_ahead = can_go_on and len(self.game.turns) == self._replayed
        more = turns - self._replayed
        if self._play is not None and is_ahead and more > 0:
            self._play.replay(more)
        elif turns >= 0 and self._replayed:
            self._again(turns)

    def action_take_over(self) -> None:
        if self._play is not None:
            self._play.take_over()

    def action_details(self) -> None:
        tools = self.game.tools
        lines = [line for tool in tools for line in tool_lines(tool)]
        none = [Content("This task has no tools.")]
        panel = TextPanel(
            "The tools", lambda width: [part for each in lines or none for part in each.wrap(width)]
        )
        self.app.push_screen(panel)

    def action_page(self, pages: int) -> None:
        self.view.action_page(pages)

    @on(TranscriptView.Opened)
    def action_fold(self) -> None:
        """Fold or unfold the turn under the cursor; from a field, go to the next one."""
        if self.view.has_focus:
            self.view.fold()
        else:
            self.focus_next()

    def action_fold_all(self) -> None:
        self.view.fold_all()

    def action_field(self, by: int) -> None:
        if by > 0:
            self.focus_next()
        else:
            self.focus_previous()

    def action_leave(self) -> None:
        """Out of the field; then leave, which ends the game."""
        if isinstance(self.focused, Input):
            self.view.focus()
        elif self.asks_to_leave:
            self._ask_to_leave()
        else:
            self.dismiss(None)

    @work(exclusive=True, group=OPENS)
    async def _ask_to_leave(self) -> None:
        if await self.may_leave():
            self.dismiss(None)

    @property
    def asks_to_leave(self) -> bool:
        return bool(self.game.turns) and not self.game.is_over

    async def may_leave(self) -> bool:
        dialog = ConfirmDialog("Leave the game", LEFT, "Leave", keep="Stay")
        return not self.asks_to_leave or await self.app.push_screen_wait(dialog)


# What is said and drawn of a game. Its texts come from an environment or a model: they are cleaned,
# and never parsed as markup.


def said_of(game: Game, seconds: float) -> Content:
    """What a game waits for, since so many seconds; or how it ended."""
    takes = f" {seconds:.0f} s" if seconds >= WAITED_S else ""
    of = f" of {game.most}" if game.most else ""
    last = ", the last" if game.number == game.most > 1 else ""
    turn = f"turn {game.number}{of}{last}"
    match game.phase:
        case Phase.YOURS:
            notice = Content.styled(f"{one_line(game.notice, 300)}  ·  ", "$warning")
            replays = ", or replay the recorded one" if game.upcoming else ""
            said = Content.assemble((turn, "bold"), f": your turn{replays}")
            return notice + said if game.notice else said
        case Phase.POLICYS:
            stops = keyed("{play.take_over} takes over")
            return Content(f"{turn}: the policy's turn …{takes}  ·  {stops}")
        case Phase.WORKING:
            return Content(f"{turn}: waiting for the environment …{takes}")
        case Phase.GRADED if game.grade is not None:
            text = reward_text(game.grade.reward, subscores(game.grade.result))
            colour = RAMP[ramp_index(game.grade.reward, 0.0, 1.0)]
            return Content.assemble(("reward ", "bold"), (text, colour))
        case Phase.FAILED:
            trouble = Content.styled(f"no grade: {one_line(game.trouble, 500)}", "$error")
            return trouble + Content.styled(f"\n{clean(game.advice, 1000)}".rstrip(), "$text-muted")
    return Content(f"starting {one_line(game.source, 60)} …{takes}")


def transcript_of_game(game: Game) -> Transcript:
    """The conversation, in which a turn is called by its number and who made it; then the recorded
    turn that can be replayed next, or the grading."""
    upcoming = game.upcoming[:1] if game.phase is Phase.YOURS else ()
    turns = *game.turns, *(replace(turn, replies=turn.expected) for turn in upcoming)
    told = transcript_of(replace(game, turns=turns).events())
    names = [f"{number} {WHO[turn.by]}" for number, turn in enumerate(game.turns, 1)]
    names += [f"{len(turns)} recorded"] * len(upcoming)
    named = iter(names)
    grading = (
        [] if game.grade is None else [EnvironmentPart(GRADING, result=graded_text(game.grade))]
    )
    return replace(
        told,
        turns=[
            replace(turn, role=next(named)) if turn.role == ASSISTANT else turn
            for turn in told.turns
        ],
        grading=grading,
    )


def graded_text(grade: Grade) -> str:
    """What the grader says beside the reward, and why the rollout stopped."""
    notes = [*grade_notes(grade.result), ("stopped", stop_text(grade.stop))]
    return "\n".join(f"{name}: {text}" for name, text in notes)


def tool_lines(tool: Tool) -> Sequence[Content]:
    schema = clean(laid_out(dict(tool.schema))).split("\n")
    about = [Content(clean(line)) for line in tool.about.split("\n")]
    named = Content.styled(one_line(tool.name, 100), "bold")
    return [named, *about, *(Content.styled(line, "$text-muted") for line in schema), Content()]
