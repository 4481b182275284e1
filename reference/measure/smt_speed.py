"""Time of one SMT step over all splits, by how the contexts of all lengths go through the encoder.

Run `python -m reference.measure.smt_speed`. Groups of like length (what training uses) against all contexts
padded to the longest; shown beside them: one packed row a sequence under a block mask, and a loop over
prefixes, one encoder and decoder call each. Loss and gradients of all are compared in float64 first. One
thread; seconds of processor time, in turn, so that other load meets all alike.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from reference.algorithms.smt import SupervisedMemory, cross_entropy, sampled_rows, uniformity
from reference.measure.arguments import count, told, whole_number
from reference.measure.timing import busy_seconds, log_interval
from reference.models.smt import SMT, Encoder, decode, every_split, unit
from reference.tasks.stack import Stack

Batch = dict[str, Tensor]


def packed(encoder: Encoder, x: Tensor) -> Tensor:
    """Return the memories (B, T, K, M) of all prefixes of `x` (B, T), packed into one row a sequence.

    A row holds the T · K registers and then the T (T + 1) / 2 tokens of all prefixes; a block mask keeps each
    prefix to itself.
    """
    size, length = x.shape
    k = len(encoder.registers)
    end, place = torch.tril_indices(length, length, device=x.device)
    registers = encoder.registers.repeat(length, 1).expand(size, -1, -1)
    h = torch.cat((registers, encoder.embedding(x[:, place])), 1)
    prefix = torch.cat((torch.arange(length, device=x.device).repeat_interleave(k), end))
    positions = torch.cat((place.new_zeros(length * k), place - end))
    mask = prefix[:, None] == prefix
    memory = encoder.layers(h, positions, mask, slice(0, length * k))
    return unit(encoder.out(memory)).unflatten(1, (length, k))


class PackedRows(SupervisedMemory):
    """The same step with the encoder's contexts in packed rows; the decoder's windows stay in groups."""

    def backward(self, model: SMT, batch: Batch) -> Batch:
        """Leave the gradients of the loss of `batch`; return it."""
        memory = packed(model.encoder, batch["inputs"])
        pairs = every_split(batch["inputs"])
        found = decode(model.decoder, memory.flatten(0, 1), batch, *pairs, self.future, self.buckets)
        return _finish(self, model, batch, memory, *found)


class PrefixLoop(SupervisedMemory):
    """The same step, one prefix length at a time: nothing is padded, and each call is small."""

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
        return _finish(self, model, batch, memory, logits, answers)


def _finish(
    step: SupervisedMemory, model: SMT, batch: Batch, memory: Tensor, logits: Tensor, answers: Tensor
) -> Batch:
    """Leave the gradients of the loss of `memory` (B, T, K, M) and its decoded answers; return it."""
    guess = model.updater(memory[:, :-1].flatten(0, 1), batch["inputs"][:, 1:].flatten())
    dyn = F.mse_loss(guess, memory[:, 1:].flatten(0, 1))
    dec, unif = cross_entropy(logits, answers), uniformity(sampled_rows(memory))
    loss = step.decoding * dec + step.dynamics * dyn + step.uniform * unif
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


def compare(length: int, batch: int, width: int, memory: int, buckets: int, repeats: int) -> None:
    """Print the float64 differences, the times and the ratios."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = SMT(5, width, 4, memory, encoder_layers=2, decoder_layers=1, updater_layers=2)
    task = Stack(length, 4, 4)
    generator = torch.Generator().manual_seed(0)
    grouped = SupervisedMemory(buckets=buckets)
    steps = {
        f"{buckets} groups of like length": grouped,
        "one padded batch": SupervisedMemory(buckets=1),
        "packed rows, block mask": PackedRows(buckets=buckets),
        "loop over prefixes": PrefixLoop(),
    }
    model.double()
    for name, step in steps.items():
        apart = difference(model, grouped, step, task.sample(2, generator))
        print(f"{name:<24} differs in loss and gradients by {apart:.1e} (float64, relative)")
    model.float()
    data = task.sample(batch, generator)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(repeats + 1):
        for name, step in steps.items():
            model.zero_grad()
            spent = busy_seconds(partial(step.backward, model, data))
            if repeat:
                seconds[name].append(spent)
    print(f"T={length}, {batch} sequences, one thread, {repeats} repeats in turn")
    mine, *_ = seconds.values()
    for name, theirs in seconds.items():
        line = f"{name:<24} {statistics.median(theirs) * 1e3:9.1f} ms"
        if theirs is not mine:
            mean, half = log_interval(list(zip(theirs, mine, strict=True)))
            low, middle, high = (math.exp(mean + side) for side in (-half, 0.0, half))
            line += f"   {middle:5.2f}× the grouped step, 95 % interval [{low:.2f}, {high:.2f}]"
        print(line)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare the steps at the sizes given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=count, default=64)
    parser.add_argument("--batch", type=count, default=32, help="sequences a step")
    parser.add_argument("--width", type=count, default=64)
    parser.add_argument("--memory", type=count, default=4)
    parser.add_argument("--buckets", type=count, default=SupervisedMemory.buckets)
    parser.add_argument("--repeats", type=whole_number(2), default=8)
    given = parser.parse_args(arguments)
    with told(parser):
        compare(**vars(given))


if __name__ == "__main__":
    main()
