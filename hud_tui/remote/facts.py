"""Facts about a machine and its load: read by one script, as ``name=value`` lines."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hud_tui.remote.ssh import Ssh, quote
from hud_tui.rl.text import counted, one_line, size

BOOT_CLOCK = """\
boot() { cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo none; }
uptime_s() { cut -d. -f1 /proc/uptime 2>/dev/null || date +%s; }
"""
"""Functions of scripts: which boot of the machine it is, and the seconds since then."""
SCRIPT = """\
say() { printf '%s=%s\\n' "$1" "$2"; }
say os "$(uname -s)"; say arch "$(uname -m)"; say home "$HOME"; say user "$(id -un)"
say cores "$(getconf _NPROCESSORS_ONLN 2>/dev/null)"
say memory_kb "$(sed -n 's/^MemTotal: *\\([0-9]*\\).*/\\1/p' /proc/meminfo 2>/dev/null)"
case $ROOT in "~" | "~/"*) ROOT=$HOME${ROOT#"~"} ;; esac
while [ ! -d "$ROOT" ]; do  # what is to be made there will be on the disk of its parent
  case $ROOT in */*) ROOT=${ROOT%/*} ;; *) ROOT=$HOME ;; esac
  [ -n "$ROOT" ] || ROOT=/
done
say free_kb "$(df -Pk "$ROOT" | awk 'NR==2 {print $4}')"
PATH="$HOME/.local/bin:$HOME/.cargo/bin:$PATH"
for tool in uv tmux curl wget git nvcc; do say "$tool" "$(command -v $tool 2>/dev/null)"; done
say python "$(python3 -V 2>/dev/null)"
if command -v nvidia-smi >/dev/null 2>&1; then
  say cuda "$(nvidia-smi | sed -n 's/.*CUDA Version: *\\([0-9.]*\\).*/\\1/p' | head -n 1)"
  nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,utilization.gpu \
    --format=csv,noheader,nounits 2>/dev/null | while read -r line; do say gpu "$line"; done
fi
if command -v systemctl >/dev/null 2>&1 && systemctl --user show-environment >/dev/null 2>&1
then say systemd yes; fi
"""
MOST_GPUS = 256


@dataclass(frozen=True)
class Gpu:
    name: str
    driver: str
    total_mb: int
    used_mb: int
    use: int
    """Percent of the last second with computation."""


@dataclass(frozen=True)
class Facts:
    """The facts; None or empty if unknown."""

    os: str = ""
    arch: str = ""
    home: str = ""
    user: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    free_bytes: int | None = None
    """Free space on the disk of our folder there, bytes."""
    cuda: str = ""
    """Newest CUDA version that the driver supports."""
    gpus: tuple[Gpu, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)
    """Paths of uv, tmux, curl …; the version of python; ``systemd``: whether the user has an
    instance."""

    @property
    def gpu_label(self) -> str:
        """E.g. ``2×H100``; ``CPU`` without one."""
        if not self.gpus:
            return "CPU"
        name = short_gpu(self.gpus[0].name)
        return f"{len(self.gpus)}×{name}"

    @property
    def gpu_bytes(self) -> int:
        return sum(gpu.total_mb for gpu in self.gpus) * 2**20

    def lines(self) -> list[str]:
        gpus = [f"{gpu.name}, {gpu.total_mb / 1024:.0f} GB" for gpu in self.gpus[:1]]
        more = f" ×{len(self.gpus)}, driver {self.gpus[0].driver}, CUDA {self.cuda}" if gpus else ""
        tools = [name for name, where in self.tools.items() if where and name != "python"]
        return [
            f"{self.os} {self.arch}, {counted(self.cores or 0, 'core')},"
            f" {size(self.memory_bytes)} memory, {size(self.free_bytes)} of disk free",
            gpus[0] + more if gpus else "no NVIDIA GPU",
            f"{self.tools.get('python') or 'no python3'}; has {', '.join(tools) or 'no tools'}",
        ]


TOOLS = ("uv", "tmux", "curl", "wget", "git", "nvcc", "python", "systemd")


def short_gpu(name: str) -> str:
    """A GPU's name without maker and memory: ``NVIDIA H100 80GB HBM3`` is ``H100``."""
    words = [word for word in name.replace("-", " ").replace("_", " ").split() if word]
    named = [word for word in words if word not in ("NVIDIA", "GeForce", "Tesla")]
    bare = [word for word in named if not word.endswith("GB") and word not in ("PCIe", "HBM3")]
    return one_line(" ".join(bare[:2] if bare[:1] == ["RTX"] else bare[:1]) or name, 20)


async def fetch_facts(ssh: Ssh, root: str = "") -> Facts:
    """Read a machine's facts. `root`: our folder there, which need not exist yet; empty for one in
    the home. Raises HudError: as `Ssh.check`."""
    return read_facts(await ssh.check(f"ROOT={quote(root or '~')}\n{SCRIPT}"))


def read_facts(text: str) -> Facts:
    """Facts from the script's output; unexpected lines are ignored."""
    values: dict[str, str] = {}
    gpus: list[Gpu] = []
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if name == "gpu" and len(gpus) < MOST_GPUS:
            gpus += _gpu(value)
        elif equals:
            values[name] = one_line(value.strip(), 400)
    memory, free = read_number(values.get("memory_kb")), read_number(values.get("free_kb"))
    return Facts(
        **{name: values.get(name, "") for name in ("os", "arch", "home", "user", "cuda")},
        cores=read_number(values.get("cores")),
        memory_bytes=None if memory is None else memory * 1024,
        free_bytes=None if free is None else free * 1024,
        gpus=tuple(gpus),
        tools={name: values.get(name, "") for name in TOOLS},
    )


def _gpu(line: str) -> list[Gpu]:
    words = [word.strip() for word in line.split(",")]
    if len(words) != 5:
        return []
    total, used, use = (read_number(word) or 0 for word in words[2:])
    return [Gpu(one_line(words[0], 60), one_line(words[1], 30), total, used, use)]


def read_number(text: str | None) -> int | None:
    """A whole number as a machine prints it; None if it is none, or too long to be meant."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
