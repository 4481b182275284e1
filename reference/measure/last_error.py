"""Mean squared error of the last answer of a sequence: the adding task (arXiv:1809.03702, Table 2)."""

from typing import Protocol

import torch
from torch import Tensor, nn

from reference.measure.accuracy import sizes


class Task(Protocol):
    """A task whose targets are real numbers."""

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return "inputs" and "targets", real, of `size` sequences."""


@torch.no_grad()
def last_error(
    model: nn.Module, task: Task, generator: torch.Generator, sequences: int = 512, batch: int = 64
) -> dict[str, float]:
    """Return {"mse", "loss"}, both the mean squared error at the last step over fresh sequences.

    Raises ValueError if `sequences` or `batch` is below 1.
    """
    device = next(model.parameters()).device
    training, total = model.training, 0.0
    model.eval()
    for size in sizes(sequences, batch):
        data = {name: tensor.to(device) for name, tensor in task.sample(size, generator).items()}
        difference_BC = model(data["inputs"])[:, -1] - data["targets"][:, -1]
        total += float(difference_BC.double().square().mean(1).sum())
    model.train(training)
    return {"mse": total / sequences, "loss": total / sequences}
