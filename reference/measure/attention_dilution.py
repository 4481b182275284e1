"""Does attention thin out as candidates grow? Weight, entropy and score gap by length.

The paper (arXiv:2510.00258, Sec. 2) explains errors at great length by a softmax that is no longer sharp,
without measuring it. With N positions to choose from, score a for the right one and b for all others, its
weight is p = 1 / (1 + (N − 1) e^(b − a)): at a fixed gap a − b it falls as N grows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from scipy.stats import mannwhitneyu
from torch import Tensor

from reference.algorithms.delayed_attention import whole
from reference.measure.accuracy import sizes
from reference.models.hybrids import Block, Hybrid
from reference.tasks.modulo_recall import ModuloRecall


@torch.no_grad()
def attention_dilution(
    *,
    model: Hybrid,
    task: ModuloRecall,
    generator: torch.Generator,
    lengths: Sequence[int],
    sequences: int = 512,
    batch: int = 128,
) -> dict[str, float]:
    """Measure what the last position, the key asked for, attends to: its pair's two positions are right.

    One head is followed: the one with the most weight on the right pair at the first of the `lengths`, over
    sequences of its own. For n pairs:

        weight@n   mean weight on the right pair, 0 to 1
        entropy@n  mean entropy of the head's weights in nats
        gap@n      mean of log(p / (1 − p)) + log(N / 2 − 1) with N positions: by how much the pair's score
                   passes the others', each brought together by log-mean-exp
        auc@n      probability that a rightly answered sequence has more weight than a wrongly answered one
                   (ties half); 0.5 where there are none of either sort

    and

        auc            the same over the pairs of a right and a wrong one of equal length, of all lengths
                       together: both weight and accuracy fall with length, which alone makes no relation
        fall           weight at the first length minus weight at the last
        fall_same_gap  what it would be if every sequence of the first length kept its gap at the last

    Raises:
        ValueError: fewer than two lengths, a task without recall, or a model without attention.
    """
    if len(lengths) < 2:
        raise ValueError("attention_dilution compares at least two lengths.")
    if "recall" not in task.questions:
        raise ValueError("attention_dilution needs a task that asks for recall.")
    if not hasattr(model, "attention"):
        raise ValueError(f"{type(model).__name__} has no attention to measure.")
    training = model.training
    model.eval()
    with whole(model):
        weight = torch.cat(
            [_look(model, task.at(lengths[0]), generator, size)[0] for size in sizes(sequences, batch)], -1
        )
        head = int(weight.mean(-1).argmax())
        found: dict[str, float] = {}
        pairs: list[int] = []
        gaps: list[Tensor] = []
        for n in lengths:
            looks = [_look(model, task.at(n), generator, size, head) for size in sizes(sequences, batch)]
            weight_S, entropy_S, gap_S, right_S = (
                torch.cat(part, -1).cpu() for part in zip(*looks, strict=True)
            )
            found |= {
                f"weight@{n}": weight_S.mean().item(),
                f"entropy@{n}": entropy_S.mean().item(),
                f"gap@{n}": gap_S.mean().item(),
                f"auc@{n}": auc(weight_S, right_S.bool()),
            }
            gaps.append(gap_S)
            right = int(right_S.sum())
            pairs.append(right * (len(right_S) - right))
    model.train(training)
    first, last = found[f"weight@{lengths[0]}"], found[f"weight@{lengths[-1]}"]
    positions = task.at(lengths[-1]).sample(1, generator)["inputs"].shape[1]
    kept = (gaps[0] - math.log(positions / 2 - 1)).sigmoid().mean().item()
    related = sum(p * found[f"auc@{n}"] for p, n in zip(pairs, lengths, strict=True))
    return {
        **found,
        "fall": first - last,
        "fall_same_gap": first - kept,
        "auc": related / sum(pairs) if any(pairs) else 0.5,
    }


def _look(
    model: Hybrid, task: ModuloRecall, generator: torch.Generator, size: int, head: int | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weight, entropy, gap and whether the recall answer is right, of `size` sequences.

    The first three are [size] for the head number `head` (over all blocks), or [heads, size] for None.
    """
    device = next(model.parameters()).device
    data = {name: tensor.to(device) for name, tensor in task.sample(size, generator).items()}
    seen: list[tuple[Block, Tensor, Tensor]] = []
    hooks = [
        block.register_forward_pre_hook(lambda block, given: seen.append((block, given[0], given[1])))
        for block in model.attention.blocks
    ]
    try:
        logits_BQC = model(data["inputs"], data["positions"])
    finally:
        for hook in hooks:
            hook.remove()
    scores_GBT = torch.cat([block.scores(x, turns)[:, :, -1].transpose(0, 1) for block, x, turns in seen])
    if head is not None:
        scores_GBT = scores_GBT[head]
    logs = scores_GBT.log_softmax(-1)
    pair_B2 = 1 + 2 * data["asked"][:, None] + torch.arange(2, device=device)
    right = torch.zeros(logs.shape[-2:], dtype=torch.bool, device=device).scatter_(1, pair_B2, True)
    inside = logs.masked_fill(~right, -torch.inf).logsumexp(-1)
    outside = logs.masked_fill(right, -torch.inf).logsumexp(-1)
    positions = logs.shape[-1]
    gap = inside - outside + torch.log(torch.tensor(positions / 2 - 1))
    entropy = -(logs.exp() * logs).sum(-1)
    correct_B = logits_BQC[:, -1].argmax(-1) == data["targets"][:, -1]
    return inside.exp(), entropy, gap, correct_B


def auc(values: Tensor, right: Tensor) -> float:
    """Return P(value of a right one > value of a wrong one), ties counted half; 0.5 without one of either.

    >>> auc(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([True, False, False]))
    1.0
    """
    yes, no = values[right], values[~right]
    if not len(yes) or not len(no):
        return 0.5
    return float(mannwhitneyu(yes.numpy(), no.numpy()).statistic) / (len(yes) * len(no))
