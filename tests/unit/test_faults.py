"""The tool that puts faults into the package: what it edits is there."""

import ast

import pytest

from tests.faults.__main__ import MODULES, ROOT, plan, scope_of
from tests.faults.edits import EDITS
from tests.faults.faults import Edit, generated, spread


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.rule)
def test_what_an_edit_replaces_stands_there_once(edit: Edit) -> None:
    fault = edit.fault()
    text = (ROOT / "hud_tui" / edit.file).read_text()
    ast.parse(fault.applied(text))
    assert fault.applied(text) == text.replace(edit.old, edit.new) != text


@pytest.mark.parametrize("module", MODULES)
def test_a_generated_fault_changes_one_expression(module: str) -> None:
    text = (ROOT / "hud_tui" / f"{module}.py").read_text()
    faults = generated(f"{module}.py")
    assert len(faults) > 20
    for fault in spread(faults, 9):
        assert text[fault.start :].startswith(fault.old)
        assert ast.dump(ast.parse(fault.applied(text))) != ast.dump(ast.parse(text))


def test_the_plan_is_bounded_and_names_tests_that_are_there() -> None:
    faults = plan(["edits", *MODULES], 28)
    assert len(EDITS) + 20 * len(MODULES) < len(faults) <= len(EDITS) + 28 * len(MODULES)
    assert {
        test for fault in faults for test in scope_of(fault) if not (ROOT / test).exists()
    } == set()
