"""The config file: what it changes, and what it refuses."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hud_tui.config import MOST_BYTES, Config, read_config
from hud_tui.errors import HudUsage
from hud_tui.rl.alarms.thresholds import Thresholds


def written(directory: Path, text: str | bytes) -> Path:
    body = text.encode() if isinstance(text, str) else text
    (directory / "config.toml").write_bytes(body)
    return directory


def test_without_a_file_all_is_as_it_comes(tmp_path: Path) -> None:
    assert read_config(tmp_path) == read_config(tmp_path / "none") == Config()


def test_what_the_file_leaves_out_stays(tmp_path: Path) -> None:
    text = "[alarms.zero_variance]\nwarn = 0.6\n[alarms.reward_collapse]\nsigmas = 3\n"
    found, usual = read_config(written(tmp_path, text)).alarms, Thresholds()
    assert (found.zero_variance.warn, found.reward_collapse.sigmas) == (0.6, 3.0)
    assert found.zero_variance.critical == usual.zero_variance.critical
    assert found.reward_collapse.hold == usual.reward_collapse.hold == 10
    assert found.kl_sampler == usual.kl_sampler


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[alarms.zero_variance]\nwarn = -1\n", "alarms.zero_variance.warn: "),
        ("[alarms.zero_variance]\nwarn = 'high'\n", "alarms.zero_variance.warn: "),
        ("[alarms.zero_variance]\nwarn = nan\n", "alarms.zero_variance.warn: "),
        ("[alarms.zero_variance]\nwarn = 0.8\n", "alarms.zero_variance: .*info < warn < critical"),
        ("[alarms.zero_spred]\nwarn = 0.8\n", "alarms.zero_spred: unknown detector"),
        ("[alarms.grad_norm]\nwarn = 0.8\n", "alarms.grad_norm.warn: unknown setting"),
        (
            "[alarms.grad_norm]\nhold = 0\n",
            "alarms.grad_norm.hold: expected 1 or more",
        ),
        ("alarms = 3\n", "alarms: expected a table"),
        ("[alarms]\ngrad_norm = 3\n", "alarms.grad_norm: expected a table"),
        ("[alarms.grad_norm]\nhold = 1.5\n", "hold: expected a whole number"),
        ("[alarms.grad_norm]\nenabled = 1\n", "enabled: expected true or false"),
        ("[alarms.entropy_collapse]\nfloor = 2\n", "floor: expected at most 1"),
        ("a = " + "[" * 100_000, "is not TOML"),
        ("[alarm]\n", "alarm: unknown table"),
        ("[alarms\n", "is not TOML: .*line 1"),
        (b"\xff\xfe", "cannot be read"),
        pytest.param(b"#" * (MOST_BYTES + 1), "larger than 1000000 bytes", id="large"),
        ('"\\u001b[31m" = 1\n', "␛"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(HudUsage, match=said) as error:
        read_config(written(tmp_path, text))
    assert str(tmp_path / "config.toml") in error.value.message
    assert "\x1b" not in error.value.message
    assert error.value.hint


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(max_size=60), st.binary(max_size=60)))
def test_no_file_does_more_than_be_refused(tmp_path: Path, text: str | bytes) -> None:
    body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    written(tmp_path, body)
    with contextlib.suppress(HudUsage):
        assert isinstance(read_config(tmp_path), Config)
