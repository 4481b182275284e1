"""Trials: a recipe, a seed and a device. Here is what one is called; `repro.engine` runs it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from repro import source
from repro.errors import UserError
from repro.recipe import Recipe


@dataclass(frozen=True)
class Trial:
    """One recipe with one seed on one device.

    Attributes:
        device: cpu, cuda or cuda:N.
        claim, cell: labels for progress; they are no part of the identity.
        timed: measures time: runs with nothing beside it; its record belongs to one processor or GPU model.
        start: a trial that trains this one's first stages, with all else equal: this one goes on from the
            last checkpoint it had. No part of the identity: metrics and validation are the same without it,
            the points of the training curve stand for other steps.
        kept: another trial starts from this one, so its last checkpoint is kept.

    Raises:
        UserError: a device that does not exist, or a seed below 0.
    """

    recipe: Recipe
    seed: int
    device: str = "cpu"
    claim: str = ""
    cell: str = ""
    timed: bool = False
    start: Trial | None = None
    kept: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise UserError(f"the device {self.device!r} is unknown; give cpu, cuda or cuda:N.")
        if self.seed < 0:
            raise UserError(f"the seed {self.seed} is negative; give a whole number of at least 0.")

    @property
    def kind(self) -> str:
        """Kind of device: cpu or cuda."""
        return self.device.partition(":")[0]

    @cached_property
    def device_class(self) -> str:
        """The kind of device; for a timed trial the processor or GPU model."""
        if not self.timed:
            return self.kind
        return processor() if self.kind == "cpu" else gpu(self.device)

    @cached_property
    def identity(self) -> str:
        """16 hexadecimal digits of recipe, seed and device class."""
        return _short([self.recipe.to_plain(), self.seed, self.device_class], 16)

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """File → digest of the code that the recipe reaches, as this process first read it."""
        return source.fingerprint(self.recipe, source.root())

    @cached_property
    def fingerprint(self) -> str:
        """12 hexadecimal digits of `sources`."""
        return _short(self.sources, 12)

    @property
    def key(self) -> str:
        """Name of the trial's record: `<identity>-<fingerprint>`."""
        return f"{self.identity}-{self.fingerprint}"


def _short(value: object, digits: int) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """Where a running trial stands.

    Attributes:
        stage: stage it is in, from 0.
        step, steps: steps done of at most so many, over all stages.
        metric_name, metric: the latest number: of the validation where there is one, else the loss.
        started, updated: seconds since 1970.
        seconds_left: at the present rate if it does not stop early; None before a rate is known.
        pid: process that runs it.
    """

    key: str
    claim: str
    cell: str
    seed: int
    stage: int
    step: int
    steps: int
    metric_name: str
    metric: float | None
    started: float
    updated: float
    seconds_left: float | None
    pid: int


@cache
def processor() -> str:
    """Return the model of the processor."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(errors="replace"), re.MULTILINE)
        if found:
            return found.group(1).strip()
    return platform.processor() or platform.machine()


def gpu(device: str) -> str:
    """Return the model of a CUDA device.

    Raises:
        UserError: there is no such device.
    """
    import torch

    index = int(device.partition(":")[2] or 0)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        raise UserError(f"there is no device {device} here ({count} CUDA devices found); use --device cpu.")
    return torch.cuda.get_device_name(index)


@cache
def git_state() -> Mapping[str, Any]:
    """Return commit and whether tracked files differ from it; commit is "unknown" outside a git checkout."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(source.root()), *arguments], capture_output=True, text=True, timeout=20
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD") or "unknown", "dirty": bool(status)}


def environment(device: str) -> dict[str, Any]:
    """Return what was true of this machine: versions, processor, GPU, git state.

    Raises:
        UserError: there is no such device.
    """
    import torch

    cuda = device.startswith("cuda")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": str(torch.__version__),
        "numpy": version("numpy"),
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": gpu(device) if cuda else None,
        "cuda": torch.version.cuda if cuda else None,
        "git": dict(git_state()),
    }
