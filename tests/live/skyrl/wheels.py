"""Python packages from a folder of wheels: what is needed beyond what is installed, and missing.

Only `packaging` (or pip's copy of it) and the standard library are needed.
"""

import email
import importlib.metadata
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

try:
    from packaging.requirements import Requirement
    from packaging.tags import Tag, compatible_tags, cpython_tags, sys_tags
    from packaging.utils import canonicalize_name, parse_wheel_filename
except ImportError:
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.tags import Tag, compatible_tags, cpython_tags, sys_tags
    from pip._vendor.packaging.utils import canonicalize_name, parse_wheel_filename

LARGE = (
    *("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "tensorstore", "torch", "triton"),
    *("numpy", "scipy", "transformers", "tokenizers", "huggingface-hub", "hf-xet", "safetensors"),
    *("pillow", "regex", "protobuf"),
)
"""Packages that the machine has to bring: JAX, torch, and what they are used with."""
ANY = "any"
CUDA = ("nvidia-", "cuda-", "jax-cuda", "cupy")
MOST_MB = 60
WITHOUT = frozenset({"skyrl"})
"""Packages whose own requirements are not followed: SkyRL's are for training without its server."""


@dataclass
class Needs:
    """What one environment needs."""

    wheels: dict[str, Path] = field(default_factory=dict)
    """By the package's name."""
    missing: list[str] = field(default_factory=list)
    """Requirements that nothing satisfies."""

    @property
    def mb(self) -> float:
        return sum(wheel.stat().st_size for wheel in self.wheels.values()) / 1e6


def installed_here() -> dict[str, str]:
    """Version of each package that this interpreter sees, by its name."""
    return {
        canonicalize_name(distribution.name): distribution.version
        for distribution in importlib.metadata.distributions()
        if distribution.name
    }


PLATFORMS = [f"manylinux_2_{glibc}_x86_64" for glibc in (39, 35, 34, 31, 28, 27, 24, 17, 12, 5)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"]


@dataclass(frozen=True)
class Target:
    """The Python that the wheels are for."""

    tags: frozenset[Tag]
    markers: Mapping[str, str]

    @classmethod
    def here(cls) -> "Target":
        return cls(frozenset(sys_tags()), {})

    @classmethod
    def of(cls, python: str) -> "Target":
        """CPython of a version, e.g. ``3.12``, on Linux."""
        major, minor = map(int, python.split("."))
        own = cpython_tags((major, minor), platforms=PLATFORMS)
        any_ = compatible_tags((major, minor), f"cp{major}{minor}", PLATFORMS)
        markers = {"python_version": python, "python_full_version": f"{python}.0"}
        return cls(frozenset([*own, *any_]), markers)


def needs(
    roots: Iterable[str],
    folder: Path | None,
    installed: Mapping[str, str],
    target: Target | None = None,
) -> Needs:
    """The wheels of a folder that requirements need, and theirs, beyond what is installed."""
    target = target or Target.here()
    found, seen = Needs(), set[str]()
    wheels = sorted(folder.glob("*.whl")) if folder is not None else []
    left = [Requirement(root) for root in roots]
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        if name in found.wheels:
            left += _requirements(found.wheels[name], wanted.extras, target)
        elif _has(installed, name, wanted):
            if wanted.extras and target.markers == {}:
                left += _of_extras(_required_here(name), wanted.extras, target)
        elif (wheel := _wheel(wheels, name, wanted, target)) is not None:
            found.wheels[name] = wheel
            if name not in WITHOUT:
                left += _requirements(wheel, wanted.extras, target)
        else:
            found.missing.append(f"{wanted.name}{wanted.specifier}")
    return found


def _has(installed: Mapping[str, str], name: str, wanted: Requirement) -> bool:
    """Whether a package is installed, in a version that fits or is taken as it is."""
    if name not in installed:
        return False
    return installed[name] == ANY or wanted.specifier.contains(installed[name], prereleases=True)


def _required_here(name: str) -> list[str]:
    return importlib.metadata.distribution(name).requires or []


def _wheel(wheels: list[Path], name: str, wanted: Requirement, target: Target) -> Path | None:
    """The newest wheel of a package that fits a requirement and the target."""
    fitting = []
    for wheel in wheels:
        package, version, _, its_tags = parse_wheel_filename(wheel.name)
        if package == name and its_tags & target.tags and wanted.specifier.contains(version):
            fitting.append((version, wheel))
    return max(fitting)[1] if fitting else None


def _requirements(wheel: Path, extras: Iterable[str], target: Target) -> list[Requirement]:
    """What a wheel requires, with these extras."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        lines = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    return _of_extras(lines, ("", *extras), target)


def _of_extras(lines: Iterable[str], extras: Iterable[str], target: Target) -> list[Requirement]:
    wanted = [Requirement(line) for line in lines]
    return [
        one
        for one in wanted
        if any(
            one.marker is None or one.marker.evaluate({**target.markers, "extra": extra})
            for extra in extras
        )
    ]


def refuse(every: Iterable[Needs]) -> str:
    """Why these wheels are not used; empty if they are."""
    wheels = {wheel for each in every for wheel in each.wheels.values()}
    missing = sorted({one for each in every for one in each.missing})
    if missing:
        return f"missing wheels: {' '.join(missing)}"
    cuda = sorted(one.name for one in wheels if one.name.lower().replace("_", "-").startswith(CUDA))
    if cuda:
        return f"CUDA comes with the machine's JAX, not as wheels: {' '.join(cuda)}"
    mb = sum(wheel.stat().st_size for wheel in wheels) / 1e6
    return f"the wheels have {mb:.0f} MB: {MOST_MB} at most" if mb > MOST_MB else ""


def fetch(roots: Iterable[str], folder: Path, python: str, there: Iterable[str] = ()) -> None:
    """Download the wheels that `needs` misses, for a Python on a machine that brings LARGE and
    what else is `there`."""
    folder.mkdir(parents=True, exist_ok=True)
    installed, target = dict.fromkeys((*LARGE, *there), ANY), Target.of(python)
    tried = set[str]()
    while missing := sorted({*needs(roots, folder, installed, target).missing} - tried):
        for one in missing:
            tried.add(one)
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
            command += ["--only-binary=:all:", "--python-version", python, "--implementation", "cp"]
            command += [word for name in PLATFORMS for word in ("--platform", name)]
            command += ["-d", str(folder)]
            subprocess.run([*command, one], check=False)


def install(python: Path, wheels: Iterable[Path]) -> None:
    """Install wheels, and nothing else, into an environment."""
    files = [str(wheel) for wheel in wheels]
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    command += ["--no-index", "--no-deps", "--no-compile", "--ignore-requires-python"]
    if files:
        subprocess.run([*command, *files], check=True)
