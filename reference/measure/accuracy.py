"""Accuracy on the copy task: symbols of the answer that are right (arXiv:1809.03702, Sec. 4.1)."""

from collections.abc import Iterator

import torch
from torch import nn

from reference.algorithms.bptt import sequence_loss
from reference.tasks.copy import Copy


def last_symbols(
    model: nn.Module,
    task: Copy,
    generator: torch.Generator,
    delays: list[int],
    sequences: int = 512,
    batch: int = 64,
) -> dict[str, float]:
    """Return {"accuracy@T": share of the last S symbols that are right} for every delay T, without training
    on it.

    Sequences are drawn and judged one batch at a time, so memory doesn't grow with `sequences`. Raises
    ValueError if `delays` is empty or `sequences` or `batch` is below 1.
    """
    if not delays:
        raise ValueError("last_symbols needs at least one delay.")
    return {
        f"accuracy@{delay}": evaluate(model, task.at(delay), generator, sequences, batch)["accuracy"]
        for delay in delays
    }


def validation(
    model: nn.Module,
    task: Copy,
    generator: torch.Generator,
    sequences: int = 256,
    batch: int = 64,
    last: int | None = None,
) -> dict[str, float]:
    """Return {"accuracy", "loss"} at the training delay: last-S accuracy, cross-entropy in nats over `last`
    steps.

    With `last` None the loss covers all steps. Raises ValueError if `sequences`, `batch` or `last` is below
    1.
    """
    if last is not None and last < 1:
        raise ValueError(f"A loss over the last steps needs last >= 1, not {last}.")
    return evaluate(model, task, generator, sequences, batch, last)


@torch.no_grad()
def evaluate(
    model: nn.Module,
    task: Copy,
    generator: torch.Generator,
    sequences: int,
    batch: int,
    last: int | None = None,
) -> dict[str, float]:
    """Return last-S accuracy and mean loss over `sequences` fresh sequences, in evaluation mode."""
    device = next(model.parameters()).device
    right, loss = 0, 0.0
    training = model.training
    model.eval()
    for size in sizes(sequences, batch):
        data = {name: tensor.to(device) for name, tensor in task.sample(size, generator).items()}
        logits_BTC = model(data["inputs"])
        answer_BS = logits_BTC[:, -task.symbols :].argmax(-1)
        right += int((answer_BS == data["targets"][:, -task.symbols :]).sum())
        loss += size * float(sequence_loss(logits_BTC, data["targets"], last=last))
    model.train(training)
    return {"accuracy": right / (sequences * task.symbols), "loss": loss / sequences}


def sizes(sequences: int, batch: int) -> Iterator[int]:
    """Yield batch sizes that add up to `sequences`; ValueError if either is below 1."""
    if sequences < 1 or batch < 1:
        raise ValueError(f"Evaluation needs sequences and batch >= 1, not {sequences} and {batch}.")
    for start in range(0, sequences, batch):
        yield min(batch, sequences - start)
