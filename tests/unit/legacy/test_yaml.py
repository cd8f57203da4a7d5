"""YAML within bounds: what is read, and what is refused without doing anything."""

import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hud_tui.errors import HudUsage
from hud_tui.legacy import yaml
from hud_tui.legacy.yaml import MAX_BYTES, MAX_DEPTH, field_name, read_yaml, round_trip, writable

LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
HOSTILE = {
    "a tag that names code": ("a: !!python/object/apply:os.system [ls]", "line 1: the tag"),
    "a tag of one's own": ("a:\n  !evil b", "line 2: the tag"),
    "bytes": ("a: !!binary eA==", "line 1: the tag"),
    "a billion laughs": (LAUGHS, "more than 20000 values"),
    "an alias of itself": ("a: &a [*a]", "is not defined before it"),
    "an alias of nothing": ("a: *b", "is not defined before it"),
    "a merge that laughs": (LAUGHS.replace("a11:", "<<:"), "more than 20000 values"),
    "merges of merges": (
        "a: &a {x: 1}\n" + "".join(f"b{n}:\n  <<: *a\n" for n in range(300)),
        "line 403: more than 200 merges",
    ),
    "20 000 anchors": (
        "a:\n" + "".join(f" k{n}: &a{n} 1\n" for n in range(20_000)),
        "line 10001: more than 20000 values",
    ),
    "nesting": ("[" * 5000, "nested more than 50 deep"),
    "nested blocks": ("\n".join(" " * n + "a:" for n in range(200)), "nested more than 50 deep"),
    "two documents": ("--- 1\n--- 2", "another document"),
    "a key twice": ("key: sk-secret\nkey: sk-other", "line 2 column 1: not YAML: duplicate key"),
    "a key that is no text": ("? [a]\n: 1", "field (the whole): a key is not text"),
    "a number as key": ("a: {1: x}", "field a: a key is not text"),
    "not a number": ("a: [1, .nan]", "field a[1]: expected a finite number"),
    "infinity": ("a: 1e999", "field a: expected a finite number"),
    "a date that is none": ("a: 2025-99-99", "a number or date that cannot be read"),
    "a number of 5000 digits": ("a: " + "9" * 5000, "a number or date that cannot be read"),
    "half a surrogate": ('a: "\\ud800"', "lone surrogate"),
    "NUL": ("a: \x00", "not YAML"),
    "an open quote": ('a: "b\nc: d', "not YAML"),
    "a tab": ("a:\n\tb: 1", "line 2 column 1: not YAML"),
    "an unknown version": ("%YAML 9.9\n--- a", "not YAML"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str) -> None:
    text, message = HOSTILE[name]
    with pytest.raises(HudUsage) as error:
        read_yaml("f.yaml", text.encode())
    assert message in str(error.value)
    assert str(error.value).startswith("f.yaml")
    assert "secret" not in str(error.value)


def test_places_are_named_and_what_is_too_large_or_no_text() -> None:
    with pytest.raises(HudUsage, match="larger than 512 kB"):
        read_yaml("f", b"a" * (MAX_BYTES + 1))
    with pytest.raises(HudUsage, match="byte 3: not UTF-8"):
        read_yaml("f", b"a: \xff")

    document = read_yaml("f.yaml", b"a:\n  b:\n  - x\n  - y: 1\n")
    assert document.where(("a", "b", 1, "y")) == "f.yaml line 4"
    assert document.where(("a", "b", 0)) == "f.yaml line 3"
    assert document.where(("a", "nothing", 3)) == "f.yaml line 1"
    assert field_name(("a", "b", 1, "y\x1b")) == "a.b[1].y␛"
    assert str(document.wrong(("a",), "expected text")) == "f.yaml line 1: field a: expected text"


@pytest.mark.parametrize(("aliases", "refused"), [(2, False), (3, True)])
def test_an_alias_counts_as_what_it_stands_for(
    monkeypatch: pytest.MonkeyPatch, aliases: int, refused: bool
) -> None:
    """Ten values and their list, its key, and for each alias a key and those eleven."""
    monkeypatch.setattr(yaml, "MAX_NODES", 1 + 12 + 2 * 12)
    text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    text += "".join(f"b{n}: *a\n" for n in range(aliases))
    if refused:
        with pytest.raises(HudUsage, match=f"line {aliases + 1}: more than 37 values"):
            read_yaml("f", text.encode())
    else:
        assert len(read_yaml("f", text.encode()).value) == aliases + 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# only a comment\n", None),
        ("\ufeffa: 1\r\nb: [x, 'y']\r\n", {"a": 1, "b": ["x", "y"]}),
        ('{\n\t"a": {"b": null}}', {"a": {"b": None}}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: &x {b: 1}\nc:\n  <<: *x\n  d: 2", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ("a: 2025-01-02", {"a": "2025-01-02"}),
        ("a: 1.0.0\nb: 1.0\nc: yes\nd: true", {"a": "1.0.0", "b": 1.0, "c": "yes", "d": True}),
        ("a: |\n  b\n  c\n", {"a": "b\nc\n"}),
    ],
)
def test_what_is_read(text: str, value: Any) -> None:
    assert read_yaml("f", text.encode()).value == value


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(VALUES)
def test_what_pyyaml_s_successor_writes_is_read_back(value: Any) -> None:
    from io import StringIO

    out = StringIO()
    round_trip().dump(writable({"value": value}), out)
    assert read_yaml("f", out.getvalue().encode()).value == {"value": value}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.text(st.sampled_from(string.ascii_letters + "\n\t -:[]{}&*!|>'\"%@`#,?\x00é1.")) | TEXT)
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    refused = None
    try:
        read_yaml("f.yaml", text.encode())
    except HudUsage as error:
        refused = error.message
    assert refused is None or refused.startswith("f.yaml")


@given(st.integers(MAX_DEPTH - 5, MAX_DEPTH + 5))
@settings(max_examples=11, deadline=None, derandomize=True)
def test_the_depth_that_is_allowed(depth: int) -> None:
    text = "[" * depth + "]" * depth
    if depth <= MAX_DEPTH:
        assert read_yaml("f", text.encode()).value is not None
    else:
        with pytest.raises(HudUsage):
            read_yaml("f", text.encode())
