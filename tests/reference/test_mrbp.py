import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from reference.algorithms import mrbp as mrbp_module
from reference.algorithms.checkpointing import Checkpointed, checkpointed
from reference.algorithms.mrbp import Mrbp, mrbp
from reference.algorithms.segments import Segments, bptt, detached, leaves, rng_state
from reference.measure.mrbp_gradients import mrbp_gradients
from reference.models.memformer import Memformer
from reference.models.transformer_xl import TransformerXL
from tests.reference.segment_checks import SHAPE, gradients, worst

ROLLOUTS = {
    "mrbp": lambda step, *rest: mrbp(step, None, *rest),
    "checkpointed": checkpointed,
}


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def memformer(**changes):
    arguments = {**SHAPE, "encoder_layers": 2, "decoder_layers": 2, "memory_size": 3, **changes}
    return Memformer(**arguments)


def trained(algorithm, model, tokens, seed=1):
    """Loss, all gradients, and the next random number, from one random state."""
    model.zero_grad()
    torch.manual_seed(seed)
    algorithm.begin(model)
    loss = algorithm.backward(model, {"tokens": tokens})["loss"]
    return loss, gradients(model), torch.rand(3)


def assert_same(one, other):
    assert one[0].item() == pytest.approx(other[0].item(), rel=1e-12)
    size, name = worst(one[1], other[1])
    assert size < 1e-10, name
    assert torch.equal(one[2], other[2])  # the generators end in the same state


@pytest.mark.parametrize("algorithm", [Mrbp, Checkpointed])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(("batch", "length"), [(1, 3), (1, 5), (2, 23), (3, 160)])
def test_memformer_gradients_are_those_of_bptt(algorithm, dropout, batch, length):
    model = memformer(dropout=dropout)
    tokens = torch.randint(7, (batch, length))
    truth = trained(Segments(), model, tokens)
    assert_same(trained(algorithm(), model, tokens), truth)
    assert truth[1]["writer.bias"].norm() > 1e-6


@pytest.mark.parametrize("algorithm", [Mrbp, Checkpointed])
@pytest.mark.parametrize("changes", [{"memory": "off"}, {"memory": "frozen"}, {"decoder_reads": "encoder"}])
def test_memformer_variants(algorithm, changes):
    model = memformer(dropout=0.2, **changes)
    tokens = torch.randint(7, (2, 17))
    assert_same(trained(algorithm(), model, tokens), trained(Segments(), model, tokens))


class Noisy(nn.Module):
    """A model of anybody: its memory path draws fewer numbers than its step, and no module says so."""

    segment = 4

    def __init__(self):
        super().__init__()
        self.start, self.table = nn.Parameter(torch.randn(5)), nn.Embedding(7, 5)
        self.head = nn.Linear(5, 7)

    def initial_memory(self, batch):
        return self.start.expand(batch, -1)

    def memory_step(self, segment_BL, memory_BD):
        return torch.tanh(F.dropout(memory_BD, 0.3) + self.table(segment_BL).mean(1))

    def step(self, segment_BL, memory_BD):
        after_BD = self.memory_step(segment_BL, memory_BD)
        read_BLD = F.dropout(memory_BD, 0.3)[:, None].expand(-1, segment_BL.shape[1], -1)
        return self.head(read_BLD), after_BD


@pytest.mark.parametrize("algorithm", [Mrbp, Checkpointed])
def test_functional_dropout_behind_a_memory_path(algorithm):
    model, tokens = Noisy(), torch.randint(7, (2, 12))
    assert_same(trained(algorithm(), model, tokens), trained(Segments(), model, tokens))


@pytest.mark.parametrize("algorithm", [Mrbp, Checkpointed])
def test_a_model_without_a_memory_path(algorithm):
    model = TransformerXL(**SHAPE, layers=2, memory_size=7, dropout=0.2, stop_gradient=False)
    tokens = torch.randint(7, (2, 23))
    assert_same(trained(algorithm(), model, tokens), trained(Segments(), model, tokens))


@pytest.mark.parametrize("algorithm", [Mrbp, Checkpointed, Segments])
def test_the_horizon_cuts_the_memory_every_h_segments(algorithm):
    model, tokens = memformer(), torch.randint(7, (2, 23))
    cut = trained(algorithm(horizon=2), model, tokens)
    model.zero_grad()
    memory = model.initial_memory(2)
    for index, segment in enumerate(tokens.split(5, dim=1)):
        logits, memory = model.step(segment, detached(memory) if index in (2, 4) else memory)
        loss = F.cross_entropy(logits.flatten(0, 1), segment.flatten(), reduction="sum") / tokens.numel()
        loss.backward(retain_graph=True)
    assert worst(cut[1], gradients(model))[0] < 1e-10
    assert worst(cut[1], trained(Segments(), model, tokens)[1])[0] > 1e-3


def test_a_horizon_below_one_is_refused():
    for algorithm in (Mrbp, Checkpointed, Segments):
        with pytest.raises(ValueError, match="The horizon is 0; give at least 1"):
            algorithm(horizon=0)


@pytest.mark.parametrize("rollout", ROLLOUTS.values(), ids=ROLLOUTS)
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (2, 3), (32, 1)])
def test_a_plain_cell_with_a_learned_start_and_several_losses(rollout, steps, batch):
    cell, head = nn.LSTMCell(3, 5), nn.Linear(5, 3)
    start = nn.Parameter(torch.randn(2, 5))
    parameters = [*cell.parameters(), *head.parameters(), start]
    inputs = list(torch.randn(steps, batch, 3))

    def step(x, memory):
        h, c = cell(x, memory)
        return F.dropout(head(h), 0.4), (h, c)

    def losses(output, x):
        return (output - x).square().mean() + 0.3 * output.abs().mean()

    def run(how):
        torch.manual_seed(3)
        for p in parameters:
            p.grad = None
        h, c = start.sin()
        loss, memory = how(step, inputs, (h.expand(batch, -1), c.expand(batch, -1)), losses)
        return loss, {str(k): p.grad.clone() for k, p in enumerate(parameters)}, torch.rand(2), memory

    own, truth = run(rollout), run(bptt)
    assert_same(own, truth)
    for one, other in zip(leaves(own[3]), leaves(truth[3]), strict=True):
        assert torch.equal(one, other)
        assert not one.requires_grad


def test_it_equals_a_loop_written_by_hand():
    """`bptt` itself, with dropout, against the loop that a reader would write."""
    cell = nn.GRUCell(3, 3)
    inputs = torch.randn(4, 2, 3)
    step = lambda x, m: (F.dropout(m, 0.5), cell(x, m))  # noqa: E731
    results = []
    for how in ("hand", "bptt", "mrbp"):
        cell.zero_grad()
        torch.manual_seed(5)
        memory = torch.ones(2, 3)
        if how == "hand":
            total = 0.0
            for x in inputs:
                output, memory = step(x, memory)
                total = total + output.square().sum()
            total.backward()
        elif how == "bptt":
            bptt(step, inputs, memory, lambda o, x: o.square().sum())
        else:
            mrbp(step, None, inputs, memory, lambda o, x: o.square().sum())
        results.append(gradients(cell))
    assert worst(results[1], results[0])[0] < 1e-12
    assert worst(results[2], results[0])[0] < 1e-10


def test_nested_memory_whole_numbers_and_a_memory_that_is_handed_through():
    weight, learned = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(2, 4))

    def step(x, memory):
        (state, count), fixed, idle = memory
        state = torch.tanh(state @ weight + x + fixed + count[:, None])
        return state, ((state, count + 1), fixed, idle)  # `fixed` and `idle` come out as they went in

    inputs, results = list(torch.randn(5, 2, 4)), []
    for how in (bptt, ROLLOUTS["mrbp"]):
        weight.grad = learned.grad = None
        memory = ((torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)), learned, learned * 2)
        _, ((state, count), fixed, _) = how(step, inputs, memory, lambda s, x: (s * x).sum())
        assert count.tolist() == [5, 5]
        assert torch.equal(fixed, learned)
        results.append({"weight": weight.grad.clone(), "learned": learned.grad.clone(), "state": state})
    assert worst(*results)[0] < 1e-10


def test_a_loss_without_a_graph_is_passed_over():
    """Loss at the last step only: earlier steps give zeros that no parameter reaches."""
    cell, results = nn.GRUCell(3, 3), []
    inputs = [(x, k == 3) for k, x in enumerate(torch.randn(4, 2, 3))]

    def loss(output, segment):
        return output.square().sum() if segment[1] else torch.zeros(())

    for how in (bptt, ROLLOUTS["mrbp"]):
        cell.zero_grad()
        how(lambda s, m: (cell(s[0], m),) * 2, inputs, torch.zeros(2, 3), loss)
        results.append(gradients(cell))
    assert worst(*results)[0] < 1e-10
    assert results[0]["weight_hh"].norm() > 0


def test_nothing_to_train_leaves_no_gradient():
    loss, memory = mrbp(
        lambda x, m: (m, m + x), None, [torch.ones(1)] * 3, torch.zeros(1), lambda o, x: o.sum()
    )
    assert loss.item() == 3.0
    assert memory.item() == 3.0
    assert (
        bptt(lambda x, m: (m, m + x), [torch.ones(1)], torch.zeros(1), lambda o, x: o.sum())[0].item() == 0.0
    )


def test_an_empty_rollout_is_refused():
    for how in (bptt, *ROLLOUTS.values()):
        with pytest.raises(ValueError, match="at least one segment"):
            how(lambda x, m: (m, m), [], torch.zeros(1), lambda o, x: o.sum())


def test_the_decoder_is_not_on_the_memory_path():
    model, tokens = memformer(), torch.randint(7, (2, 20))
    calls = []
    model.decoder[0].register_forward_hook(lambda *_: calls.append("decoder"))
    model.encoder[0].register_forward_hook(lambda *_: calls.append("encoder"))
    Mrbp().backward(model, {"tokens": tokens})
    assert calls[:3] == ["encoder"] * 3  # 4 segments: the last memory isn't needed
    assert calls[3:] == ["encoder", "decoder"] * 4


def test_separate_streams_differ_from_step_to_step_and_from_rollout_to_rollout():
    seen = []

    def step(x, memory):
        seen.append(torch.rand(()).item())
        return memory, memory

    for _ in range(2):
        bptt(step, [0, 1, 2], torch.zeros(1), lambda o, x: o.sum(), separate_streams=True)
    assert len(set(seen)) == 6


def test_sabotage_memory_gradient_dropped(monkeypatch):
    model, tokens = memformer(), torch.randint(7, (2, 23))
    truth = trained(Segments(), model, tokens)
    plain = mrbp_module._back

    def dropping(step, loss_fn, segment, start, grads):
        return plain(step, loss_fn, segment, start, [None] * len(grads))

    monkeypatch.setattr(mrbp_module, "_back", dropping)
    assert worst(trained(Mrbp(), model, tokens)[1], truth[1])[0] > 1e-3


def test_sabotage_generator_not_replayed(monkeypatch):
    model, tokens = memformer(dropout=0.3), torch.randint(7, (2, 23))
    truth = trained(Segments(), model, tokens)
    monkeypatch.setattr(mrbp_module, "set_rng_state", lambda state: None)
    assert worst(trained(Mrbp(), model, tokens)[1], truth[1])[0] > 1e-3


def test_cuda_generators_are_saved_and_put_back(monkeypatch):
    """Without a GPU: the calls, with the state that they carry."""
    put = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: ["state of GPU 0"])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", put.append)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: put.append(seed))
    assert rng_state()[1] == ["state of GPU 0"]
    mrbp(lambda x, m: (m, m), None, [0, 1], torch.ones(1), lambda o, x: o.sum())
    assert put == [["state of GPU 0"]] * 3  # two replays, then the end
    put.clear()
    bptt(lambda x, m: (m, m), [0, 1], torch.ones(1), lambda o, x: o.sum(), separate_streams=True)
    assert [isinstance(p, int) for p in put] == [True, True, False]


def test_documentation_example():
    text = (Path(__file__).parents[2] / "docs" / "mrbp.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    torch.set_default_dtype(torch.float32)
    names = {}
    exec(compile(block, "docs/mrbp.md", "exec"), names)
    assert names["start"].grad.norm() > 0
    assert len(names["inputs"]) == 6


def test_measured_gradient_errors_and_their_controls():
    torch.set_default_dtype(torch.float32)
    found = mrbp_gradients(generator=torch.Generator().manual_seed(0), device="cpu", segments=3, batch=2)
    for name in ("error", "error_dropout", "error_cell", "error_initial"):
        assert found[name] < 1e-10
    for name in ("error_memory_dropped", "error_random"):
        assert found[name] > 1e-2
    again = mrbp_gradients(generator=torch.Generator().manual_seed(0), device="cpu", segments=3, batch=2)
    assert again == found
