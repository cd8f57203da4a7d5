"""The tool that puts faults into the package: what it edits is there, and always the same."""

import ast

import pytest

from tests.faults.__main__ import COUNT, MODULES, ROOT, plan, reaching, scope_of
from tests.faults.edits import EDITS
from tests.faults.faults import Edit, Fault, drawn, generated
from tests.faults.left import EQUIVALENT, UNSEEN


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.rule)
def test_what_an_edit_replaces_stands_there_once(edit: Edit) -> None:
    fault = edit.fault()
    text = (ROOT / "hud_tui" / edit.file).read_text()
    ast.parse(fault.applied(text))
    assert fault.applied(text) != text


@pytest.mark.parametrize("module", MODULES)
def test_a_generated_fault_changes_one_thing_and_has_a_name_of_its_own(module: str) -> None:
    text = (ROOT / "hud_tui" / f"{module}.py").read_text()
    faults, tree = generated(f"{module}.py"), ast.dump(ast.parse(text))
    assert len({fault.name for fault in faults}) == len(faults) > 50
    for fault in faults[:: len(faults) // 12]:
        assert text[fault.start :].startswith(fault.old)
        assert ast.dump(ast.parse(fault.applied(text))) != tree
        if fault.lines is not None:
            assert fault.lines[0] <= text.count("\n", 0, fault.start) + 1 <= fault.lines[1]


def test_the_plan_is_spread_over_the_modules_and_names_tests_that_are_there() -> None:
    faults = plan(["edits", *MODULES])
    assert len(faults) == len(EDITS) + COUNT
    assert {
        test
        for fault in faults
        for test in scope_of(fault)
        if not (ROOT / test.partition("::")[0]).exists()
    } == (set())
    counts = [len(plan([module])) for module in MODULES]
    assert sum(counts) == COUNT
    assert min(counts) >= 5
    [first, *_] = plan(["rl/loop"])
    assert first not in drawn([f"{module}.py" for module in MODULES], COUNT, [first.name])


def test_a_fault_is_tried_with_the_tests_that_reach_it() -> None:
    reached = {"slow": (2.0, [3, 4]), "fast": (1.0, [4]), "other": (0.5, [9]), "none": (0.1, [])}
    for lines, tests in (
        ((4, 5), ["fast", "slow"]),
        (None, ["other", "fast", "slow"]),
        ((7, 7), ["none", "other", "fast", "slow"]),
    ):
        assert reaching(Fault("a.py", 0, "", "", lines=lines), reached) == tests


def test_the_faults_that_are_left_are_those_of_today() -> None:
    there = {fault.name for module in MODULES for fault in generated(f"{module}.py")}
    assert [name for name in EQUIVALENT if name not in there] == []
    assert [name for name in UNSEEN if name not in {each.name for each in plan([*MODULES])}] == []
