"""Faults: edits of the package's text, written down by hand or made from its syntax tree."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "hud_tui"


@dataclass(frozen=True)
class Fault:
    """One wrong edit of a file."""

    file: str
    """Path below hud_tui."""
    start: int
    """Where the replaced text begins, a character of the file."""
    old: str
    new: str
    rule: str = ""
    """The rule that it breaks; empty of a generated one."""
    tests: tuple[str, ...] = ()
    """The tests that must see it; empty for those of its module."""

    def applied(self, text: str) -> str:
        """The file's text with the fault."""
        return text[: self.start] + self.new + text[self.start + len(self.old) :]

    def told(self, text: str) -> str:
        """File, line and edit, in one line."""
        line = text.count("\n", 0, self.start) + 1
        old, new = (" ".join(part.split()) for part in (self.old, self.new))
        rule = f" ({self.rule})" if self.rule else ""
        return f"{self.file}:{line}: {old} → {new}{rule}"


@dataclass(frozen=True)
class Edit:
    """A fault that is written down; its old text stands in the file once."""

    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def fault(self) -> Fault:
        """Raises ValueError: the old text is not there once."""
        text = (PACKAGE / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: {text.count(self.old)} times: {self.old!r}")
        return Fault(self.file, text.index(self.old), self.old, self.new, self.rule, self.tests)


# Generated faults: one operator, constant or function is another one.


COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


def generated(file: str) -> list[Fault]:
    """All generated faults of a file, in the order of its text."""
    text = (PACKAGE / file).read_text()
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line.encode()))
    data, faults = text.encode(), []
    for node in _expressions(ast.parse(text)):
        first = lines[node.lineno - 1] + node.col_offset
        last = lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        old = data[first:last].decode()
        for other in _others(node):
            start = len(data[:first].decode())
            faults.append(Fault(file, start, old, f"({ast.unparse(other)})"))
    return sorted(faults, key=lambda fault: (fault.start, fault.new))


def _expressions(tree: ast.AST) -> Iterator[ast.expr]:
    """Expressions that are evaluated: no annotations, docstrings, or parts of f-strings."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list") or isinstance(tree, ast.JoinedStr):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.expr):
                yield node
            if isinstance(node, ast.AST):
                yield from _expressions(node)


def _others(node: ast.expr) -> Iterator[ast.expr]:
    """What stands there instead."""
    match node:
        case ast.Compare(left, [operator], compared) if type(operator) in COMPARED:
            yield ast.Compare(left, [COMPARED[type(operator)]()], compared)
        case ast.BoolOp(ast.And(), values):
            yield ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(ast.Or(), values):
            yield ast.BoolOp(ast.And(), values)
        case ast.BinOp(left, operator, right) if type(operator) in COMPUTED:
            yield ast.BinOp(left, COMPUTED[type(operator)](), right)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Call(ast.Name(name), arguments, keywords) if name in CALLED:
            yield ast.Call(ast.Name(CALLED[name]), arguments, keywords)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)


def spread(faults: list[Fault], most: int) -> list[Fault]:
    """At most so many of them, evenly over the file."""
    if len(faults) <= most:
        return faults
    return [faults[number * len(faults) // most] for number in range(most)]
