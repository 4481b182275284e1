"""The measures of SMT, each against a plain computation of what it says."""

import collections
import copy
import inspect
import math
from statistics import correlation

import pytest
import torch

from reference.algorithms.smt import SupervisedMemory
from reference.measure import drift as drift_module
from reference.measure import sequential_depth as depth_module
from reference.measure.drift import drift, lengths
from reference.measure.gradient_distance import gradient_distance
from reference.measure.memory_uniformity import memory_uniformity
from reference.measure.sequential_depth import Counter, degree, sequential_depth
from reference.measure.smt_speed import PackedRows, PrefixLoop, difference, main, packed
from reference.models.smt import SMT, unit
from reference.tasks.retrieval import Retrieval
from reference.tasks.stack import Stack

TASK = Stack(length=10, symbols=3, depth=3)


def build(**changes):
    torch.manual_seed(0)
    small = {"vocabulary": 5, "width": 16, "heads": 2, "memory": 2}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "updater_layers": 1}
    return SMT(**{**small, **layers, **changes})


def seeded():
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize("readout", ["decoder", "readout"])
@pytest.mark.parametrize(("start", "first"), [("teacher", 1), ("learned", 0)])
def test_drift_is_one_minus_r_squared_by_step(start, first, readout):
    model, size = build(), 16
    readers = getattr(model, readout), model.decoder  # of the rollout, of the teacher
    with torch.no_grad():
        states = model.teach(TASK.sample(size, seeded())["inputs"]).flatten(0, 1)
        for head in dict.fromkeys(readers):
            head.head.bias -= head(states)[:, 0].mean(0)  # so that no class wins everywhere
    found = drift(model, TASK, seeded(), size=size, readout=readout, start=start)
    batch = TASK.sample(size, seeded())
    x = batch["inputs"]
    asked, hits, losses = 0, [0, 0], [0.0, 0.0]  # of the rollout, of the teacher
    single_errors, rolled_errors = torch.zeros(size, 10), torch.zeros(size, 10)
    with torch.no_grad():
        taught = model.teach(x)
        memory = taught[:, 0] if start == "teacher" else model.first(size)
        for step, t in enumerate(range(first, 10)):
            memory = model.updater(memory, x[:, t])
            error = (memory - taught[:, t]).square()
            spread = (taught[:, t] - taught[:, t].mean(0)).square()
            assert found["drift"][step] == pytest.approx((error.sum() / spread.sum()).item(), rel=1e-4)
            assert found["drift_mse"][step] == pytest.approx(error.mean().item(), rel=1e-4)
            rolled_errors[:, t] = error.mean((1, 2))
            logits = [
                head(m)[:, 0].log_softmax(1) for head, m in zip(readers, (memory, taught[:, t]), strict=True)
            ]
            for row in range(size):
                if batch["mask"][row, t]:
                    answer = batch["targets"][row, t]
                    for who in (0, 1):
                        losses[who] -= logits[who][row, answer].item()
                        hits[who] += int(logits[who][row].argmax() == answer)
                    asked += 1
            if t:
                single = model.updater(taught[:, t - 1], x[:, t])
                error = (single - taught[:, t]).square()
                single_errors[:, t] = error.mean((1, 2))
                assert found["one_step"][t - 1] == pytest.approx(
                    (error.sum() / spread.sum()).item(), rel=1e-4
                )
                assert found["one_step_mse"][t - 1] == pytest.approx(error.mean().item(), rel=1e-4)
    assert len(found["drift"]) == 10 - first and len(found["one_step"]) == 9
    for who, name in enumerate(("", "teacher_")):
        assert found[f"{name}loss"] == pytest.approx(losses[who] / asked, rel=1e-4)
        assert found[f"{name}accuracy"] == pytest.approx(hits[who] / asked)
    assert found["first_drift"] == found["drift"][0]
    assert found["one_step_mean"] == pytest.approx(sum(found["one_step"]) / 9, rel=1e-5)
    assert found["one_step_late"] == pytest.approx(sum(found["one_step"][-3:]) / 3, rel=1e-5)
    assert found["late_mse"] == pytest.approx(sum(found["drift_mse"][-3:]) / 3, rel=1e-5)
    together = correlation(single_errors[:, 1:].mean(1).tolist(), rolled_errors[:, -3:].mean(1).tolist())
    assert found["explained"] == pytest.approx(together**2, rel=1e-3, abs=1e-5)
    assert found["late_drift"] == pytest.approx(sum(found["drift"][-3:]) / 3, rel=1e-5)
    assert found["late_rise"] == pytest.approx(found["late_drift"] - sum(found["drift"][-6:-3]) / 3, rel=1e-5)
    assert found["growth"] == pytest.approx(found["late_drift"] / found["one_step_late"], rel=1e-5)
    assert 2 ** found["doublings"] == pytest.approx(found["growth"])
    assert hits[0] != hits[1]  # else the rollout's accuracy would pass for the teacher's


def test_a_student_that_is_the_teacher_has_no_drift():
    class Perfect(SMT):
        """The memory is the last token, so one update is exact."""

        def encode(self, x, rows, ends, buckets=4):
            return self.updater(self.first(len(rows)), x[rows, ends])

    model = build()
    model.__class__ = Perfect
    model.updater.forward = lambda memory, token: unit(
        model.updater.embedding(token)[:, None].expand_as(memory)
    )
    found = drift(model, TASK, seeded(), size=40, readout="decoder")
    assert max(found["drift"]) == 0 == max(found["one_step"])
    assert found["loss"] == pytest.approx(found["teacher_loss"])


def test_wrong_names_are_refused():
    with pytest.raises(ValueError, match="readout, decoder"):
        drift(build(), TASK, seeded(), size=2, readout="head")
    with pytest.raises(ValueError, match="teacher, learned"):
        drift(build(), TASK, seeded(), size=2, start="zeros")
    with pytest.raises(ValueError, match="2 or more, not 1"):
        drift(build(), TASK, seeded(), size=1)
    for start, length in (("teacher", 2), ("learned", 1)):
        with pytest.raises(ValueError, match=f"{length + 1} tokens or more"):
            drift(build(), Stack(length, 3, 3), seeded(), start=start)
    with pytest.raises(ValueError, match="unrolled, decoder"):
        gradient_distance(build(), Retrieval(5, 3), seeded(), path="encoder")
    with pytest.raises(ValueError, match="answer at the last position"):
        gradient_distance(build(), TASK, seeded(), path="decoder")
    with pytest.raises(ValueError, match="no room"):
        lengths(build(), TASK, seeded(), at=(4,), positions=4)
    with pytest.raises(ValueError, match="no answer"):
        lengths(build(), Retrieval(40, 3), seeded(), at=(40,), size=1, positions=1)
    with pytest.raises(ValueError, match="evenly spaced"):
        sequential_depth(seeded(), "cpu", lengths=(1, 2, 4, 8))
    for uneven in ((8, 10, 12, 14), (4, 8, 12, 16)):  # groups of several sizes; groups without padding
        with pytest.raises(ValueError, match="4 times 2 or more"):
            sequential_depth(seeded(), "cpu", lengths=uneven)
    with pytest.raises(ValueError, match="student, teacher"):
        sequential_depth(seeded(), "cpu", inference="rnn")


@pytest.mark.parametrize("readout", ["decoder", "readout"])
def test_lengths_judge_student_and_teacher_at_the_same_answers(readout):
    model = build()
    found = lengths(model, TASK, seeded(), at=(6, 12), size=8, positions=5, readout=readout)
    assert found["gain_at_12"] == pytest.approx(found["teacher_at_12"] - found["student_at_12"])
    assert found["excess_at_12"] == pytest.approx(found["student_at_12"] - found["teacher_at_6"])
    g = seeded()
    batch = Stack(6, 3, 3).sample(8, g)
    x, mask = batch["inputs"], batch["mask"].clone()
    mask[:, 0] = False  # 5 places out of 5: all but the first
    with torch.no_grad():
        taught = model.teach(x)
        rolled = torch.cat((taught[:, :1], model.roll(taught[:, 0], x[:, 1:])), 1)
        for name, memory, head in (
            ("teacher", taught, model.decoder),
            ("student", rolled, getattr(model, readout)),
        ):
            logits = head(memory.flatten(0, 1))[:, 0].view(8, 6, -1)[mask]
            loss = torch.nn.functional.cross_entropy(logits, batch["targets"][mask]).item()
            assert found[f"{name}_at_6"] == pytest.approx(loss, rel=1e-4)


def test_lengths_judge_places_all_over_the_sequence(monkeypatch):
    judged = []

    def decode(decoder, memory, batch, rows, ends, **options):
        judged.append(ends.view(2, 16).tolist())
        return drift_decode(decoder, memory, batch, rows, ends, **options)

    drift_decode = drift_module.decode
    monkeypatch.setattr(drift_module, "decode", decode)
    lengths(build(), TASK, seeded(), at=(40,), size=2, positions=16)
    (places, same), again = judged
    assert places == same and [places, same] == again  # of both sequences, of student and teacher
    assert len(set(places)) == 16 and 0 < min(places) < 10 and 30 < max(places) < 40


def test_a_teacher_that_falls_apart_is_worth_a_guess():
    model, task = build(), Stack(length=6, symbols=3, depth=3)
    options = {"at": (6,), "size": 8, "positions": 5, "readout": "decoder"}
    found = lengths(model, task, seeded(), **options)
    batch = task.sample(8, seeded())
    wanted = batch["targets"][:, 1:][batch["mask"][:, 1:]].tolist()
    often = [count / len(wanted) for count in collections.Counter(wanted).values()]
    guess = -sum(p * math.log(p) for p in often)
    assert len(often) == 3 and found["guess_at_6"] == pytest.approx(guess)
    assert found["teacher_at_6"] > guess
    assert found["lead_at_6"] == pytest.approx(guess - found["student_at_6"])

    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        optimiser.zero_grad()
        SupervisedMemory().backward(model, batch)
        optimiser.step()
    found = lengths(model, task, seeded(), **options)
    assert found["teacher_at_6"] < guess == pytest.approx(found["guess_at_6"])
    assert found["lead_at_6"] == pytest.approx(found["gain_at_6"])


def test_gradient_by_distance_is_the_norm_at_each_memory():
    model, task = build(), Retrieval(length=6, symbols=4)
    batch = task.sample(4, seeded())
    x, answer = batch["inputs"], batch["targets"][:, -1]
    found = gradient_distance(model, task, seeded(), path="unrolled", gains=(1.0, 2.0), size=4)
    double = build().double()
    for back in (0, 3):
        norms = []
        for row in range(4):
            memory = double.first(1).detach()
            for t in range(6 - back):
                memory = double.updater(memory, x[row : row + 1, t])
            leaf = memory.detach().requires_grad_()
            memory = leaf
            for t in range(6 - back, 6):
                memory = double.updater(memory, x[row : row + 1, t])
            loss = -double.readout(memory)[0, 0].log_softmax(0)[answer[row]]
            norms.append(torch.autograd.grad(loss, leaf)[0].norm().item())
        assert found["norms_at_1"][back] == pytest.approx(sum(norms) / 4, rel=1e-9)
    assert found["span_at_1"] == pytest.approx(
        math.log10(max(found["norms_at_1"]) / min(found["norms_at_1"]))
    )
    assert found["worst_span"] == max(found["span_at_1"], found["span_at_2"])
    assert found["norms_at_1"] != found["norms_at_2"]

    through = gradient_distance(model, task, seeded(), path="decoder", size=4)
    taught = double.teach(x).detach()
    norms = []
    for row in range(4):
        leaf = taught[row, 2:3].clone().requires_grad_()
        loss = -double.decoder(leaf, x[row : row + 1, 3:])[0, -1].log_softmax(0)[answer[row]]
        norms.append(torch.autograd.grad(loss, leaf)[0].norm().item())
    assert through["norms_at_1"][3] == pytest.approx(sum(norms) / 4, rel=1e-9)
    assert next(model.parameters()).dtype == torch.float32  # the model itself is left alone


@pytest.mark.parametrize("path", ["unrolled", "decoder"])
def test_a_gain_scales_the_matrices_of_updater_decoder_and_readout(path):
    model, task = build(), Retrieval(length=6, symbols=4)
    by_hand = copy.deepcopy(model)
    with torch.no_grad():
        for name, p in by_hand.named_parameters():
            if name.split(".")[0] in ("updater", "decoder", "readout") and p.dim() == 2:
                p.mul_(2)
    found = gradient_distance(model, task, seeded(), path=path, gains=(2.0,), size=4)
    expected = gradient_distance(by_hand, task, seeded(), path=path, size=4)
    assert found["norms_at_2"] == pytest.approx(expected["norms_at_1"], rel=1e-9)


def test_spread_and_rank_are_those_of_the_covariance():
    model = build(width=32, memory=4)
    found = memory_uniformity(model, TASK, seeded(), size=20)
    memory = model.teach(TASK.sample(20, seeded())["inputs"]).detach().double().flatten(0, 1)
    whole = memory.flatten(1)
    covariance = torch.cov(whole.T)
    assert found["rank"] == pytest.approx((covariance.trace() ** 2 / covariance.square().sum()).item())
    assert found["spread"] == pytest.approx(whole.var(0, correction=0).mean().item())
    for name, rows in (("uniformity", memory.flatten(0, 1)), ("memory_uniformity", whole)):
        apart = torch.pdist(rows / rows.norm(dim=1, keepdim=True))
        assert found[name] == pytest.approx((-2 * apart.square()).exp().mean().log().item())


def test_uniformity_of_spread_and_collapsed_memories():
    model = build(width=32, memory=4)
    found = memory_uniformity(model, TASK, seeded(), size=20)
    assert found["uniformity"] < -0.5 and found["spread"] > 0.001 and found["rank"] > 1
    with torch.no_grad():
        model.encoder.layers.blocks[0].merge.weight.zero_()  # registers see nothing
    collapsed = memory_uniformity(model, TASK, seeded(), size=20)
    assert collapsed["spread"] < 1e-12 and collapsed["rank"] == 0
    assert collapsed["memory_uniformity"] == pytest.approx(0, abs=1e-6)


def test_the_counter_counts_what_waits():
    a, b = torch.ones(3, 4), torch.ones(4, 5)
    with Counter() as chain:
        out = a
        for _ in range(5):
            out = out * 2
    assert chain.depth == 5
    with Counter() as beside:
        torch.cat([a * i for i in range(5)]).view(-1).t().relu_()
    assert beside.depth == 3  # one product, cat, relu; views are free
    bias = torch.ones(5)
    with Counter() as product:
        torch.addmm(bias, a, b).add_(1)
    assert product.flops == 2 * 3 * 4 * 5 and product.depth == 2


def test_the_counter_agrees_with_torch_on_flops():
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    model = build()
    x = TASK.sample(3, seeded())["inputs"]
    with sdpa_kernel(SDPBackend.MATH), Counter() as mine:
        model.teach(x).sum().backward()
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as theirs:
        model.teach(x).sum().backward()
    assert mine.flops == theirs.get_total_flops() > 0


def test_degree_of_a_polynomial():
    points = (3, 5, 7, 9, 11)
    assert degree([4.0] * 5) == 0
    assert degree([2.0 * t + 1 for t in points]) == 1
    assert degree([t * t - 3.0 for t in points]) == 2
    assert degree([2.0**t for t in points]) == -1


SMALL = {"width": 8, "heads": 2, "memory": 2, "encoder_layers": 2, "decoder_layers": 1, "updater_layers": 1}


TABLE_1 = {
    "depth_bptt": 1,
    "depth_smt": 0,
    "depth_smt_all": 0,
    "depth_dmt": 1,
    "credit_bptt": 1,
    "credit_smt": 0,
    "credit_dmt": 0,
    "flops_bptt": 1,
    "flops_smt": 2,
    "saved_bptt": 1,
    "saved_smt": 1,
    "state": 0,
}


def test_costs_grow_as_table_1_has_it():
    steps = {"smt_steps": 1000, "dmt_steps": 300, "run_length": 100}
    found = sequential_depth(seeded(), "cpu", **SMALL, lengths=(8, 12, 16, 20), window=3, **steps)
    assert {name: found[f"degree_{name}"] for name in TABLE_1} == TABLE_1
    assert found["state"] == [16] * 4 and found["largest_state"] == 16
    assert found["product_smt"] == 0 < found["product_bptt"]

    def at(name, length):
        first, *_, last = found[f"depth_{name}"]
        return first + (last - first) / 12 * (length - 8)

    smt, dmt, longer = 1000 * at("smt", 0), 300 * at("dmt", 100), 300 * at("dmt", 200)
    assert found["run_smt"] == smt == 1000 * found["depth_smt"][2]
    assert found["run_dmt"] == pytest.approx(dmt)
    assert found["run_bptt"] == pytest.approx(1300 * at("bptt", 100))
    assert found["run_ratio"] == pytest.approx((smt + dmt) / (1300 * at("bptt", 100)))
    assert found["run_growth"] == pytest.approx((smt + longer) / (smt + dmt)) and found["run_growth"] > 1


def test_whole_runs_are_as_long_as_the_papers():
    defaults = {name: p.default for name, p in inspect.signature(sequential_depth).parameters.items()}
    assert (defaults["smt_steps"], defaults["dmt_steps"], defaults["run_length"]) == (150_000, 1_500, 256)


def test_other_ways_cost_more():
    ways = {"through_time": True, "group_per_prefix": True, "fused": False, "inference": "teacher"}
    found = sequential_depth(seeded(), "cpu", **SMALL, lengths=(8, 12, 16, 20), window=3, dmt_steps=0, **ways)
    other = {"credit_dmt": 1, "depth_smt_all": 1, "saved_smt": 2, "state": 1}
    assert {name: found[f"degree_{name}"] for name in TABLE_1} == TABLE_1 | other
    assert found["product_smt"] > 0
    assert found["state"] == [7, 11, 15, 19] and found["largest_state"] == 19
    assert found["run_growth"] == 1


def test_a_state_that_grows_is_noticed(monkeypatch):
    model = build(vocabulary=8)
    assert [depth_module._state(model, t, "student") for t in (4, 8)] == [32, 32]
    monkeypatch.setattr(model.updater, "forward", lambda memory, token: torch.cat((memory, memory[:, :1]), 1))
    assert [depth_module._state(model, t, "student") for t in (4, 8)] == [32 + 3 * 16, 32 + 7 * 16]


def test_bytes_kept_are_those_of_what_is_computed():
    model, x = torch.nn.Linear(3, 5), torch.ones(7, 3, requires_grad=True)  # so the weight is kept as well
    kept = depth_module._saved_bytes(model, lambda: model(x).square().sum().backward())
    assert kept == x.nbytes + 4 * 7 * 5  # the input and the output once, no parameter


def test_the_counted_sequence_is_asked_at_its_end():
    batch = depth_module._batch(5)
    assert batch["mask"].tolist() == [[False] * 4 + [True]] and batch["inputs"].shape == (1, 5)
    step, data = depth_module._one_split(6, 3)  # tokens 0 … 5 are the context, the answer ends the window
    assert (step.earliest, step.future, data["inputs"].shape) == (5, 3, (1, 8))
    assert step.backward(build(vocabulary=8), data)["dec"] > 0


def test_the_longest_way_to_a_weight():
    w = torch.ones(3, requires_grad=True)
    assert depth_module._path(((w * 2).exp() + w).sum()) == 4  # sum, add, exp, mul
    assert depth_module._path((w.detach().exp() + w).sum()) == 2


@pytest.mark.parametrize("other", [PrefixLoop, PackedRows])
@pytest.mark.parametrize("future", [None, 2])
def test_other_ways_through_the_encoder_compute_the_same_step(other, future):
    model = build(memory_width=4).double()
    step = SupervisedMemory(future=future)
    assert difference(model, step, other(future=future), TASK.sample(3, seeded())) < 1e-12
    assert difference(model, step, other(future=future, dynamics=0.2), TASK.sample(3, seeded())) > 1e-3


def test_packed_rows_keep_each_prefix_to_itself():
    model, x = build().double(), TASK.sample(3, seeded())["inputs"]
    assert torch.allclose(packed(model.encoder, x), model.teach(x), atol=1e-12, rtol=0)


def test_the_speed_table_names_every_way(capsys):
    main(["--length", "6", "--batch", "2", "--width", "16", "--repeats", "2"])
    printed = capsys.readouterr().out
    assert printed.count("differs in loss and gradients") == 4 and printed.count("× the grouped step") == 3
