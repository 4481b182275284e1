"""Counted bytes against numbers derived by hand; fake and meta tensors count like real ones."""

import contextlib
import itertools

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from reference.measure.live_bytes import LiveBytes

B, WIDTHS = 64, (10, 20, 30, 5)
X, H1, H2, Y = (4 * B * width for width in WIDTHS)  # bytes of the input and of each layer's output
LAST = 4 * (30 * 5 + 5)  # bytes of the last layer's weight and bias
PARAMETERS = 4 * (10 * 20 + 20 + 20 * 30 + 30) + LAST


def training_step(device: str) -> dict[str, int]:
    layers = [nn.Linear(a, b, device=device) for a, b in itertools.pairwise(WIDTHS)]
    model = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.zeros(B, WIDTHS[0], device=device)
    found = {}
    with LiveBytes(model, optimiser, (x,)) as count:
        found["start"] = count.live
        y = model(x)
        found["after forward"], found["peak of forward"] = count.live, count.peak
        loss = y.square().mean()
        loss.backward()
        found |= {"peak": count.peak, "peak_activations": count.peak_activations, "static": count.static}
        optimiser.step()
        found["static with optimiser"] = count.static
        del x, y, loss
    found["end"] = count.live
    return found


@pytest.mark.parametrize("kind", ["real", "fake", "meta"])
def test_a_training_step_of_three_layers_by_hand(kind):
    with FakeTensorMode() if kind == "fake" else contextlib.nullcontext():
        found = training_step("meta" if kind == "meta" else "cpu")
    # Forward: tanh and the linear layer after it save one tensor, the tanh's output. While the second tanh
    # runs, its input is alive too. Backward: the fullest moment is the second tanh's: its saved output, the
    # gradient that comes in and the one that goes out, with the last layer's parameter gradients there
    # already, the loss and its gradient (4 bytes each).
    scalars = 4 + 4
    kept = X + H1 + H2 + Y
    assert found == {
        "start": PARAMETERS + X,
        "after forward": PARAMETERS + kept,
        "peak of forward": PARAMETERS + X + H1 + 2 * H2,
        "peak": PARAMETERS + kept + scalars + 2 * H2 + LAST,
        "peak_activations": kept + scalars + 2 * H2,
        "static": 2 * PARAMETERS,
        "static with optimiser": 3 * PARAMETERS,
        "end": 3 * PARAMETERS,
    }


def test_views_count_once_and_restart_forgets():
    with LiveBytes() as count:
        a = torch.empty(10)
        views = [a.view(2, 5), a[3:]]
        assert count.live == 40
        b = torch.empty(100)
        del b
        assert (count.live, count.peak, count.peak_activations) == (40, 440, 440)
        count.restart()
        assert (count.peak, count.peak_activations) == (40, 40)
        del a
        assert count.live == 40
        views.clear()
        assert count.live == 0


def test_a_rollout_that_calls_one_module_many_times():
    """What torch's own memory tracker refuses: T calls keep T outputs."""
    cell = nn.Linear(8, 8)
    peaks = []
    for length in (4, 8):
        with LiveBytes(cell) as count:
            state = torch.zeros(16, 8)
            for _ in range(length):
                state = torch.tanh(cell(state))
            peaks.append(count.live - count.static)
            del state
    one = 16 * 8 * 4
    assert peaks == [5 * one, 9 * one]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="compares with the CUDA allocator: needs a GPU")
def test_within_a_tenth_of_the_cuda_allocator():
    def step(model, x):
        model(x).square().mean().backward()

    torch.backends.cuda.matmul.allow_tf32 = False
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.Tanh())]).cuda()
    x = torch.zeros(4096, 1024, device="cuda")
    step(model, x)  # workspaces of the matrix library
    model.zero_grad()
    torch.cuda.synchronize()
    workspace = torch.cuda.memory_allocated() - sum(
        t.untyped_storage().nbytes() for t in [x, *model.parameters()]
    )
    torch.cuda.reset_peak_memory_stats()
    with LiveBytes(model, kept=(x,)) as count:
        step(model, x)
    assert count.peak == pytest.approx(torch.cuda.max_memory_allocated() - workspace, rel=0.1)
