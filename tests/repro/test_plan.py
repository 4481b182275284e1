import os
import time
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from repro import plan
from repro.recipe import Recipe, Stage, part
from tests.toys import measurement

IN, HIDDEN, OUT, BATCH = 20, 30, 5, 7


class Points:
    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        return {
            "x": torch.randn(size, IN, generator=generator),
            "y": torch.randn(size, OUT, generator=generator),
        }


class Bags:
    """Every sequence is 1 to `longest` points, as many in the whole batch."""

    def __init__(self, longest: int, shortest: int = 1) -> None:
        self.shortest, self.longest = shortest, longest

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        points = size * int(torch.randint(self.shortest, self.longest + 1, (), generator=generator))
        return Points().sample(points, generator)


class Perceptron(nn.Module):
    """Two layers; `huge` has room for shapes only, not for numbers."""

    def __init__(
        self, huge: bool = False, fails: bool = False, dies: bool = False, slow: bool = False
    ) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, OUT)
        self.huge, self.fails, self.dies, self.slow = huge, fails, dies, slow

    def forward(self, x: Tensor) -> Tensor:
        if self.dies:
            os.abort()
        if self.slow:
            time.sleep(0.3)
        h = self.first(x).relu()
        if self.huge and not isinstance(h, FakeTensor):
            raise MemoryError
        if self.fails:
            raise ValueError("no such model")
        return self.second(h)


class Squares:
    def begin(self, model: nn.Module) -> None:
        pass

    def backward(self, model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        loss = (model(batch["x"]) - batch["y"]).square().mean()
        loss.backward()
        return {"loss": loss.detach()}


def perceptron(*steps: int, optimiser: str = "adam", **args: object) -> Recipe:
    here = "tests.repro.test_plan"
    stages = tuple(
        Stage(algorithm=part(f"{here}.Squares"), steps=n, batch=BATCH, lr=0.1, optimiser=optimiser)
        for n in steps
    )
    return Recipe(
        task=part(f"{here}.Points"),
        model=part(f"{here}.Perceptron", **args),
        stages=stages,
        measures=(part("tests.toys.parts.error"),),
    )


def by_hand(batch: int = BATCH) -> int:
    """FLOPs of a step: forward, gradients of both weights and of the hidden layer (not of the input)."""
    return 2 * batch * ((IN * HIDDEN + HIDDEN * OUT) + (IN * HIDDEN + HIDDEN * OUT) + HIDDEN * OUT)


PARAMETERS = IN * HIDDEN + HIDDEN + HIDDEN * OUT + OUT


@pytest.mark.parametrize(
    ("args", "how"), [({}, "real steps at batch 1 and 2"), ({"huge": True}, "fake tensors")]
)
def test_flops_of_a_perceptron_are_those_derived_by_hand(args: dict[str, object], how: str) -> None:
    estimate = plan.count(perceptron(10, 5, **args))
    assert estimate.flops == 15 * by_hand()
    assert estimate.how == how
    assert estimate.seconds(by_hand()) == 15
    assert estimate.memory is not None
    fixed = 4 * (PARAMETERS + 2 * PARAMETERS + PARAMETERS)  # parameters, moments, gradients
    batch = 4 * BATCH * (IN + OUT)
    kept = 4 * BATCH * (HIDDEN + OUT)  # what the backward pass needs at least: hidden layer, difference
    assert fixed + batch + kept <= estimate.memory <= fixed + batch + 6 * kept


def test_where_lengths_vary_flops_are_of_the_middle_and_bytes_of_the_longest() -> None:
    def bags(longest: int, shortest: int = 1) -> plan.Estimate:
        task = part("tests.repro.test_plan.Bags", longest=longest, shortest=shortest)
        return plan.count(replace(perceptron(10), task=task))

    some, longest = bags(9), bags(9, 9)
    assert some.flops is not None and longest.flops == 10 * by_hand(9 * BATCH)
    assert 10 * by_hand(4 * BATCH) <= some.flops <= 10 * by_hand(6 * BATCH)
    assert some.memory == longest.memory
    assert some.how == "real steps at batch 1 and 2; lengths vary"


def test_sgd_has_no_moments() -> None:
    adam, sgd = plan.count(perceptron(1)).memory, plan.count(perceptron(1, optimiser="sgd")).memory
    assert adam is not None and sgd is not None
    assert adam - sgd == 2 * 4 * PARAMETERS


def test_live_bytes_fall_when_storages_go() -> None:
    live = plan._live_bytes()
    with live:
        a = torch.zeros(100)
        b = a.view(10, 10) + 1  # the view has no storage of its own
        del a
        c = torch.zeros(50)
        del b, c
    assert (live.peak, live.now) == (800, 0)


def test_what_cannot_be_counted_is_unknown_and_says_why() -> None:
    estimate = plan.count(perceptron(10, fails=True))
    assert estimate == plan.Estimate(None, None, "unknown: ValueError: no such model")
    assert estimate.seconds(1e9) is None


def test_a_process_of_its_own_outlives_slow_models_and_crashes() -> None:
    with plan.Counter() as counter:
        assert counter.count(perceptron(3)) == plan.count(perceptron(3))
        counter._limit_s = 0.0
        late = "unknown: counting took longer than 0 s"
        assert counter.count(perceptron(3, slow=True)) == plan.Estimate(None, None, late)
        counter._limit_s = plan.LIMIT_S
        crash = plan.Estimate(None, None, "unknown: counting crashed")
        assert counter.count(perceptron(3, dies=True)) == crash
        assert counter.count(perceptron(3, dies=True)) == crash and counter._process is None, "counted once"


def test_counting_trains_nothing_and_leaves_the_random_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_counted", {})
    torch.manual_seed(3)
    state = torch.get_rng_state()
    assert plan.count(perceptron(10)).flops
    assert torch.equal(torch.get_rng_state(), state)


def test_a_measurement_has_no_training() -> None:
    assert plan.count(measurement()) == plan.Estimate(0.0, None, "no training")


def test_stages_alike_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    step = plan._step
    monkeypatch.setattr(plan, "_counted", {})
    monkeypatch.setattr(plan, "_step", lambda *given, **how: counted.append(1) or step(*given, **how))
    one, both = plan.count(perceptron(3)), plan.count(perceptron(3, 5))
    assert len(counted) == 2, "batch 1 and batch 2"
    assert both.flops == one.flops / 3 * 8 and both.memory == one.memory
    plan.count(perceptron(3, optimiser="sgd"))
    assert len(counted) == 4, "another optimiser has other moments"
