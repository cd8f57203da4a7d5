"""Faults: edits of the package's text, written down by hand or made from its syntax tree."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "hud_tui"
AROUND = 24
"""Characters of its line that a fault is told with, on either side."""


@dataclass(frozen=True)
class Fault:
    """One wrong edit of a file."""

    file: str
    """Path below hud_tui."""
    start: int
    """Where the replaced text begins, a character of the file."""
    old: str
    new: str
    name: str = ""
    """What is edited, without a line's number: an edit elsewhere leaves it as it is."""
    lines: tuple[int, int] | None = None
    """First and last line of the statement that it is in; None if a test that does not reach these
    may see it, too."""
    tests: tuple[str, ...] = ()
    """The tests that must see it; empty for those of its module."""

    def applied(self, text: str) -> str:
        """The file's text with the fault."""
        return text[: self.start] + self.new + text[self.start + len(self.old) :]


@dataclass(frozen=True)
class Edit:
    """A fault that is written down."""

    rule: str
    file: str
    edit: str
    """A text that stands in the file once, and what is edited in it: ``if ‹is_old → False›:``."""
    tests: tuple[str, ...]

    def fault(self) -> Fault:
        """Raises ValueError: the text is not there once."""
        before, old, new, after = re.split("‹| → |›", self.edit)
        text, there = (PACKAGE / self.file).read_text(), before + old + after
        if text.count(there) != 1:
            raise ValueError(f"{self.file}: {text.count(there)} times: {there!r}")
        start = text.index(there) + len(before)
        return Fault(self.file, start, old, new, self.rule, tests=self.tests)


# Generated faults: an operator or constant is another one, a condition the opposite, a statement
# is left out.


COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
COMPUTED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
ASSERTED = {"strict"}
"""Keywords that assert what always holds."""
UNTESTED = {"log"}
"""Whose calls nothing depends on."""


class _Maker(ast.NodeVisitor):
    """Collects the faults of one file."""

    def __init__(self, file: str) -> None:
        self._file, self._text = file, (PACKAGE / file).read_text()
        self._lines = [0]
        for line in self._text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._scope: list[str] = []
        self._span: tuple[int, int] | None = None
        self.faults: list[Fault] = []
        self.visit(ast.parse(self._text))

    def _add(self, start: int, old: str, new: str, told: str = "") -> None:
        first = self._text.rfind("\n", 0, start) + 1
        last = self._text.find("\n", start + len(old))
        before = self._text[first:start].lstrip()[-AROUND:]
        after = self._text[start + len(old) : last][:AROUND]
        edit = " ".join(f"{before}‹{_short(old)} → {told or new}›{after}".split())
        name = f"{self._file} {'.'.join(self._scope)}: {edit}"
        self.faults.append(Fault(self._file, start, old, new, name, self._span))

    def _bounds(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """First and last character; the file's columns are bytes of UTF-8."""

        def character(line: int, column: int) -> int:
            start = self._lines[line - 1]
            text = self._text[start : self._lines[line]]
            return start + len(text.encode()[:column].decode())

        end = character(node.end_lineno or 0, node.end_col_offset or 0)
        return character(node.lineno, node.col_offset), end

    def _replace(self, node: ast.expr | ast.stmt, new: str) -> None:
        start, end = self._bounds(node)
        self._add(start, self._text[start:end], new)

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Another operator between two operands."""
        start, end = self._bounds(left)[1], self._bounds(right)[0]
        token = r"\s+".join(map(re.escape, old.split()))
        edge = r"\b" if old.isalpha() else ""
        if match := re.search(f"{edge}{token}{edge}", self._text[start:end]):
            self._add(start + match.start(), match[0], new)

    def _opposite(self, test: ast.expr) -> None:
        start, end = self._bounds(test)
        text = self._text[start:end]
        self._add(start, text, f"(not ({text}))", "not …")

    # Where the walk is.

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._visit_definition(node)
            return
        span = self._span
        if isinstance(node, ast.stmt) and self._span is not None:
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or 0
            self._span = node.lineno, max(node.lineno, last)
        super().visit(node)
        self._span = span

    def _visit_definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> None:
        span = self._span
        self._scope.append(node.name)
        if not isinstance(node, ast.ClassDef):
            self._span = node.lineno, node.end_lineno or 0
            for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()
        self._span = span

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and not self._is_named_number(node.target):
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        [target, *_] = node.targets
        if self._is_named_number(target):
            return
        if isinstance(target, ast.Attribute | ast.Subscript) and len(node.targets) == 1:
            self._replace(node, "pass")
        self.generic_visit(node)

    def _is_named_number(self, target: ast.expr) -> bool:
        """A test that repeated a constant of the module would hold nothing."""
        return not self._scope and isinstance(target, ast.Name) and target.id.isupper()

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Parts of f-strings have no place of their own in the text."""

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if isinstance(owner, ast.Name) and owner.id in UNTESTED:
                return
            self._replace(node, "pass")
        self.generic_visit(node)

    # What is edited.

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "pass")

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        self._opposite(node.test)
        self.generic_visit(node)

    visit_While = visit_IfExp = visit_If

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._opposite(test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            self._between(left, right, *COMPARED[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, *words)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = [each for each in (node.left, node.right) if _is_text(each)]
        if type(node.op) in COMPUTED and not texts:
            self._between(node.left, node.right, *COMPUTED[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, end = self._bounds(node)[0], self._bounds(node.operand)[0]
            self._add(start, self._text[start:end], self._text[start:end].replace("not", "", 1))
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in ASSERTED:
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._replace(node, repr(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in CALLED:
            self._replace(node.func, CALLED[node.func.id])
        self.generic_visit(node)


def _is_text(node: ast.expr) -> bool:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_text or isinstance(node, ast.JoinedStr)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 50 else f"{text[:48]} …"


@cache
def generated(file: str) -> list[Fault]:
    """All generated faults of a file, in the order of its text, each with a name of its own."""
    faults = sorted(_Maker(file).faults, key=lambda fault: (fault.start, fault.new))
    times, named = Counter[str](), []
    for fault in faults:
        times[fault.name] += 1
        number = times[fault.name]
        named.append(replace(fault, name=f"{fault.name} ({number})") if number > 1 else fault)
    return named


def drawn(files: Sequence[str], count: int, left_out: Sequence[str]) -> list[Fault]:
    """So many generated faults, as many of each file as it has of all; always the same ones: those
    whose name's digest is least, so that an edit changes few.

    Args:
        files: Below hud_tui.
        count: Of all files together.
        left_out: Names of faults that are not drawn.
    """
    faults, before, picked = {file: generated(file) for file in files}, 0, list[Fault]()
    total = sum(map(len, faults.values()))
    for each in faults.values():
        wanted = round(count * (before + len(each)) / total) - round(count * before / total)
        before += len(each)
        ranked = sorted(each, key=lambda fault: sha256(fault.name.encode()).digest())
        kept = [fault for fault in ranked if fault.name not in left_out][:wanted]
        picked += sorted(kept, key=lambda fault: fault.start)
    return picked


def lines_of(fault: Fault) -> Iterator[int]:
    """The lines of which a test must reach one to see it."""
    first, last = fault.lines or (1, 0)
    return iter(range(first, last + 1))
