"""Training data of the bases: single lines for the small ones, conversations for the one with
tools."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from random import Random
from string import ascii_lowercase
from typing import Any

from hud_tui.service.engines.tiny.tokenizer import END, BpeTokenizer, CharTokenizer
from hud_tui.service.environments import ENVIRONMENTS
from tests.pretrain.talks import SUMS, Talk, schema
from tests.pretrain.tools import (
    calculated,
    echoed,
    told_apart,
    used_in_a_row,
    used_often,
    used_tools,
    used_with_words,
)
from tests.pretrain.words import Words

# Data of the small bases: conversations with a correct answer, or a noisy teacher's.
#
# The correct answers teach the tasks. The noisy teacher then teaches to be right only sometimes, so
# that rewards within a group differ: reinforcement learning mostly elicits what the base can do
# already.


CORRECT, NEAR_MISS, VERBOSE = 0.40, 0.25, 0.20
"""Shares of the noisy teacher's answers; the rest is IGNORANT."""
IGNORANT = "I do not know."
SYSTEM_SHARE, PHRASED_SHARE = 0.12, 0.12
"""Shares of lines with a system message, and of sums asked for in other words."""
SYSTEMS = (
    "Be brief.", "You are a calculator.", "You are a helpful assistant.",
    "Reply with the answer only.",
)  # fmt: skip
PHRASINGS = ("What is {}?", "What is {}? Reply with the number only.", "{}", "{} =")
TOKENIZER = CharTokenizer()


@dataclass(frozen=True)
class Lesson:
    """One scenario as training data."""

    env: str
    scenario: str
    draw: Callable[[Random], dict[str, Any]]
    """Draws random args, which cover the built-in tasksets' except the hopeless tasks."""
    slip: Callable[[Random, str, dict[str, Any]], str]
    """A near miss of (answer, args); never the answer itself."""
    mastered: Callable[[dict[str, Any]], bool] = lambda args: False
    """The args that even the noisy teacher always answers right."""


Line = tuple[list[int], list[int]]
"""Prompt ids and output ids."""


def line(lesson: Lesson, random: Random, noisy: bool) -> Line:
    """One conversation: the prompt, and the output to learn."""
    messages, answer = asked(lesson, random, noisy)
    return TOKENIZER.render(messages), [*TOKENIZER.encode(answer), END]


def asked(lesson: Lesson, random: Random, noisy: bool) -> tuple[list[dict[str, str]], str]:
    """One task's messages, and an answer to it."""
    args = lesson.draw(random)
    scenario = ENVIRONMENTS[lesson.env].scenarios[lesson.scenario]
    prompt, answer = scenario.prompt(args), scenario.answer(args)
    if prompt.endswith(" = ?") and random.random() < PHRASED_SHARE:
        prompt = random.choice(PHRASINGS).format(prompt.removesuffix(" = ?"))
    messages = [{"role": "user", "content": prompt}]
    if random.random() < SYSTEM_SHARE:
        messages.insert(0, {"role": "system", "content": _system(random)})
    if noisy and not lesson.mastered(args):
        answer = _teach(lesson, random, answer, args)
    return messages, answer


def _teach(lesson: Lesson, random: Random, answer: str, args: dict[str, Any]) -> str:
    """The noisy teacher's answer."""
    chance = random.random()
    if chance < CORRECT:
        return answer
    if chance < CORRECT + NEAR_MISS:
        return lesson.slip(random, answer, args)
    return f"The answer is {answer}." if chance < CORRECT + NEAR_MISS + VERBOSE else IGNORANT


def _system(random: Random) -> str:
    """A system message; half of them are random text, so that others are ignored too."""
    if random.random() < 0.5:
        return random.choice(SYSTEMS)
    return " ".join(_word(random, 2, 8) for _ in range(random.randint(1, 5))).capitalize() + "."


def _number(random: Random) -> int:
    """A number below 100, often a single digit: users try those first."""
    return random.randrange(10 if random.random() < 0.25 else 100)


def _pair(random: Random) -> dict[str, Any]:
    return {"a": _number(random), "b": _number(random)}


def _word(random: Random, shortest: int, longest: int) -> str:
    return "".join(random.choices(ascii_lowercase, k=random.randint(shortest, longest)))


def _counted(random: Random) -> dict[str, Any]:
    """A word, and a letter that occurs in it more often than by chance."""
    letter, word = random.choice(ascii_lowercase), _word(random, 3, 8)
    often = random.choice((0.1, 0.3, 0.5))
    return {
        "letter": letter,
        "text": "".join(letter if random.random() < often else char for char in word),
    }


def _off(*steps: int) -> Callable[[Random, str, dict[str, Any]], str]:
    """Slips to a nearby number; counts stay at or above 0."""
    return lambda random, answer, args: str(int(answer) + random.choice(steps))


def _off_by_one(random: Random, answer: str, args: dict[str, Any]) -> str:
    return str(int(answer) + (1 if answer == "0" else random.choice((-1, 1))))


def _smaller(random: Random, answer: str, args: dict[str, Any]) -> str:
    """The other number, or one next to it if both are equal."""
    other = min(args["a"], args["b"])
    return str(other) if str(other) != answer else str(other + 1)


def _misspelt(random: Random, answer: str, args: dict[str, Any]) -> str:
    """One letter replaced by the next one of the alphabet, in the same case."""
    at = random.randrange(len(answer))
    first = ord("A" if answer[at].isupper() else "a")
    changed = chr(first + (ord(answer[at]) - first + 1) % 26)
    return answer[:at] + changed + answer[at + 1 :]


_NEARBY = _off(-10, -2, -1, 1, 2, 10)
ARITH_LESSONS: Sequence[Lesson] = (
    Lesson("arith", "add", _pair, _NEARBY),
    Lesson("arith", "subtract", _pair, _NEARBY),
    Lesson("arith", "compare", _pair, _smaller),
)
TEXT_LESSONS: Sequence[Lesson] = (
    Lesson("text", "reverse", lambda random: {"text": _word(random, 2, 6)}, _misspelt),
    Lesson("text", "count_letter", _counted, _off_by_one),
    Lesson(
        "text",
        "uppercase",
        lambda random: {"text": _word(random, 1, 8)},
        _misspelt,
        mastered=lambda args: len(args["text"]) <= 3,
    ),
)
LESSONS: dict[str, Sequence[Lesson]] = {
    "tiny/arith-0.2M": ARITH_LESSONS,
    "tiny/mixed-0.2M": (*ARITH_LESSONS, *TEXT_LESSONS),
}


# Data of the base for agents: conversations with tools, and whole games of them.
#
# It is to follow the template, to call whatever tools a prompt shows, to read boards, and to work
# out products on paper. How well it plays is left to reinforcement learning: each game is played by
# one of several players, most of them weak. A rollout's first moves decide which player the base
# imitates, so whole rollouts differ in reward.


HEARD_WEIGHT = 0.1
"""Loss weight of a tool's answer, with 1 for the assistant's own tokens: predicting boards teaches
the rules."""
DIRECTIONS = ("up", "down", "left", "right")
OPENING_2048 = (
    "You are playing 2048 on a 4x4 grid. Each turn call the `move` tool with a "
    "direction (up/down/left/right) to slide and merge tiles. Keep playing to "
    "build the largest tile you can (aim for {target}). The current board:\n\n{board}"
)
RULES_CONNECT_4 = (
    "Connect Four on a 6-row by 7-column board. Drop a disc into a column (0-6); "
    "it falls to the lowest empty cell. Win by connecting four of your discs in a "
    "row \u2014 horizontally, vertically, or diagonally."
)
OPENING_CONNECT_4 = (
    "You are playing Connect Four as {mark} against {model} playing {other}.\n{rules}\n"
    "{first}\n"
    "Make each of your moves by calling make_move(column); after your move the "
    "opponent responds automatically.\n"
    "Keep playing until you see 'Winner' or 'Draw'.\n\nCurrent board:\n{board}"
)
ASKED_CONNECT_4 = (
    "{board}\n\nChoose your move. Reason briefly if you want, then end your reply "
    "with the column number to drop into."
)
SYSTEM_CONNECT_4 = (
    "You are playing Connect Four. Think in ONE sentence, then immediately call make_move. "
    "Do not write long analysis. Just pick the best column and call the tool."
)
PRODUCT = (
    "What is {a} * {b}? Think it through, then end your reply with the final "
    "integer on its own and nothing after it."
)


Board = list[list[int]]


def slid(board: Board, direction: str) -> Board:
    """A board of 2048 after its tiles slid, before a new tile appears."""
    if direction in ("up", "down"):
        turned = [list(column) for column in zip(*board, strict=True)]
        moved = slid(turned, "left" if direction == "up" else "right")
        return [list(row) for row in zip(*moved, strict=True)]
    if direction == "right":
        return [row[::-1] for row in slid([row[::-1] for row in board], "left")]
    return [_to_the_left(row) for row in board]


def _to_the_left(row: list[int]) -> list[int]:
    tiles = [tile for tile in row if tile]
    found: list[int] = []
    while tiles:
        twins = len(tiles) > 1 and tiles[0] == tiles[1]
        found.append(tiles[0] * 2 if twins else tiles[0])
        tiles = tiles[2 if twins else 1 :]
    return found + [0] * (len(row) - len(found))


def spawned(random: Random, board: Board) -> Board:
    """The board with a new tile in an empty cell."""
    empty = [(r, c) for r in range(4) for c in range(4) if not board[r][c]]
    row, column = random.choice(empty)
    board = [list(cells) for cells in board]
    board[row][column] = 4 if random.random() < 0.1 else 2
    return board


def legal(board: Board) -> list[str]:
    """The directions that move something."""
    return [direction for direction in DIRECTIONS if slid(board, direction) != board]


def shown(board: Board, score: int) -> str:
    highest = max(map(max, board))
    width = max(len(str(highest)), 4)
    rows = [" ".join(f"{tile or '.':>{width}}" for tile in row) for row in board]
    return "\n".join(rows) + f"\nscore={score} max_tile={highest}"


Player = Callable[[Board], str]


def _stubborn(count: int) -> Callable[[Random], Player]:
    """A player that repeats this many directions, whether they move anything or not."""

    def make(random: Random) -> Player:
        ways = random.sample(DIRECTIONS, count)
        return lambda board: random.choice(ways)

    return make


def _merger(random: Random) -> Player:
    """A player that leaves the most cells empty, and breaks ties towards a corner."""

    def play(board: Board) -> str:
        ways = [way for way in ("down", "left", "right", "up") if way in legal(board)]
        return max(ways, key=lambda way: sum(row.count(0) for row in slid(board, way)))

    return play


def _in_turn(*ways: str) -> Callable[[Random], Player]:
    """These directions one after the other, round and round."""

    def make(random: Random) -> Player:
        coming = cycle(ways)
        return lambda board: next(coming)

    return make


@dataclass(frozen=True)
class Style:
    """How a player of 2048 is shown in the lessons."""

    often: float
    """Share of games."""
    word: str = ""
    """Said before each move."""
    first: float = 1.0
    """Weight of the first move. Times `often`, it is the probability that the base begins so."""


Players = Mapping[Callable[[Random], Player], Style]
PLAYERS: Players = {
    _stubborn(1): Style(0.35), _stubborn(2): Style(0.35), _stubborn(4): Style(0.15),
    _merger: Style(0.15),
}  # fmt: skip
"""The players of 2048 in the lessons, and their shares."""
STYLES: Players = {
    _stubborn(1): Style(0.25, first=3.0),
    _in_turn("left", "right"): Style(0.25, "The row.", first=0.6),
    _in_turn("down", "left", "up", "right"): Style(0.5, "Each direction.", first=0.2),
}
"""The players of the last lessons, told apart by a game's first token, so that a whole game's
reward has one choice to weigh. The best of them is common in the lessons, but rarely begun."""
ASTRAY = 0.05
"""Probability of a random move in place of the player's."""


def _game_2048(random: Random, tokenizer: BpeTokenizer, most: int) -> Talk:
    return _played(PLAYERS, random, tokenizer, most)


def _styled_2048(random: Random, tokenizer: BpeTokenizer, most: int) -> Talk:
    return _played(STYLES, random, tokenizer, random.choice((most, 1 + most // 4)))


def _played(players: Players, random: Random, tokenizer: BpeTokenizer, most: int) -> Talk:
    """A game of 2048 by one of the players, from the start or from a later position."""
    board, score = spawned(random, spawned(random, [[0] * 4 for _ in range(4)])), 0
    for _ in range(random.choice((0, 0, random.randrange(100)))):
        ways = legal(board)
        if ways:
            board = spawned(random, slid(board, random.choice(ways)))
    tool, target = ("move", random.choice((64, 128, 256, 512, 1024, 2048)))
    opening = OPENING_2048
    if random.random() < 0.1:
        tool = random.choice(("slide", "play", "push", "shift"))
        opening = opening.replace("`move`", f"`{tool}`")
    content = opening.format(target=target, board=shown(board, score))
    talk = Talk(tokenizer, [_user(content)], [schema(tool, direction="string")])
    [make] = random.choices(list(players), [style.often for style in players.values()])
    player, style = make(random), players[make]
    for _ in range(most):
        if not legal(board):
            talk.says("The game is over.")
            break
        way = random.choice(DIRECTIONS) if random.random() < ASTRAY else player(board)
        talk.calls(tool, {"direction": way}, style.word, 1.0 if talk.datums else style.first)
        after = slid(board, way)
        stuck = after == board
        if not stuck:
            score += _gained(board, after)
            board = spawned(random, after)
        note = " (no tiles moved \u2014 try another direction)" if stuck else ""
        over = "" if legal(board) else "\nGAME OVER"
        talk.hears(f"{shown(board, score)}{note}{over}", HEARD_WEIGHT)
    return talk


def _gained(before: Board, after: Board) -> int:
    """The score of a slide: the sum of the merged tiles."""
    gained, old = 0, Counter(tile for row in before for tile in row if tile)
    new = Counter(tile for row in after for tile in row if tile)
    for tile in sorted({*old, *new}, reverse=True):
        made = new[tile] - old[tile]
        if made > 0:
            gained += tile * made
            old[tile // 2] -= 2 * made
    return gained


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


class Discs:
    """A board of Connect Four."""

    def __init__(self) -> None:
        self.cells = [["."] * 7 for _ in range(6)]
        self.turn = "X"

    def available(self) -> list[int]:
        return [column for column in range(7) if self.cells[0][column] == "."]

    def drop(self, column: int) -> int:
        """Drop a disc of the player to move; returns its row."""
        row = max(r for r in range(6) if self.cells[r][column] == ".")
        self.cells[row][column] = self.turn
        self.turn = "O" if self.turn == "X" else "X"
        return row

    def lift(self, column: int) -> None:
        """Remove the uppermost disc of a column."""
        row = min(r for r in range(6) if self.cells[r][column] != ".")
        self.turn, self.cells[row][column] = self.cells[row][column], "."

    def winner(self) -> str | None:
        for r, c in product(range(6), range(7)):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                if 0 <= r + 3 * down < 6 and 0 <= c + 3 * right < 7:
                    line = {self.cells[r + n * down][c + n * right] for n in range(4)}
                    if len(line) == 1 and line != {"."}:
                        return line.pop()
        return None

    def wins(self, mark: str) -> list[int]:
        """The columns in which a disc of this mark wins immediately."""
        turn, found = self.turn, []
        for column in self.available():
            self.turn = mark
            self.drop(column)
            if self.winner():
                found.append(column)
            self.lift(column)
        self.turn = turn
        return found

    def over(self) -> bool:
        return not self.available() or self.winner() is not None

    def shown(self) -> str:
        rows = ["0 1 2 3 4 5 6", *(" ".join(row) for row in self.cells)]
        if self.winner():
            state = f"Winner: {self.winner()}"
        elif not self.available():
            state = "Draw"
        else:
            state = f"Current player: {self.turn}  |  Available columns: {self.available()}"
        return "\n".join([*(f" {row}" for row in rows), state])


def _column(random: Random, discs: Discs, skill: float, favourite: int) -> int:
    """A move: winning or blocking with probability `skill`, else a favourite column, or a random
    one."""
    columns = discs.available()
    if random.random() < skill:
        other = "O" if discs.turn == "X" else "X"
        sharp = discs.wins(discs.turn) or discs.wins(other)
        if sharp:
            return random.choice(sharp)
    return favourite if favourite in columns and random.random() < 0.5 else random.choice(columns)


def _connect_4(random: Random, tokenizer: BpeTokenizer, most: int) -> Talk:
    """A game of Connect Four by tool calls, or one move of it asked for in words."""
    discs = Discs()
    skills = {mark: random.choice((0.0, 0.0, 0.3, 0.8)) for mark in "XO"}
    likes = {mark: random.randrange(7) for mark in "XO"}

    def play() -> int:
        column = _column(random, discs, skills[discs.turn], likes[discs.turn])
        discs.drop(column)
        return column

    asked = random.random() < 0.3
    for _ in range(random.randrange(24) if asked or random.random() < 0.5 else random.randrange(2)):
        if not discs.over():
            play()
    if discs.over():
        return _connect_4(random, tokenizer, most)
    mark = discs.turn
    if asked:
        return _asked_column(random, tokenizer, discs, play)
    talk = _opened_connect_4(random, tokenizer, discs)
    for _ in range(most):
        if discs.over():
            talk.says("The game is over.")
            break
        talk.calls("make_move", {"column": play()})
        if not discs.over() and discs.turn != mark:
            play()
        talk.hears(discs.shown(), HEARD_WEIGHT)
    return talk


def _opened_connect_4(random: Random, tokenizer: BpeTokenizer, discs: Discs) -> Talk:
    mark, other = discs.turn, "O" if discs.turn == "X" else "X"
    begun = mark == "O"
    content = OPENING_CONNECT_4.format(
        mark=mark,
        other=other,
        model=random.choice(("c4-selfplay", "agent-rl", _word(random, 2, 9))),
        rules=RULES_CONNECT_4,
        first="The opponent opened \u2014 it is now your turn." if begun else "You go first.",
        board=discs.shown(),
    )
    messages = [_user(content)]
    if random.random() < 0.7:
        messages.insert(0, {"role": "system", "content": SYSTEM_CONNECT_4})
    tools = [schema("make_move", column="integer"), schema("get_state")]
    return Talk(tokenizer, messages, tools)


def _asked_column(
    random: Random, tokenizer: BpeTokenizer, discs: Discs, play: Callable[[], int]
) -> Talk:
    system = f"You are playing Connect Four as {discs.turn}. {RULES_CONNECT_4}"
    asked = ASKED_CONNECT_4.format(board=discs.shown())
    talk = Talk(tokenizer, [{"role": "system", "content": system}, _user(asked)])
    talk.says(random.choice(("{}", "{}", "Column {}", "I drop into column {}.")).format(play()))
    return talk


def on_paper(a: int, b: int) -> str:
    """A product of up to three by two digits, worked out digit by digit."""
    lines, parts = [], []
    for digit in reversed(str(b)):
        steps, digits, carried = [], "", 0
        for other in reversed(str(a)):
            made = int(other) * int(digit) + carried
            steps.append(f"{other}*{digit}+{carried}={made:02d}")
            digits, carried = str(made % 10) + digits, made // 10
        parts.append(f"{carried}{digits}")
        lines.append(f"{' '.join(steps)} = {carried}{digits}")
    lower, upper = f"{parts[0]:0>5}", f"{parts[1]}0"
    steps, carried = [], 0
    for one, other in zip(reversed(lower), reversed(upper), strict=True):
        made = int(one) + int(other) + carried
        steps.append(f"{one}+{other}+{carried}={made:02d}")
        carried = made // 10
    return "\n".join([*lines, " ".join(steps), str(a * b)])


GUESSED = 0.3
"""Share of products that are guessed, and mostly wrong."""


def _product(random: Random, tokenizer: BpeTokenizer, most: int) -> Talk:
    """A product, worked out or guessed."""
    a, b = random.randint(100, 999), random.randint(11, 99)
    talk = Talk(tokenizer, [_user(PRODUCT.format(a=a, b=b))])
    if random.random() > GUESSED:
        talk.says(on_paper(a, b))
    else:
        guess = a * b + random.choice((-100, -10, 0, 10, 100, 1000))
        talk.says(random.choice(("{}", "The answer is {}")).format(guess))
    return talk


def _sum(random: Random, tokenizer: BpeTokenizer, most: int) -> Talk:
    """One of the built-in arithmetic tasks, by the noisy teacher."""
    prompt, answer = asked(random.choice(ARITH_LESSONS), random, noisy=True)
    talk = Talk(tokenizer, prompt)
    talk.says(answer)
    return talk


VERBS = "add call check count fetch find get list load look open read run search send set take use"
NOUNS = "answer city code color count data file item key line name note number page price word"
RASH, ASTRAY_CALL = 0.15, 0.1
"""Shares of tool tasks that are answered without the tool, and by a wrong tool."""


def _named(random: Random) -> str:
    """A name for a tool or an argument."""
    return random.choice(
        (
            random.choice(VERBS.split()),
            random.choice(NOUNS.split()),
            f"{random.choice(VERBS.split())}_{random.choice(NOUNS.split())}",
            _word(random, 2, 7),
            f"{_word(random, 2, 5)}_{_word(random, 2, 5)}",
        )
    )


def _value(random: Random) -> Any:
    return random.choice(
        (random.randrange(1000), _word(random, 2, 8), random.choice(NOUNS.split()))
    )


def _used_tools(random: Random, tokenizer: BpeTokenizer, most: int) -> Talk:
    """A task for one or two tools with random names, and an answer from their results."""
    if random.random() < 0.4:
        return _calculated(random, tokenizer)
    names = random.sample(sorted({_named(random) for _ in range(12)}), random.randint(1, 3))
    values: list[dict[str, Any]] = [
        {_named(random): _value(random) for _ in range(random.randint(0, 2))} for _ in names
    ]
    tools = [
        schema(name, **{k: "integer" if isinstance(v, int) else "string" for k, v in args.items()})
        for name, args in zip(names, values, strict=True)
    ]
    order = random.sample(range(len(names)), random.randint(1, min(2, len(names))))
    wishes = " Then ".join(_wish(random, names[n], values[n]) for n in order)
    talk = Talk(tokenizer, _asked_of(random, wishes), tools)
    if random.random() < RASH:
        talk.says(IGNORANT)
        return talk
    result = ""
    for n in order:
        astray = random.random() < ASTRAY_CALL
        chosen = random.randrange(len(names)) if astray else n
        talk.calls(names[chosen], values[chosen])
        result = str(_value(random))
        talk.hears(result)
    talk.says(random.choice(("{}", "{}", "The answer is {}.", "It says {}.")).format(result))
    return talk


def _wish(random: Random, name: str, values: Mapping[str, Any]) -> str:
    arguments = " and ".join(f"{key} {value}" for key, value in values.items())
    with_ = f" with {arguments}" if arguments else ""
    start = random.choice(("Call {}", "Use {}", "Use the {} tool", "Please call {}", "Ask {}"))
    return f"{start.format(name)}{with_}."


def _asked_of(random: Random, question: str) -> list[dict[str, str]]:
    system = random.random() < SYSTEM_SHARE
    first = [{"role": "system", "content": _system(random)}] if system else []
    return [*first, _user(question)]


def _calculated(random: Random, tokenizer: BpeTokenizer) -> Talk:
    """A sum by a tool."""
    name = random.choice(list(SUMS))
    phrase, _, work = SUMS[name]
    keys = random.choice((("a", "b"), ("x", "y"), ("left", "right"), ("first", "second")))
    a, b = (random.randrange(random.choice((10, 100, 1000))) for _ in keys)
    tools = [schema(name, **dict.fromkeys(keys, "integer"))]
    if random.random() < 0.3:
        tools.insert(random.randrange(2), schema(_named(random), x="integer"))
    wish = f"Use the {name} tool to {phrase.format(a, b)}"
    talk = Talk(
        tokenizer, _asked_of(random, wish + random.choice((".", ", then say the number."))), tools
    )
    talk.works_out(random, name, dict(zip(keys, (a, b), strict=True)), work(a, b), RASH)
    return talk


TalkLesson = Callable[[Words, BpeTokenizer, int], Talk]
"""Draws a conversation of at most this many turns."""

TALKS: Mapping[TalkLesson, float] = {
    _game_2048: 0.25, _connect_4: 0.1, _product: 0.35, _used_tools: 0.25, _sum: 0.05,
}  # fmt: skip
"""The lessons of the base for agents, and their shares in tokens."""
LAST_TALKS: Mapping[TalkLesson, float] = {
    _styled_2048: 0.5, _connect_4: 0.06, _product: 0.27, _used_tools: 0.15, _sum: 0.02,
}  # fmt: skip
"""Its last lessons: games of 2048, and as much of everything else, so that it is not forgotten.
Products suffer most and need the largest share."""

ECHOES: Mapping[TalkLesson, float] = {echoed: 0.7, used_tools: 0.3}
"""The first lessons of the base for tools: to copy."""
CALLS: Mapping[TalkLesson, float] = {
    used_often: 0.5, used_in_a_row: 0.2, used_with_words: 0.15, used_tools: 0.1, calculated: 0.05,
}  # fmt: skip
"""All others: which of several tools is asked for, and which words are values."""
APART: Mapping[TalkLesson, float] = {told_apart: 1.0}
"""Then: that a value is what is no tool's name. Sentences let it be guessed in two of three cases,
and to guess is what they teach. It is learned by itself alone: among other lessons 1200 steps did
not teach it, and before them it is forgotten."""
AGAIN: Mapping[TalkLesson, float] = {
    used_often: 0.4, used_in_a_row: 0.17, used_with_words: 0.2, used_tools: 0.09, told_apart: 0.1,
    calculated: 0.04,
}  # fmt: skip
"""All of them, so that sentences are read with what was learned last."""
