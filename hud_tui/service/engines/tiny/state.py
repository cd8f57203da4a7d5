"""Policies on disk: one safetensors file with weights and, once trained, Adam's moments.

A base holds fp16 weights only; a thinned state fp32 weights only. A whole state holds fp32
weights, ``m.*``, ``v.*`` and t, so that loading it and going on is bit for bit the same as
never having stopped.
"""

import json
import os
from dataclasses import asdict
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from uuid import uuid4

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from hud_tui.service.engines.base import DiskFull, EngineError
from hud_tui.service.engines.tiny.optimiser import Moments
from hud_tui.service.engines.tiny.policy import Config, Weights, shapes


def save_base(path: Path, weights: Weights, config: Config) -> None:
    """Write weights as fp16, whole or not at all."""
    half = {name: weight.astype(np.float16) for name, weight in weights.items()}
    _write(path, save(half, _metadata(config)))


def save_state(directory: Path, weights: Weights, moments: Moments, config: Config) -> Path:
    """Write a state under a new name; it is whole on disk when this returns."""
    tensors: Weights = {**weights, "t": np.array(moments.t)}
    for prefix, part in (("m", moments.m), ("v", moments.v)):
        tensors |= {f"{prefix}.{name}": values for name, values in part.items()}
    path = directory / f"{uuid4().hex}.safetensors"
    _write(path, save(tensors, _metadata(config)))
    return path


def save_weights(directory: Path, weights: Weights, config: Config) -> Path:
    """Write fp32 weights without moments under a new name; whole on disk on return."""
    path = directory / f"{uuid4().hex}.safetensors"
    _write(path, save(weights, _metadata(config)))
    return path


def load(path: Path) -> tuple[Weights, Moments | None, Config]:
    """Read a base (no moments) or a state.

    Raises:
        EngineError: No such file, or it is cut off, foreign or of another shape.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        config = Config(**json.loads(metadata["config"]))
        weights = _part(tensors, config, "")
        if "t" not in tensors:
            return weights, None, config
        moments = Moments(_part(tensors, config, "m."), _part(tensors, config, "v."))
        moments.t = int(tensors["t"])
    except FileNotFoundError as error:
        raise EngineError(f"no such state: {path.name}") from error
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise EngineError(f"{path.name} is not a whole state of this engine: {error}") from error
    return weights, moments, config


def not_written(what: str, error: OSError) -> EngineError:
    """What is raised where a file could not be saved."""
    kind = DiskFull if error.errno in (ENOSPC, EDQUOT, EFBIG) else EngineError
    return kind(f"{what} could not be written: {error.strerror}")


def _metadata(config: Config) -> dict[str, str]:
    """One entry only: the order of several is random, and bytes are to be the same."""
    return {"config": json.dumps(asdict(config))}


def _part(tensors: Weights, config: Config, prefix: str) -> Weights:
    """The tensors under a prefix as float32 of the wanted shapes; ValueError where not."""
    part: Weights = {}
    for name, shape in shapes(config).items():
        tensor = tensors[prefix + name]
        if tensor.shape != shape:
            raise ValueError(f"{prefix + name} has shape {tensor.shape}, not {shape}")
        part[name] = tensor.astype(np.float32)
    return part


def _write(path: Path, body: bytes) -> None:
    """Write, fsync, rename into place, fsync the directory."""
    unfinished = path.with_suffix(f".{uuid4().hex}.tmp")
    try:
        with unfinished.open("xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
