"""What the toy recipes name."""

import math
import time
from pathlib import Path

import torch
from torch import Tensor, nn


class Rule:
    """Learn y = x·w + noise for a fixed w; `data` names a folder that must exist."""

    def __init__(self, width: int = 3, noise: float = 0.1, data: str | None = None) -> None:
        if data is not None and not Path(data).is_dir():
            raise FileNotFoundError(f"the data set is missing: unpack it to {data}")
        self.width, self.noise = width, noise

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        x = torch.randn(size, self.width, generator=generator)
        noise = torch.randn(size, generator=generator) * self.noise
        return {"x": x, "y": x.sum(1) + noise}


class Net(nn.Module):
    """Two layers with dropout and an unused parameter; started by many, it notes each start in `log`."""

    def __init__(self, width: int = 3, hidden: int = 8, log: str | None = None) -> None:
        super().__init__()
        if log is not None:
            with Path(log).open("a") as file:
                file.write("built\n")
        self.body = nn.Linear(width, hidden)
        self.head = nn.Linear(hidden, 1)
        self.unused = nn.Parameter(torch.ones(2))
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(torch.tanh(self.body(x)))).squeeze(-1)


class Backprop:
    """Gradients by autograd.

    frozen: freeze the body. slow: seconds a step. explode_at: step whose loss is NaN. raise_at: step that
    raises.
    """

    def __init__(
        self,
        frozen: bool = False,
        slow: float = 0.0,
        explode_at: int = 0,
        raise_at: int = 0,
        scale: float = 1.0,
    ) -> None:
        self.frozen, self.slow, self.scale = frozen, slow, scale
        self.explode_at, self.raise_at, self.step = explode_at, raise_at, 0

    def begin(self, model: Net) -> None:
        model.body.requires_grad_(not self.frozen)

    def backward(self, model: Net, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        self.step += 1
        time.sleep(self.slow)
        loss = (model(batch["x"]) - batch["y"]).square().mean() * self.scale
        if self.step == self.raise_at:
            raise ValueError("the toy is broken")
        if self.step == self.explode_at:
            loss = loss * math.nan
        loss.backward()
        return {"loss": loss, "size": batch["x"].norm()}


def error(
    model: nn.Module, task: Rule, generator: torch.Generator, size: int = 32, name: str = "error"
) -> dict[str, object]:
    """Root mean square error on fresh samples; `seen` is the first of them."""
    assert not model.training
    batch = task.sample(size, generator)
    with torch.no_grad():
        wrong = (model(batch["x"]) - batch["y"]).square().mean().sqrt()
    return {
        name: wrong.item(),
        f"{name}_seen": batch["x"][0, 0].item(),
        f"{name}_list": [[1.0, 2.0], [3.0, 4.0]],
    }


def count(
    generator: torch.Generator,
    device: torch.device,
    n: int = 3,
    value: object = 1.0,
    log: str | None = None,
    slow: float = 0,
) -> dict[str, object]:
    """A measurement: notes begin and end in `log`."""
    for word in ("begin", "end"):
        if log is not None:
            with Path(log).open("a") as file:
                file.write(f"{word} {n} {time.monotonic()}\n")
        if word == "begin":
            time.sleep(slow)
    return {"n": n, "value": value, "draw": torch.rand(n, generator=generator, device=device)}
