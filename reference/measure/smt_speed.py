"""Time of one SMT step over all splits: contexts in groups of like length against all padded to the longest.

Run `python -m reference.measure.smt_speed`. The loop over prefixes, one encoder and decoder call each, is
shown beside them. Loss and gradients of all three are compared in float64 first.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Sequence

import torch
from scipy.stats import t as student
from torch import Tensor
from torch.nn import functional as F

from reference.algorithms.smt import SupervisedMemory, cross_entropy, sampled_rows, uniformity
from reference.models.smt import SMT, decode
from reference.tasks.stack import Stack

Batch = dict[str, Tensor]


class PrefixLoop(SupervisedMemory):
    """The same loss, one prefix length at a time: nothing is padded, and each call is small."""

    def backward(self, model: SMT, batch: Batch) -> Batch:
        """Leave the gradients of the loss of `batch`; return it."""
        x = batch["inputs"]
        rows = torch.arange(len(x), device=x.device)
        ends = [torch.full_like(rows, t) for t in range(x.shape[1])]
        memory = torch.stack([model.encode(x, rows, end, 1) for end in ends], 1)
        parts = [
            decode(model.decoder, memory[:, t], batch, rows, end, self.future, 1)
            for t, end in enumerate(ends)
        ]
        logits, answers = (torch.cat(each) for each in zip(*parts, strict=True))
        guess = model.updater(memory[:, :-1].flatten(0, 1), x[:, 1:].flatten())
        dyn = F.mse_loss(guess, memory[:, 1:].flatten(0, 1))
        dec, unif = cross_entropy(logits, answers), uniformity(sampled_rows(memory))
        loss = self.decoding * dec + self.dynamics * dyn + self.uniform * unif
        loss.backward()
        return {"loss": loss.detach()}


def difference(model: SMT, one: SupervisedMemory, other: SupervisedMemory, batch: Batch) -> float:
    """Return the largest difference of loss and gradients of the two steps, over the largest gradient."""
    found = []
    for algorithm in (one, other):
        model.zero_grad()
        torch.manual_seed(0)
        loss = algorithm.backward(model, batch)["loss"]
        found.append([loss, *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    largest = max(g.abs().max().item() for g in found[0])
    return max((a - b).abs().max().item() for a, b in zip(*found, strict=True)) / largest


def ratio(slow: Sequence[float], fast: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of the paired ratios slow / fast and its 95 % t interval."""
    logs = [math.log(a / b) for a, b in zip(slow, fast, strict=True)]
    mean = statistics.fmean(logs)
    half = student.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the float64 differences, the times and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32, help="sequences a step")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--memory", type=int, default=4)
    parser.add_argument("--buckets", type=int, default=SupervisedMemory.buckets)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    model = SMT(
        5, given.width, 4, given.memory, encoder_layers=2, decoder_layers=1, updater_layers=2, context=None
    )
    task, generator = Stack(given.length, 4, 4), torch.Generator().manual_seed(0)
    steps = {
        "groups of like length": SupervisedMemory(buckets=given.buckets),
        "one padded batch": SupervisedMemory(buckets=1),
        "loop over prefixes": PrefixLoop(),
    }
    grouped = steps["groups of like length"]
    model.double()
    for name, step in steps.items():
        apart = difference(model, grouped, step, task.sample(2, generator))
        print(f"{name:<22} differs in loss and gradients by {apart:.1e} (float64, relative)")
    model.float()
    batch = task.sample(given.batch, generator)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(given.repeats + 1):
        for name, step in steps.items():  # in turn, so that other load on the machine meets all alike
            model.zero_grad()
            began = time.perf_counter()
            step.backward(model, batch)
            if repeat:
                seconds[name].append(time.perf_counter() - began)
    sizes = f"T={given.length}, {given.batch} sequences, {given.threads} thread(s)"
    print(f"{sizes}, {given.repeats} repeats in turn")
    for name in steps:
        line = f"{name:<22} {statistics.median(seconds[name]) * 1e3:9.1f} ms"
        if name != "groups of like length":
            mean, low, high = ratio(seconds[name], seconds["groups of like length"])
            line += f"   {mean:5.2f}× the grouped step, 95 % interval [{low:.2f}, {high:.2f}]"
        print(line)


if __name__ == "__main__":
    main()
