"""Every campaign, small; ``--campaign-size N`` for another size."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.campaigns.campaign import Campaign, Plan, Report

SEED = 1
FRAME = ("__init__", "__main__", "campaign", "test_small")
NAMES = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in FRAME)


async def _find(plan: Plan, report: Report) -> None:
    for number in plan.rounds(report):
        if number == 2:
            report.found("crashes", "round 2")


def campaign(name: str) -> Campaign | None:
    """A module's campaign; None where it has what several need."""
    found = getattr(import_module(f"tests.campaigns.{name}"), "CAMPAIGN", None)
    return found if isinstance(found, Campaign) else None


@pytest.mark.parametrize("name", [name for name in NAMES if campaign(name)])
def test_campaign_finds_nothing(name: str, request: pytest.FixtureRequest) -> None:
    played = campaign(name)
    assert played is not None
    count = request.config.getoption("--campaign-size") or played.small
    report = played.run(Plan(count, SEED, options=played.usual()))
    assert report.done >= count
    assert report.clean, "\n".join(report.faults)


def test_a_fault_is_counted_and_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert Campaign("toy", "rounds", 5, 1, _find).main(["--seed", "7"]) == 1
    out, err = capsys.readouterr()
    line = out.strip().splitlines()[-1]
    assert line.startswith("campaign toy: 5 rounds in 0 s, seed 7, ")
    assert line.endswith(", 1 crashes, 0 hangs")
    assert "crashes: round 2" in err


def test_count_and_minutes_say_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    toy = Campaign("toy", "rounds", 5, 1, _find)
    assert toy.main(["--count", "2"]) == 0
    assert toy.main(["--minutes", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("campaign toy: 2 rounds")
    assert lines[1].startswith("campaign toy: 0 rounds")
