"""How many cores there are: what was asked for, the affinity mask, and quotas of control groups,
whose files lie in a folder of the test's own."""

import os
from pathlib import Path

import pytest

from hud_tui.cores import MOST_CORES, Cores, quota, read_cores
from hud_tui.errors import HudUsage

V1 = {"cpu.cfs_quota_us": "{}\n", "cpu.cfs_period_us": "100000\n"}


@pytest.fixture
def affinity(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The cores that this process may run on; the machine has 16."""
    mask = set(range(16))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: mask, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    return mask


def system(root: Path, groups: str, **files: str) -> Path:
    """A system whose process is in these groups."""
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def version_1(group: str, microseconds: int) -> dict[str, str]:
    folder = f"sys/fs/cgroup/{group}"
    return {f"{folder}/{name}": text.format(microseconds) for name, text in V1.items()}


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ("0::/\n", {}, None),
        # those around a group limit it, too
        (
            "0::/a/b\n",
            {
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/other/cpu.max": "100000 100000\n",
            },
            3.0,
        ),
        # both versions, as systemd mounts them together
        (
            "4:cpu,cpuacct:/a\n1:name=systemd:/a\n0::/a\n",
            {
                **version_1("cpu,cpuacct/a", 250_000),
                "sys/fs/cgroup/unified/a/cpu.max": "max 100000\n",
            },
            2.5,
        ),
        # a container of version 1, whose group has another path outside
        ("4:cpu:/docker/1f\n", version_1("cpu", 50_000), 0.5),
        ("4:cpu:/\n", version_1("cpu", -1), None),
        ("4:memory:/\n2:cpuset:/\n", version_1("cpu", 50_000), None),
    ],
)
def test_quotas(tmp_path: Path, groups: str, files: dict[str, str], cores: float | None) -> None:
    assert quota(system(tmp_path, groups, **files)) == cores


def test_a_system_without_groups_has_no_quota(tmp_path: Path) -> None:
    assert quota(tmp_path) is None


@pytest.mark.parametrize(
    ("used", "mask", "cores", "why"),
    [
        ("max", range(2), 2, "this process may run on 2 of 16 cores"),
        ("max", range(16), MOST_CORES, "at most 8, of 16 cores"),
        ("120000", range(16), 2, "a quota of 1.2 cores of processor time"),
        ("50000", range(16), 1, "a quota of 0.5 cores of processor time"),
        ("350000", range(3), 3, "this process may run on 3 of 16 cores"),
        ("1200000", range(16), MOST_CORES, "at most 8, of 16 cores"),
    ],
)
def test_the_least_of_affinity_quota_and_most(
    tmp_path: Path, affinity: set[int], used: str, mask: range, cores: int, why: str
) -> None:
    affinity.intersection_update(mask)
    root = system(tmp_path, "0::/\n", **{"sys/fs/cgroup/cpu.max": f"{used} 100000\n"})
    assert read_cores(None, {}, root) == Cores(cores, why)


def test_what_is_asked_for_comes_first(tmp_path: Path, affinity: set[int]) -> None:
    root = system(tmp_path, "0::/\n", **{"sys/fs/cgroup/cpu.max": "100000 100000\n"})
    assert read_cores("3", {"HUD_TUI_CORES": "2"}, root) == Cores(3, "--cores", True)
    assert read_cores(None, {"HUD_TUI_CORES": "2"}, root) == Cores(2, "HUD_TUI_CORES", True)
    assert read_cores(None, {"HUD_TUI_CORES": " "}, tmp_path / "nothing").count == MOST_CORES


def test_what_is_no_number_is_refused() -> None:
    for text in ("0", "-1", "65", "all", "1.5"):
        with pytest.raises(HudUsage, match="--cores is not a number from 1 to 64"):
            read_cores(text, {})
    with pytest.raises(HudUsage, match="HUD_TUI_CORES"):
        read_cores(None, {"HUD_TUI_CORES": "many"})
