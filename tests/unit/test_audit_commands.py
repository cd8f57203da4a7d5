"""Commands to copy: what came from anywhere is one word of a shell or one literal of Python's."""

import ast
import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.audit_log import AuditEntry, as_curl, as_hud, as_hud_tui, as_python, document, sent_to
from hud_tui.cli.commands import build_parser

ids = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
VERBS = ("set head", "fork", "pin", "unpin", "cancel", "resume", "submit", "upload", "rollout")
OF_HUD = ("set head", "fork", "cancel")
REPEATED = (*OF_HUD, "resume", "submit")
PARSER = build_parser()
URL = "http://127.0.0.1:8900/v2/models/m/head"


def entry(verb: str, **more: Any) -> AuditEntry:
    usual: dict[str, Any] = {"model": "m", "subject": "s", "after": "a", "url": URL}
    return AuditEntry(1.0, verb, **{**usual, "method": "PUT", **more})


@given(ids, ids, st.sampled_from(["set head", "fork", "cancel"]))
def test_a_shell_sees_the_words_that_were_meant(model: str, text: str, verb: str) -> None:
    one = entry(verb, model=model, subject=text, after=text)
    home, *words = shlex.split(as_hud(one))
    assert home == "HUD_API_URL=http://127.0.0.1:8900"
    kept = [word for word in words if word != "--"]
    place = text if verb == "cancel" else model
    expected = {
        "set head": ["hud", "models", "head", f"--set={text}", "--yes", place],
        "fork": ["hud", "models", "fork", f"--name={text}", "--yes", place],
        "cancel": ["hud", "jobs", "cancel", "--yes", place],
    }[verb]
    if place != "--":
        assert kept == [word for word in expected if word != "--"]
    assert ("--" in words) == (place.startswith("-"))


@given(st.dictionaries(ids, ids, max_size=3), ids)
def test_curl_sends_the_same_bytes(body: dict[str, str], path: str) -> None:
    sent = json.dumps(body)
    one = entry("set head", body=sent, url=f"http://h/{path}")
    words = shlex.split(as_curl(one))
    assert words[words.index("--data-raw") + 1] == sent
    assert words[-1] == f"http://h/{path}"
    assert "Authorization: Bearer $HUD_API_KEY" in words
    assert '"Authorization: Bearer $HUD_API_KEY"' in as_curl(one)


def test_what_was_sent_to_a_service_that_has_another_port_now_goes_to_that() -> None:
    here = sent_to(entry("set head", body="{}", url="http://127.0.0.1:1/v2/x"), "http://[::1]:2")
    assert shlex.split(as_curl(here))[-1] == "http://[::1]:2/v2/x"
    assert sent_to(entry("remote add", url=""), "http://h").url == ""


@given(st.text(), st.lists(ids, min_size=1, max_size=2).map(tuple))
def test_curl_has_the_whole_body_in_a_here_document_or_there_is_none(
    kept: str, omitted: tuple[str, ...]
) -> None:
    one = entry("submit", body=json.dumps({"x": kept}), omitted=omitted)
    assert as_curl(one) == ""
    rest = {name: [kept, "$HOME `id` BODY"] for name in omitted}
    assert as_curl(one, {}) == ""
    line, body, end, after = as_curl(one, {**rest, "other": 1}).split("\n")
    assert shlex.split(line)[-1] == "<<BODY"
    assert "--data-binary @-" in line
    assert (end, after) == ("BODY", "")
    assert json.loads(body) == {"x": kept} | rest


@given(ids, st.text(), st.text(), st.booleans(), st.sampled_from(VERBS[:6]))
def test_python_is_a_program_with_these_literals(
    model: str, subject: str, after: str, local: bool, verb: str
) -> None:
    one = entry(verb, model=model, subject=subject, after=after, local=local)
    text = as_python(one)
    assert text.isascii()
    tree = ast.parse(text)
    literals = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    meant = {
        "set head": {model, after},
        "fork": {model, subject},
        "pin": {model, subject},
        "unpin": {model, subject},
        "cancel": {subject},
        "resume": {subject},
    }[verb]
    assert meant <= literals
    assert literals - meant <= {True, False, None}


@pytest.mark.parametrize("verb", VERBS)
def test_what_has_no_command_has_none(verb: str) -> None:
    one = entry(verb, source="tasks.jsonl")
    assert bool(as_hud_tui(one)) is (verb in REPEATED)
    assert bool(as_hud(one)) is (verb in OF_HUD)
    assert bool(as_python(one)) is (verb in VERBS[:6])
    assert as_curl(one)
    assert document(one)["commands"] == {
        "hud_tui": as_hud_tui(one),
        "hud": as_hud(one),
        "curl": as_curl(one),
        "python": as_python(one),
    }


@pytest.mark.parametrize("value", [[1], "x", 5, None])
def test_a_body_with_what_no_program_sent_gives_no_flags(value: object) -> None:
    body = json.dumps({"parameters": value, "options": value, "config": {"parameters": value}})
    for verb, command in (("submit", "run"), ("train", "train"), ("evaluate", "eval")):
        words = as_hud_tui(entry(verb, body=body, source="env.py")).split()
        assert {*words} - {"--checkpoint=base", "-y"} == {
            *("hud-tui", "--headless", command, "--model=m", "env.py")
        }


def test_what_hud_tui_can_do_too_is_a_command_of_its_own() -> None:
    parameters = {"steps": 60, "group_size": 8, "learning_rate": 3e-4, "unknown": 1}
    update = {"loss_fn_config": {"beta": 0.1, "x": 1e-9}, "norm_adv_by_std": False, "eps": 1e-6}
    parameters |= update
    body = json.dumps({"config": {"parameters": parameters}})
    tasks = {"source": "-a b.jsonl", "digest": "0a1b", "left_out": ("x y", "-z")}
    one = entry("submit", model="-m", body=body, omitted=("dataset",), local=True, **tasks)
    args = PARSER.parse_args(shlex.split(as_hud_tui(one))[1:])
    assert (args.command, args.source, args.model, args.yes) == ("run", "-a b.jsonl", "-m", True)
    assert (args.digest, args.leave_out) == ("0a1b", ["x y", "-z"])
    assert (args.steps, args.group_size, args.learning_rate) == (60, 8, 3e-4)
    assert args.local
    assert {name: vars(args)[name] for name in update} == update
    args = PARSER.parse_args(shlex.split(as_hud_tui(entry("resume", subject="-j")))[1:])
    assert (args.command, args.job, args.resume, args.yes) == ("jobs", "-j", True, True)


@given(ids, ids, st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_an_evaluation_is_repeated_by_a_command(model: str, checkpoint: str, source: str) -> None:
    given = {"samples": 8, "max_tokens": 20, "temperature": 0.5, "seed": 3, "solved_at": 0.9}
    body = json.dumps({"split": "train", "parameters": given})
    omitted = ("tasks",) if source else ()
    more = {"body": body, "omitted": omitted, "source": source, "local": True}
    said = as_hud_tui(entry("evaluate", model=model, before=checkpoint, **more))
    args = PARSER.parse_args(shlex.split(said)[1:])
    assert (args.command, args.model, args.checkpoint) == ("eval", model, [checkpoint])
    assert (args.source or "", args.split, args.local) == (source, "train", True)
    assert {name: vars(args)[name] for name in given} == given
    of_base = PARSER.parse_args(shlex.split(as_hud_tui(entry("evaluate")))[1:])
    assert of_base.checkpoint == ["base"]


def test_a_fork_from_a_checkpoint_is_no_hud_command_and_on_hud_itself_no_url_is_said() -> None:
    one = entry("fork", body='{"checkpoint_id": "c"}')
    assert as_hud(one) == ""
    assert as_hud_tui(one) == "hud-tui --headless fork --name=s --checkpoint=c -y m"
    assert "client.fork('m', 's', 'c')" in as_python(one)
    one = entry("set head", url="https://api.hud.ai/v2/models/m/head")
    assert as_hud(one) == "hud models head --set=a --yes m"
    assert "read_settings()" in as_python(one)


def test_a_command_names_the_directories_that_the_log_is_in() -> None:
    one = entry("cancel", subject="j", local=True)
    said = as_hud_tui(one, "--state-dir '/a b'")
    assert said == "hud-tui --headless --local --state-dir '/a b' jobs --cancel -y j"
    assert document(one, "--state-dir /s")["commands"]["hud_tui"].startswith(  # type: ignore[index]
        "hud-tui --headless --local --state-dir /s jobs "
    )
