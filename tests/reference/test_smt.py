"""SMT, DMT and the unrolled rival against their naive twins, and who sees and moves whom."""

import math

import pytest
import torch
from torch.nn import functional as F

from reference.algorithms.dmt import DaggerMemory
from reference.algorithms.smt import SupervisedMemory, sampled_rows, uniformity
from reference.algorithms.unrolled import Unrolled
from reference.measure import predictive_state as predictive_module
from reference.measure.predictive_state import isolation, predictive_state
from reference.models.smt import SMT, Decoder, decode, every_split
from reference.naive import smt as naive


def build(**changes):
    torch.manual_seed(0)
    arguments = {"vocabulary": 5, "width": 8, "heads": 2, "memory": 3}
    layers = {"encoder_layers": 2, "decoder_layers": 2, "updater_layers": 2}
    return SMT(**{**arguments, **layers, **changes}).double()


def draw(size=2, length=5, seed=0, answers=0.6):
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(5, (size, length), generator=g)
    y = torch.randint(5, (size, length), generator=g)
    return {"inputs": x, "targets": y, "mask": torch.rand(size, length, generator=g) < answers}


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters()}


def assert_same_gradients(model, loss):
    """The gradients that the model holds are those of `loss`, everywhere, to 1e-9 of the largest."""
    fast = gradients(model)
    model.zero_grad()
    loss.backward()
    largest = max(g.abs().max() for g in fast.values() if g is not None)
    for name, slow in gradients(model).items():
        assert (slow is None or not slow.any()) == (fast[name] is None or not fast[name].any()), name
        if slow is not None and fast[name] is not None:
            assert (slow - fast[name]).abs().max() <= 1e-9 * largest, name


SHAPES = [
    {"model": {}},
    {"model": {"context": 3}},
    {"model": {"memory_width": 2}},
    {"model": {"memory": 1, "encoder_layers": 1}, "batch": {"size": 1, "length": 2}},
    {"model": {}, "algorithm": {"future": 1}},
    {"model": {}, "algorithm": {"joint": False}},
    {"model": {}, "algorithm": {"future": 3, "buckets": 1}},
    {"model": {}, "batch": {"answers": 0.0}},
    {"model": {}, "batch": {"size": 1, "length": 9, "answers": 1.0}, "algorithm": {"buckets": 20}},
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_smt_is_its_naive_twin(case):
    model, batch = build(**case["model"]), draw(**case.get("batch", {}))
    step = SupervisedMemory(decoding=1.3, dynamics=0.7, uniform=0.2, **case.get("algorithm", {}))
    step.begin(model)
    metrics = step.backward(model, batch)
    dec, dyn, unif = naive.smt_terms(model, batch, step.future, step.joint)
    for name, value in {"dec": dec, "dyn": dyn, "unif": unif}.items():
        assert metrics[name] == pytest.approx(value.item(), abs=1e-10), name
    assert_same_gradients(model, 1.3 * dec + 0.7 * dyn + 0.2 * unif)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"memory_width": 5},
        {"updater": "mlp"},
        {"updater": "mlp", "memory": 1, "memory_width": 5, "updater_layers": 3},
        {"updater": "gru", "updater_layers": 1},
        {"updater": "gru", "memory": 6, "memory_width": 5, "updater_layers": 3},
    ],
    ids=str,
)
def test_every_updater_is_its_naive_twin(changes):
    model, token = build(**changes), torch.tensor([4, 0, 4])
    memory = torch.randn_like(model.first(3)).requires_grad_()
    fast = model.updater(memory, token)
    slow = torch.stack([naive.updated(model, m, t) for m, t in zip(memory, token, strict=True)])
    assert torch.allclose(fast, slow, atol=1e-12, rtol=0)
    weights, inputs = torch.randn_like(slow), (memory, *model.updater.parameters())
    both = (torch.autograd.grad((weights * out).sum(), inputs) for out in (fast, slow))
    for mine, theirs in zip(*both, strict=True):
        assert theirs.any() and torch.allclose(mine, theirs, atol=1e-12, rtol=0)


def test_unstated_weights_are_the_papers():
    smt, dmt = SupervisedMemory(), DaggerMemory()
    assert (smt.decoding, smt.dynamics, smt.uniform) == (1, 0.1, 0.001)
    assert (dmt.dynamics, dmt.readout) == (10, 1)


@pytest.mark.parametrize(("states", "through_time"), [("own", False), ("own", True), ("teacher", False)])
def test_dmt_is_its_naive_twin(through_time, states):
    model, batch = build(), draw()
    step = DaggerMemory(dynamics=2, readout=0.5, states=states, through_time=through_time)
    step.begin(model)
    metrics = step.backward(model, batch)
    dyn, read = naive.dmt_terms(model, batch, through_time, states == "own")
    assert metrics["dyn"] == pytest.approx(dyn.item(), abs=1e-10)
    assert metrics["readout"] == pytest.approx(read.item(), abs=1e-10)
    assert_same_gradients(model, 2 * dyn + 0.5 * read)


@pytest.mark.parametrize("updater", ["transformer", "mlp", "gru"])
@pytest.mark.parametrize("start", ["teacher", "learned"])
@pytest.mark.parametrize(
    "window", [{}, {"every": 3}, {"rollout": 1}, {"at": 2, "rollout": 4, "every": 2}], ids=str
)
def test_judging_all_detached_steps_at_once_is_the_loop_over_steps(window, start, updater):
    model, batch = build(updater=updater, memory=4), draw(length=8)
    step = DaggerMemory(dynamics=1, readout=0, start=start, **window)
    step.begin(model)
    dyn = step.backward(model, batch)["dyn"]
    x = batch["inputs"]
    with torch.no_grad():
        taught = model.teach(x)
    first = step.at + 1 if start == "teacher" else 0
    memory, errors = taught[:, step.at] if start == "teacher" else model.first(len(x)), []
    for t in range(first, min(x.shape[1], first + (step.rollout or x.shape[1]))):
        memory = model.updater(memory, x[:, t])
        if (t - first + 1) % step.every == 0:
            errors.append(F.mse_loss(memory, taught[:, t]))
        memory = memory.detach()
    loop = torch.stack(errors).mean()
    assert dyn == pytest.approx(loop.item(), abs=1e-12)
    assert_same_gradients(model, loop)


@pytest.mark.parametrize("start", ["learned", "teacher"])
def test_the_unrolled_rival_is_its_naive_twin(start):
    model, batch = build(), draw()
    step = Unrolled(readout=0.3, start=start)
    step.begin(model)
    metrics = step.backward(model, batch)
    loss = 0.3 * naive.unrolled_loss(model, batch, start)
    assert metrics["loss"] == pytest.approx(loss.item(), abs=1e-10)
    assert_same_gradients(model, loss)


@pytest.mark.parametrize("length", [1, 5, 16])
@pytest.mark.parametrize("future", [None, 1, 4])
def test_groups_of_like_length_change_nothing(length, future):
    model, batch = build(), draw(size=3, length=length)
    rows, ends = every_split(batch["inputs"])
    reference = model.encode(batch["inputs"], rows, ends, buckets=1)
    logits, answers = decode(model.decoder, reference, batch, rows, ends, future, buckets=1)
    for buckets in (2, 7, 100):
        memory = model.encode(batch["inputs"], rows, ends, buckets)
        assert torch.allclose(memory, reference, atol=1e-12, rtol=0)
        again, wanted = decode(model.decoder, memory, batch, rows, ends, future, buckets)
        assert len(wanted) == len(answers)
        loss, other = (
            F.cross_entropy(z, a, reduction="sum") for z, a in ((logits, answers), (again, wanted))
        )
        assert other.item() == pytest.approx(loss.item(), abs=1e-10)


# Contexts from 4 tokens on; the latest split leaves room for its successor and for a whole window.
@pytest.mark.parametrize(("earliest", "future", "latest"), [(3, 4, 8), (3, None, 10), (3, 1, 10), (0, 11, 1)])
def test_one_split_a_sequence_takes_a_context_and_its_successor(earliest, future, latest):
    model, batch = build(context=4, encoder_layers=1), draw(size=3, length=12, answers=1.0)
    step = SupervisedMemory(splits=2, earliest=earliest, future=future, uniform=0)
    torch.manual_seed(3)
    metrics = step.backward(model, batch)
    torch.manual_seed(3)
    ends = torch.randint(earliest, latest + 1, (6,))
    errors, losses = [], []
    for row, end in zip([0, 0, 1, 1, 2, 2], ends.tolist(), strict=True):
        x, y = batch["inputs"][row], batch["targets"][row]
        memory = naive.encoded(model, x[: end + 1])
        after = naive.encoded(model, x[: end + 2])
        errors.append((naive.updated(model, memory, x[end + 1]) - after).square().mean())
        last = 12 if future is None else end + future
        logits = naive.decoded(model.decoder, memory, x[end + 1 : last])
        losses.append(F.cross_entropy(logits, y[end:last], reduction="none"))
    assert metrics["dyn"] == pytest.approx(torch.stack(errors).mean().item(), abs=1e-10)
    assert metrics["dec"] == pytest.approx(torch.cat(losses).mean().item(), abs=1e-10)


@pytest.mark.parametrize("future", [None, 1, 4])
def test_every_split_with_room_is_drawn(future, monkeypatch):
    drawn = set()

    def encode(model, x, rows, ends, buckets):
        drawn.update(ends.chunk(2)[0].tolist())
        return SMT.encode(model, x, rows, ends, buckets)

    model = build(encoder_layers=1)
    monkeypatch.setattr(model, "encode", encode.__get__(model))
    SupervisedMemory(splits=60, earliest=2, future=future).backward(model, draw(size=2, length=9))
    assert drawn == set(range(2, {None: 8, 1: 8, 4: 6}[future]))  # a successor, and a whole window


@pytest.mark.parametrize("context", [None, 4])
def test_what_must_not_be_seen_is_not_seen(context, monkeypatch):
    monkeypatch.setattr(predictive_module, "small_model", lambda *_: build(vocabulary=7, context=context))
    found = predictive_state(torch.Generator().manual_seed(0), "cpu")
    assert max(found.values()) <= 1e-12


def test_the_encoder_sees_its_context_and_nothing_older():
    model, x = build(context=3), draw(size=1, length=7)["inputs"]
    changes = [model.teach(torch.where(torch.arange(7) == place, (x + 1) % 5, x)) for place in range(7)]
    seen = [[bool((m[0, t] - model.teach(x)[0, t]).abs().max() > 1e-9) for m in changes] for t in range(7)]
    assert seen == [[t - 3 < place <= t for place in range(7)] for t in range(7)]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"early": 1}, "encoder_change"),
        ({"early": 1}, "decoder_change"),
        ({"timestamps": False}, "order_change"),
    ],
)
def test_the_check_of_what_is_seen_can_fail(change, name):
    assert predictive_state(torch.Generator().manual_seed(0), "cpu", **change)[name] > 1e-3


def test_what_must_not_be_seen_is_looked_for_in_every_window(monkeypatch):
    def peeping(decoder, memory, future=None):
        return whole(decoder, memory, None if future is None else future.roll(-1, 1))  # y_τ reads x_(τ+1)

    whole = Decoder.features
    monkeypatch.setattr(Decoder, "features", peeping)
    assert predictive_state(torch.Generator().manual_seed(0), "cpu")["decoder_change"] > 1e-3


def test_a_decoder_that_is_handed_later_tokens_is_noticed(monkeypatch):
    def shifted(decoder, memory, batch, *rest, **options):
        return decode(decoder, memory, {**batch, "inputs": batch["inputs"].roll(-1, 1)}, *rest, **options)

    monkeypatch.setattr(predictive_module, "decode", shifted)
    assert predictive_state(torch.Generator().manual_seed(0), "cpu")["decoder_change"] > 1e-3


def test_losses_stay_where_they_belong():
    assert set(isolation(torch.Generator().manual_seed(0), "cpu").values()) == {0.0}


def test_the_check_of_isolation_can_fail():
    found = isolation(torch.Generator().manual_seed(0), "cpu", training="unrolled", joint=True)
    assert min(found.values()) > 1e-6
    with pytest.raises(ValueError, match="choose from dmt, unrolled"):
        isolation(torch.Generator(), "cpu", training="other")


def test_isolation_notices_joint_dynamics_after_dmt():
    found = isolation(torch.Generator().manual_seed(0), "cpu", joint=True)
    assert found["encoder_from_dynamics"] > 1e-6


def test_isolation_looks_at_the_readouts_loss_and_nothing_else():
    found = isolation(torch.Generator().manual_seed(0), "cpu", training="unrolled", readout=0.0)
    assert found["updater_from_readout"] == 0


def test_isolation_notices_a_readout_that_reaches_the_updater(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "detach", lambda tensor: tensor)
    assert isolation(torch.Generator().manual_seed(0), "cpu", steps=0)["updater_from_readout"] > 1e-6


@pytest.mark.parametrize("states", ["own", "teacher"])
def test_dmt_teaches_updater_and_readout_and_nobody_else(states):
    model = build()
    step = DaggerMemory(states=states)
    step.begin(model)
    step.backward(model, draw(answers=1.0))
    for name, p in model.named_parameters():
        learns = name.startswith("updater") or (
            name.startswith("readout") and name != "readout.embedding.weight"  # a readout sees no tokens
        )
        assert (p.grad is not None and bool(p.grad.any())) == learns, name


def test_smt_after_dmt_teaches_encoder_and_decoder_again():
    model = build()
    for step in (DaggerMemory(), SupervisedMemory()):
        step.begin(model)
    step.backward(model, draw(answers=1.0))
    for name, p in model.named_parameters():
        learns = name.startswith(("encoder", "decoder", "updater"))
        assert (p.grad is not None and bool(p.grad.any())) == learns, name


def test_dmt_starts_the_readout_from_the_decoder_and_may_begin_twice():
    model = build()
    DaggerMemory().begin(model)
    for mine, theirs in zip(model.readout.parameters(), model.decoder.parameters(), strict=True):
        assert torch.equal(mine, theirs) and mine.requires_grad and not theirs.requires_grad
    before = {name: p.clone() for name, p in model.state_dict().items()}
    DaggerMemory().begin(model)
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())


def test_a_learned_start_learns_in_dmt_even_when_states_are_detached():
    model = build()
    step = DaggerMemory(start="learned")
    step.begin(model)
    step.backward(model, draw())
    assert model.start.grad is not None and model.start.grad.any()


def test_rollout_window_and_every_nth_state():
    model, batch = build(), draw(length=12)
    model.requires_grad_(False)
    x = batch["inputs"]
    taught = model.teach(x)
    rolled = model.roll(taught[:, 2], x[:, 3:9])
    step = DaggerMemory(at=2, rollout=6, every=3)
    step.begin(model)
    expected = (rolled[:, [2, 5]] - taught[:, [5, 8]]).square().mean()
    assert step.backward(model, batch)["dyn"] == pytest.approx(expected.item(), abs=1e-12)


def test_every_nth_state_from_the_teachers_before_it():
    model, batch = build(), draw(length=12)
    step = DaggerMemory(states="teacher", at=1, every=3, readout=0, dynamics=1)
    step.begin(model)
    dyn = step.backward(model, batch)["dyn"]
    x = batch["inputs"]
    with torch.no_grad():
        taught = model.teach(x)
    loop = torch.stack(
        [F.mse_loss(model.updater(taught[:, t - 1], x[:, t]), taught[:, t]) for t in (4, 7, 10)]
    ).mean()
    assert dyn == pytest.approx(loop.item(), abs=1e-12)
    assert_same_gradients(model, loop)


def test_shuffled_targets_are_another_sequences():
    model, batch = build(), draw(size=3)
    step = DaggerMemory(targets="shuffled")
    step.begin(model)
    dyn = step.backward(model, batch)["dyn"]
    with torch.no_grad():
        taught = model.teach(batch["inputs"])
        rolled = model.roll(taught[:, 0], batch["inputs"][:, 1:])
    assert dyn == pytest.approx((rolled - taught.roll(1, 0)[:, 1:]).square().mean().item(), abs=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"states": "mine"},
        {"targets": "none"},
        {"start": "zero"},
        {"states": "teacher", "start": "learned"},
        {"states": "teacher", "through_time": True},
    ],
)
def test_dmt_names_what_it_knows(wrong):
    with pytest.raises(ValueError, match=r"choose from|teacher states need|choose states"):
        DaggerMemory(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"future": 0},
        {"splits": 0},
        {"buckets": 0},
        {"decoding": -1},
        {"dynamics": -0.1},
        {"uniform": math.nan},
        {"splits": 1, "earliest": -1},
        {"earliest": 2},
    ],
    ids=str,
)
def test_smt_refuses_what_it_cannot_do(wrong):
    with pytest.raises(ValueError, match=r"≥ 1|0 or more"):
        SupervisedMemory(**wrong)


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({}, 1),
        ({"splits": 1}, 1),
        ({"splits": 1, "earliest": 9}, 10),
        ({"splits": 1, "earliest": 7, "future": 4}, 10),
        ({"splits": 1, "future": 10}, 10),  # whole windows: every split would stand at position 0
        ({"splits": 1, "future": 11}, 10),
    ],
    ids=str,
)
def test_smt_refuses_sequences_without_room(options, length):
    with pytest.raises(ValueError, match=r"2 tokens or more|too few"):
        SupervisedMemory(**options).backward(build(), draw(length=length))


def test_uniformity_of_one_row_is_refused():
    with pytest.raises(ValueError, match="2 or more"):
        uniformity(torch.ones(1, 4))


@pytest.mark.parametrize(
    "wrong",
    [
        {"every": 0},
        {"at": -1},
        {"rollout": 0},
        {"buckets": 0},
        {"dynamics": -1},
        {"readout": math.nan},
    ],
    ids=str,
)
def test_dmt_refuses_what_it_cannot_do(wrong):
    with pytest.raises(ValueError, match=r"≥ 1|0 or more"):
        DaggerMemory(**wrong)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"every": 16}, 2),
        ({"every": 3, "rollout": 2}, 2),
        ({"at": 9}, 2),
        ({"at": 12}, 2),
        ({"targets": "shuffled"}, 1),
    ],
    ids=str,
)
def test_dmt_refuses_batches_without_anything_to_compare(options, size):
    with pytest.raises(ValueError, match=r"are rolled|2 sequences"):
        DaggerMemory(**options).backward(build(), draw(size=size, length=10))


def test_the_unrolled_rival_refuses_what_it_cannot_do():
    for wrong in ({"start": "zeros"}, {"readout": -1}):
        with pytest.raises(ValueError, match=r"choose from|0 or more"):
            Unrolled(**wrong)
    with pytest.raises(ValueError, match="2 tokens or more"):
        Unrolled(start="teacher").backward(build(), draw(length=1))


@pytest.mark.parametrize("updater", ["transformer", "mlp", "gru"])
def test_every_updater_learns_one_step(updater):
    model = build(updater=updater, memory=4)
    memory, token = model.first(3).detach(), torch.tensor([0, 1, 4])
    target = torch.randn(3, 4, 8, dtype=torch.float64) * 0.5
    optimiser = torch.optim.Adam(model.updater.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = F.mse_loss(model.updater(memory, token), target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert model.updater(memory, token).shape == (3, 4, 8)
    assert losses[-1] < 0.6 * losses[0]
    out = model.updater(memory, token).square().mean(-1)
    assert torch.allclose(out, torch.ones_like(out), atol=1e-6) == (updater != "gru")


def test_memories_have_unit_scale_and_two_dimensions_when_asked():
    memory = build(memory_width=2, memory=1).teach(draw()["inputs"])
    assert memory.shape == (2, 5, 1, 2)
    assert torch.allclose(memory.square().mean(-1), torch.ones(2, 5, 1, dtype=torch.float64))


def test_impossible_models():
    with pytest.raises(ValueError, match="choose from transformer, mlp, gru"):
        build(updater="lstm")
    with pytest.raises(ValueError, match="shared out"):
        build(updater="gru", memory=3)
    with pytest.raises(ValueError, match="even width a head"):
        build(width=6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"context": 0},
        {"memory": 0},
        {"memory_width": 0},
        {"heads": 0},
        {"vocabulary": 0},
        {"updater": "mlp", "updater_layers": 0},
        {"updater": "gru", "updater_layers": 0},
    ],
    ids=str,
)
def test_models_have_no_part_of_size_0(wrong):
    with pytest.raises(ValueError, match="1 or more"):
        build(**wrong)


def test_uniformity_is_zero_at_collapse_and_about_minus_four_when_spread():
    assert uniformity(torch.ones(20, 64, dtype=torch.float64)) == pytest.approx(0, abs=1e-12)
    spread = torch.randn(512, 256, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert uniformity(spread) == pytest.approx(-4, abs=0.05)
    opposite = torch.tensor([[1.0, 0.0], [-3.0, 0.0]], dtype=torch.float64)  # 2 apart after normalisation
    assert uniformity(opposite) == pytest.approx(-8)


def test_uniformity_looks_at_512_rows_at_most():
    rows = sampled_rows(torch.arange(1200.0).view(20, 30, 2, 1))
    assert rows.shape == (512, 1) and len(rows.unique()) == 512
    assert sampled_rows(torch.zeros(3, 5, 2, 4)).shape == (30, 4)
    again = sampled_rows(torch.arange(1200.0).view(20, 30, 2, 1))
    assert set(rows.flatten().tolist()) != set(again.flatten().tolist())  # drawn from all, each time anew
    assert rows.max() > 1000 > 200 > rows.min()
