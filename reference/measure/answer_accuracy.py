"""Accuracy of the answers of the modulo-and-recall task, by length (arXiv:2510.00258, Sec. 2, Fig. 1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from reference.algorithms.delayed_attention import whole
from reference.measure.accuracy import sizes
from reference.tasks.modulo_recall import ModuloRecall


def by_length(
    *,
    model: nn.Module,
    task: ModuloRecall,
    generator: torch.Generator,
    inside: Sequence[int],
    beyond: Sequence[int],
    sequences: int = 1024,
    batch: int = 256,
) -> dict[str, float]:
    """Return the accuracies of the whole model at numbers of pairs inside and beyond those trained on.

    Returns:
        joint@n, and for each question that the task asks modulo@n and recall@n: shares of `sequences` fresh
        sequences with n pairs. A sequence counts as joint only if every answer is right.

    Raises:
        ValueError: a length in `inside` that was not trained on, or one in `beyond` that was.
    """
    for n in inside:
        if not task.shortest <= n <= task.longest:
            raise ValueError(f"{n} pairs are not inside the training lengths; put it into beyond.")
    for n in beyond:
        if n <= task.longest:
            raise ValueError(f"{n} pairs are not beyond the training lengths (up to {task.longest}).")
    found: dict[str, float] = {}
    with whole(model):
        for n in (*inside, *beyond):
            values = evaluate(model, task.at(n), generator, sequences, batch)
            found |= {f"{name}@{n}": value for name, value in values.items() if name != "loss"}
    return found


def validation(
    *, model: nn.Module, task: ModuloRecall, generator: torch.Generator, sequences: int = 256
) -> dict[str, float]:
    """Return joint, modulo, recall and loss (nats an answer) at the longest training length.

    The model is judged as it trains: a module that sleeps in this stage sleeps here too.
    """
    return evaluate(model, task.at(task.longest), generator, sequences, sequences)


@torch.no_grad()
def evaluate(
    model: nn.Module, task: ModuloRecall, generator: torch.Generator, sequences: int, batch: int
) -> dict[str, float]:
    """Return joint, an accuracy for each question, and the loss, over fresh sequences."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    right = dict.fromkeys(("joint", *task.questions), 0)
    loss = 0.0
    for size in sizes(sequences, batch):
        data = {name: tensor.to(device) for name, tensor in task.sample(size, generator).items()}
        logits_BQC = model(data["inputs"], data["positions"])
        right_BQ = logits_BQC.argmax(-1) == data["targets"]
        right["joint"] += int(right_BQ.all(1).sum())
        for name, right_B in zip(task.questions, right_BQ.unbind(1), strict=True):
            right[name] += int(right_B.sum())
        nats = F.cross_entropy(logits_BQC.flatten(0, 1), data["targets"].flatten(), reduction="sum")
        loss += float(nats) / len(task.questions)
    model.train(training)
    return {**{name: count / sequences for name, count in right.items()}, "loss": loss / sequences}
