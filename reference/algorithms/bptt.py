"""Back-propagation through time: one loss, one backward pass over the whole graph."""

from torch import Tensor, nn


def sequence_loss(
    outputs: Tensor, targets: Tensor, loss: str = "cross_entropy", last: int | None = None
) -> Tensor:
    """Return the mean loss over batch and steps, 0-d.

    "cross_entropy": outputs_BTC are logits, targets_BT classes. "mse": outputs_BTC and targets_BTC are real.
    With `last`, only the last so many steps count.
    """
    if last is not None:
        outputs, targets = outputs[:, -last:], targets[:, -last:]
    if loss == "mse":
        return nn.functional.mse_loss(outputs, targets)
    return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def check_loss(loss: str, last: int | None) -> None:
    """Raise ValueError unless `loss` is known and `last` is None or at least 1."""
    if loss not in ("cross_entropy", "mse"):
        raise ValueError(f"The loss is cross_entropy or mse, not {loss!r}.")
    if last is not None and last < 1:
        raise ValueError(f"A loss over the last steps needs last >= 1, not {last}.")


class Bptt:
    """Differentiate the loss through all that the model's graph connects.

    For an LSTM this is full back-propagation through time; SAB cuts its graph itself (k_trunc).
    `loss`: "cross_entropy" or "mse"; `last`: steps at the end that the loss covers, None for all.

    Raises ValueError on an unknown loss or `last` below 1.
    """

    def __init__(self, loss: str = "cross_entropy", last: int | None = None) -> None:
        check_loss(loss, last)
        self.loss, self.last = loss, last

    def begin(self, model: nn.Module) -> None:
        """Nothing to prepare."""

    def backward(self, model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Leave gradients of the mean loss in .grad; return {"loss"}, detached."""
        value = sequence_loss(model(batch["inputs"]), batch["targets"], self.loss, self.last)
        value.backward()
        return {"loss": value.detach()}
