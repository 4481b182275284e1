"""What a recipe's training would cost: FLOPs and memory of one step of each stage, counted and not timed.

Tasks draw batches of different lengths: DRAWS batches are drawn, FLOPs are counted on the one of middle size
and bytes on the largest. A step (sample, forward, backward) runs for real on the first one and two sequences,
and FLOPs and bytes are carried on in a straight line to the stage's batch. What cannot run so is counted on
fake tensors, which have shapes but no numbers.
"""

from __future__ import annotations

import multiprocessing
import os
import weakref
from contextlib import nullcontext, suppress
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from repro.recipe import Recipe, Stage

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from torch import nn

LIMIT_S = 180.0  # for counting one recipe
DRAWS = 32
RATES = {"cpu": 1e10, "cuda": 1e13}  # FLOP/s that a trial is taken to reach: one core, one GPU


@dataclass(frozen=True)
class Estimate:
    """What counting found.

    Attributes:
        flops: of all training steps of one trial; measures are not in it. None: unknown.
        memory: bytes at most: parameters, gradients, optimiser moments, batch and live intermediate values.
            None: unknown.
        how: how it was counted, or why it is unknown.
    """

    flops: float | None
    memory: int | None
    how: str

    def seconds(self, rate: float) -> float | None:
        """Return the seconds that the FLOPs take at `rate` FLOP/s, or None if they are unknown."""
        return None if self.flops is None else self.flops / rate

    def after(self, start: Estimate, cell: str) -> Estimate:
        """Return what is left when the trial goes on from the end of `start`, the estimate of `cell`."""
        flops = None if self.flops is None or start.flops is None else self.flops - start.flops
        return Estimate(flops, self.memory, f"{self.how}; after the stages of {cell}")


def count(recipe: Recipe) -> Estimate:
    """Count one step of each stage; what goes wrong is the `how` of an unknown estimate."""
    if not recipe.stages:
        return Estimate(0.0, None, "no training")
    flops, memory, hows = 0.0, 0, []
    for stage in recipe.stages:
        alike = repr((recipe.task, recipe.model, stage.algorithm, stage.batch, stage.optimiser))
        try:
            if alike not in _counted:
                _counted[alike] = _line(recipe, stage)
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            return Estimate(None, None, f"unknown: {type(error).__name__}: {text}")
        step_flops, step_bytes, how = _counted[alike]
        flops += step_flops * stage.steps
        memory = max(memory, round(step_bytes))
        hows.append(how)
    return Estimate(flops, memory, ", then ".join(dict.fromkeys(hows)))


_counted: dict[str, tuple[float, float, str]] = {}  # arms of a claim have many stages alike


def _line(recipe: Recipe, stage: Stage) -> tuple[float, float, str]:
    """Return FLOPs and bytes of one step at the stage's batch, and how they were counted."""
    middle, largest = _seeds(recipe)
    flops, size, how = _at(recipe, stage, middle)
    if largest != middle:
        _, size, _ = _at(recipe, stage, largest)
        how += "; lengths vary"
    return flops, size, how


def _seeds(recipe: Recipe) -> tuple[int, int]:
    """Return the seeds of the batch of middle size and of the largest, of DRAWS; equal if all are alike."""
    import torch

    from repro.engine import build

    assert recipe.task is not None
    task = build(recipe.task)
    draws = (task.sample(1, torch.Generator().manual_seed(seed)) for seed in range(DRAWS))
    sizes = [sum(t.numel() for t in draw.values()) for draw in draws]
    order = sorted(range(DRAWS), key=sizes.__getitem__)
    return (0, 0) if len(set(sizes)) == 1 else (order[DRAWS // 2], order[-1])


def _at(recipe: Recipe, stage: Stage, seed: int) -> tuple[float, float, str]:
    """Return FLOPs and bytes of one step on the batch of a seed, and how they were counted."""
    try:
        one, two = _step(recipe, stage, 1, seed, fake=False), _step(recipe, stage, 2, seed, fake=False)
    except Exception:  # too large for this machine, or not made for such batches
        return *_step(recipe, stage, stage.batch, seed, fake=True), "fake tensors"
    flops, size = (a + (stage.batch - 1) * (b - a) for a, b in zip(one, two, strict=True))
    return flops, size, "real steps at batch 1 and 2"


class Counter:
    """Counts in a process of its own, so that neither a crash nor a slow model stops the caller."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        """Allow `limit_s` seconds a recipe."""
        self._limit_s = limit_s
        self._process: BaseProcess | None = None
        self._known: dict[str, Estimate] = {}

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def count(self, recipe: Recipe) -> Estimate:
        """Return what `count` finds in time; equal recipes are counted once."""
        if recipe.digest not in self._known:
            self._known[recipe.digest] = self._ask(recipe) if recipe.stages else count(recipe)
        return self._known[recipe.digest]

    def _ask(self, recipe: Recipe) -> Estimate:
        fresh = self._process is None
        if fresh:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        try:
            if fresh:
                self._pipe.recv()  # it has imported torch
            self._pipe.send(recipe.to_plain())
            if self._pipe.poll(self._limit_s):
                return Estimate(*self._pipe.recv())
            how = f"unknown: counting took longer than {self._limit_s:g} s"
        except (EOFError, OSError):
            how = "unknown: counting crashed"
        self._stop()
        return Estimate(None, None, how)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.join()
            self._pipe.close()
            self._process = None


def _serve(pipe: Connection) -> None:
    """Count what comes through the pipe until it closes; torch's last words on a crash go nowhere."""
    from torch._subclasses import fake_tensor  # noqa: F401  (slow to import)

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    pipe.send("ready")
    with suppress(EOFError):
        while True:
            pipe.send(astuple(count(Recipe.from_plain(pipe.recv()))))


def _step(recipe: Recipe, stage: Stage, batch: int, seed: int, fake: bool) -> tuple[float, float]:
    """Return FLOPs and bytes of one training step."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from repro.engine import build

    assert recipe.task is not None and recipe.model is not None
    data = build(recipe.task).sample(batch, torch.Generator().manual_seed(seed))
    mode = FakeTensorMode() if fake else None
    with torch.random.fork_rng(devices=[]), mode or nullcontext():
        if mode is not None:
            data = {name: mode.from_tensor(tensor) for name, tensor in data.items()}
        model = build(recipe.model)
        algorithm = build(stage.algorithm)
        algorithm.begin(model)
        still = _bytes(model) + sum(t.nbytes for t in data.values())
        moments = 0 if stage.optimiser == "sgd" else 2
        # torch counts 0 for its fused CPU kernels of the LSTM and of attention: unfuse both
        unfused = torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH)
        with unfused[0], unfused[1], FlopCounterMode(display=False) as flops, _live_bytes() as live:
            algorithm.backward(model, data)
        trained = sum(p.nbytes for p in model.parameters() if p.grad is not None)
    return float(flops.get_total_flops()), float(still + moments * trained + live.peak)


def _bytes(model: nn.Module) -> int:
    return sum(t.nbytes for t in (*model.parameters(), *model.buffers()))


def _live_bytes() -> Any:
    """Return a dispatch mode that follows storages made inside it; `peak` is the most at one time."""
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class LiveBytes(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.now = self.peak = 0
            self.sizes: dict[int, int] = {}

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(out):
                if isinstance(leaf, Tensor):
                    self.follow(leaf.untyped_storage())
            return out

        def follow(self, storage: Any) -> None:
            key = storage._cdata
            if key not in self.sizes:
                self.sizes[key] = storage.nbytes()
                self.now += self.sizes[key]
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.gone, key)

        def gone(self, key: int) -> None:
            self.now -= self.sizes.pop(key)

    return LiveBytes()
