"""The fast SAB against a plain autograd implementation: time, memory, and what bounds it.

    python -m reference.measure.sab_speed [--delay 300] [--hidden 128] [--batch 64] [--k-att 1] [--threads 2]

One training step each (forward and backward) of `reference.models.sab` and of
`reference.naive.sab.sab_autograd`, the same function of the same parameters. Times are interleaved pairs; the
peak memory of each is the growth of the resident set's high-water mark over one step in a process of its own.
The arithmetic limit is the time of the matrix products at the rate measured for one of that shape, plus that
of one division per pair of memory and step.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tabulate import tabulate
from torch import Tensor

from reference.algorithms.bptt import sequence_loss
from reference.measure.arguments import cores, count, told
from reference.measure.timing import Ratio, seconds, time_ratio
from reference.models.sab import SAB, kernels
from reference.naive.sab import sab_autograd
from reference.tasks.copy import Copy

ENGINES = ("fast", "autograd")


def train_step(engine: str, model: SAB, batch: dict[str, Tensor]) -> None:
    """Forward and backward pass of one engine, gradients left in .grad."""
    model.zero_grad()
    logits = model(batch["inputs"]) if engine == "fast" else sab_autograd(model, batch["inputs"])
    sequence_loss(logits, batch["targets"]).backward()


def setting(delay: int, hidden: int, batch: int, k_att: int) -> tuple[SAB, dict[str, Tensor]]:
    """Return a seeded model, (k_trunc, k_top) = (5, 5), and a batch of the copy task."""
    torch.manual_seed(0)
    task = Copy(delay)
    model = SAB(task.inputs, task.outputs, hidden=hidden, k_att=k_att)
    return model, task.sample(batch, torch.Generator().manual_seed(0))


def times(delay: int, hidden: int, batch: int, k_att: int) -> Ratio:
    """Return the time of the autograd step over that of the fast one."""
    model, data = setting(delay, hidden, batch, k_att)

    def step(engine: str) -> Callable[[], None]:
        return lambda: train_step(engine, model, data)

    return time_ratio(step("autograd"), step("fast"), most=12)


def peak(engine: str, delay: int, hidden: int, batch: int, k_att: int) -> int:
    """Return the bytes by which one step raises this process's resident set (Linux).

    A tiny step before loads the libraries, and the high-water mark is reset: a child process inherits its
    parent's.
    """
    train_step(engine, *setting(5, 8, 2, k_att))
    model, data = setting(delay, hidden, batch, k_att)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    train_step(engine, model, data)
    return resident("VmHWM") - before


def resident(name: str) -> int:
    """Return a field of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def arithmetic(delay: int, hidden: int, batch: int, k_att: int) -> dict[str, float]:
    """Return operations of one step and the seconds they take at the measured rates.

    Products: gates and query each step, a key each memory, forward and twice backward (2 flops a
    multiply-add). Pairs: one division for every (memory, later step, sequence, scorer unit).
    """
    steps = Copy(delay).length
    stored = steps // k_att
    flops = 3 * 2 * batch * hidden * hidden * (4 * steps + steps + stored)
    pairs = batch * hidden * sum(step // k_att for step in range(steps))
    left, right = torch.randn(batch, hidden), torch.randn(hidden, 4 * hidden)
    out, numbers = torch.empty(batch, 4 * hidden), torch.rand(2**16) + 1.0
    product = min(seconds(lambda: torch.mm(left, right, out=out)) for _ in range(200))
    division = min(seconds(numbers.reciprocal_) for _ in range(200))
    flop_rate, pair_rate = 8 * batch * hidden**2 / product, len(numbers) / division
    return {
        "flops": flops,
        "flops/s": flop_rate,
        "pairs": pairs,
        "pairs/s": pair_rate,
        "seconds": flops / flop_rate + pairs / pair_rate,
    }


def table(delay: int, hidden: int, batch: int, k_att: int, threads: int) -> str:
    """Measure everything and return the table."""
    geometry = [delay, hidden, batch, k_att]
    torch.set_num_threads(threads)
    ratio, bound = times(*geometry), arithmetic(*geometry)
    child = [sys.executable, "-m", "reference.measure.sab_speed", *options(geometry, threads), "--peak"]
    peaks = [
        int(subprocess.run([*child, e], capture_output=True, check=True, text=True).stdout) for e in ENGINES
    ]
    fast, autograd = (size / 2**20 for size in peaks)
    rows = [
        ["autograd step", f"{ratio.seconds[0]:.4g} s", f"{autograd:.0f} MiB"],
        ["fast step", f"{ratio.seconds[1]:.4g} s", f"{fast:.0f} MiB"],
        [
            "autograd / fast",
            f"{ratio.mean:.1f} [{ratio.low:.1f}, {ratio.high:.1f}], {ratio.pairs} pairs",
            f"{autograd / fast:.1f}",
        ],
        [
            "arithmetic limit",
            f"{bound['seconds']:.4g} s: {bound['flops']:.3g} flops at {bound['flops/s']:.3g}/s, "
            f"{bound['pairs']:.3g} pairs at {bound['pairs/s']:.3g}/s",
            "",
        ],
    ]
    title = f"T={delay}, hidden {hidden}, batch {batch}, k_att={k_att}, {threads} threads, {kernels.status()}"
    return title + "\n" + tabulate(rows, headers=["", "time", "peak memory"], disable_numparse=True)


def options(geometry: Sequence[int], threads: int) -> list[str]:
    """Return the command-line options of a setting."""
    names = ("--delay", "--hidden", "--batch", "--k-att", "--threads")
    return [
        text for name, value in zip(names, [*geometry, threads], strict=True) for text in (name, str(value))
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, or with --peak the peak of one engine in bytes."""
    parser = argparse.ArgumentParser(description="The fast SAB against a plain autograd implementation.")
    parser.add_argument("--delay", type=count, default=300, help="T of the copy task")
    parser.add_argument("--hidden", type=count, default=128)
    parser.add_argument("--batch", type=count, default=64)
    parser.add_argument("--k-att", type=count, default=1)
    parser.add_argument("--threads", type=cores, default=2)
    parser.add_argument("--peak", choices=ENGINES, help="measure the peak memory of this engine only")
    given = parser.parse_args(arguments)
    geometry = (given.delay, given.hidden, given.batch, given.k_att)
    torch.set_num_threads(given.threads)
    with told(parser):
        print(peak(given.peak, *geometry) if given.peak else table(*geometry, given.threads))


if __name__ == "__main__":
    main()
