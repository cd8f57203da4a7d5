"""RL configurations of hud 0.4: what they become, what is lost, and what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hud_tui.errors import HudUsage
from hud_tui.older.json_lines import key_lines
from hud_tui.older.rl_config import read_rl_config
from hud_tui.older.rl_fields import FIELDS, Spec
from hud_tui.older.translate import Translation, flags, translate
from hud_tui.wire import JobParameters
from tests.unit.older.test_dataset_rows import JSON
from tests.unit.older.test_yaml import TEXT


def of(config: Any) -> Translation:
    return translate(read_rl_config("c.json", json.dumps(config).encode()))


def dropped(found: Translation) -> dict[str, bool]:
    return {one.field: one.set for one in found.dropped}


FULL = {
    "model": {"base_model": "Qwen/Qwen2.5-3B-Instruct", "lora_r": 8, "adapter_path": None},
    "training": {
        "training_steps": 60,
        "group_size": 4,
        "batch_size": 16,
        "lr": 3e-4,
        "no_std": True,
        "leave_one_out": False,
        "kl_beta": 0,
        "entropy_beta": 0.5,
        "adam_betas": [0.9, 0.95],
    },
    "actor": {"temperature": 1.0, "max_new_tokens": 24, "vllm_api_key": "token-abc123"},
    "seed": 7,
}


def test_what_a_configuration_becomes() -> None:
    found = of(FULL)
    assert found.model == "Qwen/Qwen2.5-3B-Instruct"
    assert found.parameters == {
        "steps": 60,
        "group_size": 4,
        "tasks_per_step": 4,
        "learning_rate": 3e-4,
        "loss_fn": "ppo",
        "temperature": 1.0,
        "max_tokens": 24,
        "seed": 7,
    }
    assert found.warnings == []
    assert "--steps 60" in flags(found.parameters)
    assert "--learning-rate 0.0003" in flags(found.parameters)


def test_what_is_lost_is_said_and_what_is_the_same_too() -> None:
    found = of(FULL)
    assert dropped(found) == {
        "model.lora_r": True,
        "training.token_agg": False,
        "training.entropy_beta": True,
        "training.adam_betas": True,
        "actor.vllm_api_key": True,
    }
    same = [one.field for one in found.translated if not one.parameter]
    assert same == ["training.no_std", "training.leave_one_out", "training.kl_beta"]
    assert "token-abc123" not in repr(found)
    assert all(one.why for one in found.dropped)


def test_an_empty_section_has_the_defaults_of_then() -> None:
    found = of({"training": {}})
    assert found.parameters == {
        "steps": 100,
        "group_size": 8,
        "tasks_per_step": 2,
        "learning_rate": 3e-5,
        "loss_fn": "ppo",
        "temperature": 0.7,
        "max_tokens": 1024,
        "seed": 1234,
    }
    assert set(dropped(found)) == {
        "training.no_std",
        "training.leave_one_out",
        "training.token_agg",
        "training.kl_beta",
        "training.entropy_beta",
    }
    assert not any(one.set for one in found.dropped)


@pytest.mark.parametrize(
    ("training", "parameter", "becomes", "warning"),
    [
        ({"batch_size": 20}, "tasks_per_step", 2, "16 rollouts a step"),
        ({"batch_size": 4}, "tasks_per_step", 1, "8 rollouts a step"),
        ({"group_size": 1, "batch_size": 8}, "group_size", 2, "1 is out of 2 to 256"),
        ({"training_steps": 10**9}, "steps", 100_000, "out of 1 to 100000"),
        ({"lr": 3}, "learning_rate", 1, "3 is out of "),
        ({"training_steps": 3.0}, "steps", 3, ""),
    ],
)
def test_what_does_not_fit_is_brought_within(
    training: dict[str, Any], parameter: str, becomes: Any, warning: str
) -> None:
    found = of({"training": training})
    assert found.parameters[parameter] == becomes
    assert any(warning in said for said in found.warnings) or not warning
    JobParameters(**found.parameters)


def test_what_cannot_be_is_dropped() -> None:
    found = of({"training": {"ppo_mode": "per_trace", "lr": 0}, "actor": {"temperature": 0}})
    assert "loss_fn" not in found.parameters
    assert "learning_rate" not in found.parameters
    assert {"training.ppo_mode", "training.lr"} <= set(dropped(found))
    assert found.parameters["temperature"] == 0.01


def test_unknown_fields_are_named_with_what_was_meant() -> None:
    found = of({"training": {"learning_rate": 1e-4, "optimizer": {"lr": "sk-secret"}}, "sed": 3})
    why = {one.field: one.why for one in found.dropped}
    assert "seed" in why["sed"]
    assert why["training.optimizer"]
    assert "sk-secret" not in repr(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "c.json line 1 column 1: not JSON"),
        ("[]", "not an RL configuration"),
        ('{"tasks": []}', "not an RL configuration"),
        ('{"seed": 1} x', "line 1 column 13: not JSON: something follows"),
        ('{"seed": NaN}', "not JSON"),
        ('{\n"seed": 1,\n}', ": not JSON: "),
        ('{"training": 3}', "c.json line 1: field training: expected an object, found a number"),
        (
            '{"training": {\n "lr": "3e-5",\n "group_size": 1.5},\n "seed": -1}',
            "c.json line 2: field training.lr: expected a number, found text; "
            "c.json line 3: field training.group_size: expected a whole number, found a number; "
            "c.json line 4: field seed: expected at least 0",
        ),
        ('{"actor": {"temperature": 3}}', "expected at most 2"),
        ('{"training": {"batch_level": "x"}}', "expected group or batch"),
        ('{"training": {"adam_betas": [0.9]}}', "expected two numbers"),
        ('{"training": {"adam_betas": [0.9, 1]}}', "expected two numbers"),
        ('{"training": {"no_std": 1}}', "expected true or false"),
        ('{"actor": {"allowed_tools": [1]}}', "expected a list of text"),
        ('{"seed": 1,\n"seed": 2}', "c.json line 2: field seed: stands twice"),
        ('{"model": {"base_model": "\\ud800"}}', "half of a surrogate pair"),
        ("[" * 5000, "not JSON"),
        ('{"seed": ' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(HudUsage) as error:
        read_rl_config("c.json", text.encode())
    assert message in str(error.value)
    assert error.value.hint


def test_no_value_of_a_wrong_field_is_repeated() -> None:
    with pytest.raises(HudUsage) as error:
        read_rl_config("c", b'{"actor": {"vllm_api_key": ["sk-secret"]}}')
    assert "sk-secret" not in str(error.value)


def values_of(spec: Spec) -> st.SearchStrategy[Any]:
    low, high = int(spec.low or 0), int(spec.high or 10**6)
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "whole": st.integers(low, high),
        "number": st.floats(low, high),
        "flag": st.booleans(),
        "text": st.sampled_from(spec.choices) if spec.choices else TEXT,
        "texts": st.lists(TEXT, max_size=2),
        "betas": st.lists(st.floats(0, 0.99), min_size=2, max_size=2),
    }
    return kinds[spec.kind] | st.none()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_whatever_is_valid_gives_parameters_that_are(data: st.DataObject) -> None:
    paths = data.draw(st.lists(st.sampled_from(list(FIELDS)), unique=True, min_size=1))
    config: dict[str, Any] = {}
    for path in paths:
        part = config.setdefault(path[0], {}) if len(path) == 2 else config
        part[path[-1]] = data.draw(values_of(FIELDS[path]))
    found = of(config)
    JobParameters(**found.parameters)
    told = {one.field for one in found.translated} | set(dropped(found))
    drawn = {".".join(path) for path in paths if _value(config, path) is not None}
    assert drawn <= told


def _value(config: dict[str, Any], path: tuple[str, ...]) -> Any:
    for step in path:
        config = config[step]
    return config


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.dictionaries(TEXT, JSON, max_size=4), st.sampled_from([None, 1]))
def test_every_key_is_found_on_its_line(document: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(document, indent=indent)
    lines, twice = key_lines(text)
    assert twice == []
    assert {path[0] for path in lines if len(path) == 1} == set(document)
    for path, line in lines.items():
        assert json.dumps(path[-1]) in text.split("\n")[line - 1]
