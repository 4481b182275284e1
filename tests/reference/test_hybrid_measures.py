"""Accuracies by length, what attention looks at, and the speed of the hybrids."""

import argparse
import math
from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from reference.algorithms.delayed_attention import Participation
from reference.measure import attention_dilution as dilution_module
from reference.measure import hybrid_speed, sab_speed, smt_speed
from reference.measure.answer_accuracy import by_length, evaluate, validation
from reference.measure.arguments import told
from reference.measure.attention_dilution import attention_dilution, auc
from reference.measure.timing import Ratio
from reference.models import hybrids
from reference.tasks.modulo_recall import MODULO, ModuloRecall

TASK = ModuloRecall(modulus=4, keys=9, longest=3)


def generator():
    return torch.Generator().manual_seed(0)


class Scripted(nn.Module):
    """Reads the answers off the prefix; "wrong" on all of a question, or on "half": odd sums, odd values."""

    def __init__(self, modulo="right", recall="right"):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.modulo, self.recall, self.training_seen, self.widths = modulo, recall, [], []

    def forward(self, inputs, at):
        self.training_seen.append(self.training)
        self.widths.append(inputs.shape[1])
        logits = torch.zeros(len(inputs), len(at), TASK.vocabulary)
        for row, tokens in enumerate(inputs.tolist()):
            end = tokens.index(MODULO) if MODULO in tokens else tokens.index(2)
            keys, values = tokens[1:end:2], [t - 3 for t in tokens[2:end:2]]
            for column, position in enumerate(at.tolist()):
                if tokens[position] == MODULO:
                    answer, how = sum(values) % 4, self.modulo
                else:
                    answer, how = values[keys.index(tokens[position])], self.recall
                wrong = how == "wrong" or (how == "half" and answer % 2)
                logits[row, column, 3 + (answer + wrong) % 4] = 1.0
        return logits


def test_a_sample_is_joint_only_if_both_answers_are_right():
    perfect = by_length(
        model=Scripted(), task=TASK, generator=generator(), inside=[3], beyond=[5, 9], sequences=50, batch=20
    )
    assert set(perfect) == {f"{name}@{n}" for name in ("joint", "modulo", "recall") for n in (3, 5, 9)}
    assert set(perfect.values()) == {1.0}
    model = Scripted(modulo="half", recall="half")
    found = evaluate(model, TASK.at(4), generator(), 400, 150)
    batch = TASK.at(4).sample(400, generator())  # other batches draw other numbers: compare with the shares
    assert batch["inputs"].shape == (400, 13)
    assert found["modulo"] == pytest.approx(0.5, abs=0.1) and found["recall"] == pytest.approx(0.5, abs=0.1)
    assert found["joint"] == pytest.approx(0.25, abs=0.08), "neither the mean nor one of the parts"
    assert found["joint"] < min(found["modulo"], found["recall"])
    assert model.training and not any(model.training_seen)


def test_every_length_is_judged_at_that_length():
    model = Scripted()
    by_length(model=model, task=TASK, generator=generator(), inside=[3], beyond=[5, 9], sequences=4)
    assert model.widths == [11, 15, 23], "2 n + 5 positions of n pairs"


@pytest.mark.parametrize(("wrong", "right"), [("modulo", "recall"), ("recall", "modulo")])
def test_each_question_has_its_own_accuracy(wrong, right):
    found = evaluate(Scripted(**{wrong: "wrong"}), TASK.at(3), generator(), 20, 20)
    assert {name: found[name] for name in ("joint", wrong, right)} == {"joint": 0, wrong: 0, right: 1}


@pytest.mark.parametrize("questions", [["modulo", "recall"], ["modulo"], ["recall"]])
def test_the_loss_in_validation_is_the_mean_over_answers(questions):
    class Flat(Scripted):
        def forward(self, inputs, at):
            return torch.zeros(len(inputs), len(at), 16)

    task = ModuloRecall(modulus=4, keys=9, longest=3, questions=questions)
    found = validation(model=Flat(), task=task, generator=generator(), sequences=20)
    assert found["loss"] == pytest.approx(math.log(16))


def test_joint_is_no_product_of_shares():
    """Wrong on the same sequences: with one pair of value 1 or 3 both answers are wrong, else both right."""
    found = evaluate(Scripted(modulo="half", recall="half"), TASK.at(1), generator(), 200, 70)
    assert 0.3 < found["joint"] < 0.7
    assert found["joint"] == found["modulo"] == found["recall"]


def test_lengths_that_were_trained_on_are_no_extrapolation():
    common = {"model": Scripted(), "task": TASK, "generator": generator(), "sequences": 4}
    with pytest.raises(ValueError, match="3 pairs are not beyond"):
        by_length(**common, inside=[2], beyond=[3])
    with pytest.raises(ValueError, match="4 pairs are not inside"):
        by_length(**common, inside=[4], beyond=[5])


def test_one_question_alone_is_measured_alone():
    task = ModuloRecall(modulus=4, keys=9, longest=3, questions=["recall"])
    found = by_length(
        model=Scripted(recall="half"), task=task, generator=generator(), inside=[3], beyond=[], sequences=60
    )
    assert set(found) == {"joint@3", "recall@3"} and found["joint@3"] == found["recall@3"] < 1


def test_judgement_wakes_what_sleeps_and_validation_does_not():
    torch.manual_seed(0)
    model = hybrids.Parallel(TASK.vocabulary, 12, heads=2, blocks=1)
    Participation(sleeping=["attention"]).begin(model)
    with torch.no_grad():
        for p in model.attention.parameters():
            p.fill_(torch.nan)
    assert math.isfinite(validation(model=model, task=TASK, generator=generator(), sequences=8)["loss"])
    calls = []
    model.attention.register_forward_hook(lambda *_: calls.append(1))
    by_length(model=model, task=TASK, generator=generator(), inside=[3], beyond=[4], sequences=8)
    assert len(calls) == 2 and model.asleep == {"attention"}


def test_validation_judges_what_trains_at_the_longest_training_length():
    torch.manual_seed(0)
    model = hybrids.Parallel(TASK.vocabulary, 12, heads=2, blocks=1)
    calls = []
    model.attention.register_forward_hook(lambda *_: calls.append(1))
    for sleeping in ([], ["attention"]):
        Participation(sleeping=sleeping).begin(model)
        expected = evaluate(model, TASK.at(TASK.longest), generator(), 40, 40)
        calls.clear()
        assert validation(model=model, task=TASK, generator=generator(), sequences=40) == expected
        assert bool(calls) == (not sleeping)


# --- attention


def dilution(model, **given):
    options = {"lengths": [3, 9], "sequences": 40, "batch": 16, **given}
    return attention_dilution(model=model, task=TASK, generator=generator(), **options)


def uniform():
    """A model whose heads look everywhere alike: queries are 0."""
    torch.manual_seed(0)
    model = hybrids.Parallel(TASK.vocabulary, 12, heads=2, blocks=2)
    with torch.no_grad():
        for block in model.attention.blocks:
            block.query_key_value.weight[:12] = 0
            block.query_key_value.bias[:12] = 0
    return model


def test_uniform_attention_has_the_weight_entropy_and_gap_of_chance():
    found = dilution(uniform())
    for n in (3, 9):
        positions = 2 * n + 5
        assert found[f"weight@{n}"] == pytest.approx(2 / positions, rel=1e-4)
        assert found[f"entropy@{n}"] == pytest.approx(math.log(positions), rel=1e-4)
        assert found[f"gap@{n}"] == pytest.approx(0, abs=1e-4)
    assert found["fall"] == pytest.approx(2 / 11 - 2 / 23, rel=1e-3)
    assert found["fall_same_gap"] == pytest.approx(found["fall"], rel=1e-3), "gap 0 at both lengths"
    assert 0 <= found["auc"] <= 1 and model_is_awake(uniform())


def model_is_awake(model):
    return not model.asleep and model.training


@pytest.mark.parametrize(("blocks", "finder"), [(1, 0), (2, 0), (2, 1)])
def test_a_head_that_finds_the_key_is_the_one_followed(blocks, finder):
    """Queries and keys that are the token itself: the last position finds the same key in the prefix.

    All other heads look everywhere alike, and every block passes the tokens on.
    """
    task = ModuloRecall(modulus=4, keys=9, longest=3)
    model = hybrids.TransformerOnly(task.vocabulary, 32, heads=2, blocks=blocks)
    with torch.no_grad():
        model.embedding.weight.zero_()
        for token in range(3 + 4, task.vocabulary):  # high pairs of rotary features turn slowly
            model.embedding.weight[token, 8 + (token - 7) % 8] = 30.0 if token < 15 else -30.0
        for block in model.attention.blocks:
            for layer in (block.query_key_value, block.merge, block.narrow):
                layer.weight.zero_()
                layer.bias.zero_()
        block = model.attention.blocks[finder]
        block.query_key_value.weight[16:32, :16] = torch.eye(16)  # queries of the second head
        block.query_key_value.weight[48:64, :16] = torch.eye(16)  # its keys
    found = dilution(model, lengths=[2, 9])
    # the last position is the key asked for itself: it and the one in the prefix share the weight
    assert found["weight@2"] == pytest.approx(0.5, abs=0.1)
    assert found["gap@2"] > 0 and found["entropy@2"] < math.log(9)


def scripted_looks(monkeypatch, weights):
    """Every look gives what `weights` says for its length: weight and rightness of each sequence."""

    def look(model, task, generator, size, head=None):
        weight, right = (torch.tensor(x) for x in weights[task.longest])
        gap = weight.logit() + math.log((2 * task.longest + 5) / 2 - 1)
        return (weight[None] if head is None else weight), torch.zeros(len(weight)), gap, right

    monkeypatch.setattr(dilution_module, "_look", look)


def test_what_falls_with_length_alone_tracks_no_error(monkeypatch):
    """Weight and accuracy both fall with length; at either length they have nothing to do with each other."""
    looks = {
        3: ([0.9, 0.8, 0.9, 0.8], [True, True, True, True]),
        9: ([0.3, 0.3, 0.2, 0.2], [True, False, True, False]),
    }
    scripted_looks(monkeypatch, looks)
    found = dilution(uniform(), sequences=4, batch=4)
    assert found["auc@3"] == found["auc@9"] == found["auc"] == 0.5
    assert found["fall"] == pytest.approx(0.6)


def test_the_head_followed_is_the_one_that_finds_the_pair_at_the_first_length(monkeypatch):
    heads = {3: [[0.9, 0.9], [0.1, 0.1]], 9: [[0.2, 0.2], [0.8, 0.8]]}

    def look(model, task, generator, size, head=None):
        weight = torch.tensor(heads[task.longest])
        weight = weight if head is None else weight[head]
        return weight, torch.zeros(2), torch.zeros(2), torch.tensor([True, False])

    monkeypatch.setattr(dilution_module, "_look", look)
    found = dilution(uniform(), sequences=2, batch=2)
    assert (found["weight@3"], found["weight@9"]) == (pytest.approx(0.9), pytest.approx(0.2))


def test_lengths_weigh_by_their_pairs_of_right_and_wrong(monkeypatch):
    looks = {3: ([0.9, 0.1], [True, False]), 9: ([0.3, 0.2, 0.1, 0.4], [True, True, False, False])}
    scripted_looks(monkeypatch, looks)
    found = dilution(uniform(), sequences=4, batch=4)
    assert (found["auc@3"], found["auc@9"]) == (1.0, 0.5)
    assert found["auc"] == pytest.approx((1 * 1.0 + 4 * 0.5) / 5)


def test_a_fall_at_the_same_gap_follows_from_the_positions_alone(monkeypatch):
    scripted_looks(monkeypatch, {3: ([0.5, 0.5], [True, True]), 9: ([0.5, 0.5], [True, True])})
    found = dilution(uniform(), sequences=2, batch=2)
    # p = 1/2 at 11 positions: odds 1; at 23 positions the same gap has odds (11/2 − 1) / (23/2 − 1)
    odds = 4.5 / 10.5
    assert found["fall"] == 0 and found["auc"] == 0.5
    assert found["fall_same_gap"] == pytest.approx(0.5 - odds / (1 + odds))


def test_dilution_looks_at_the_whole_model():
    torch.manual_seed(0)
    model = hybrids.Parallel(TASK.vocabulary, 12, heads=2, blocks=1)
    Participation(sleeping=["attention"]).begin(model)
    calls = []
    model.attention.register_forward_hook(lambda *_: calls.append(1))
    dilution(model)
    assert calls and model.asleep == {"attention"}


def test_right_means_that_the_recall_answer_is_right():
    class Recalls(hybrids.Parallel):
        """Always right on recall, always wrong on the sum."""

        def forward(self, inputs, at=None):
            super().forward(inputs, at)  # the blocks are looked at
            return Scripted(modulo="wrong")(inputs, at)

    torch.manual_seed(0)
    model = Recalls(TASK.vocabulary, 12, heads=2, blocks=1)
    *_, right = dilution_module._look(model, TASK.at(3), generator(), 30, 0)
    assert right.all()


def test_wrong_answers_with_less_weight_show_in_the_auc():
    right = torch.tensor([True, True, False, False])
    assert auc(torch.tensor([0.9, 0.8, 0.2, 0.1]), right) == 1.0
    assert auc(torch.tensor([0.1, 0.2, 0.8, 0.9]), right) == 0.0
    assert auc(torch.tensor([0.5, 0.5, 0.5, 0.5]), right) == 0.5
    assert auc(torch.tensor([0.9, 0.8]), torch.tensor([True, True])) == 0.5


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"lengths": [3]}, "two lengths"),
        ({"task": ModuloRecall(keys=9, longest=3, questions=["modulo"])}, "recall"),
        ({"model": hybrids.LstmOnly(16, 8)}, "no attention"),
    ],
)
def test_what_has_no_dilution_is_one_sentence(given, word):
    with pytest.raises(ValueError, match=word):
        attention_dilution(
            **{"model": uniform(), "task": TASK, "generator": generator(), "lengths": [3, 9], **given}
        )


# --- speed


@pytest.mark.parametrize("kind", hybrid_speed.MODELS)
def test_the_bare_parts_are_those_that_the_model_runs(kind):
    model = kind(TASK.vocabulary, 8, 2, 2, 12)
    batch = TASK.sample(4, generator())
    calls = hybrid_speed.bare_parts(model, batch)
    counts = Counter(call[0].__name__ for call in calls)
    blocks = 2 if hasattr(model, "attention") else 0
    assert counts["lstm"] == sum(isinstance(m, nn.LSTM) for m in model.modules())
    assert counts["layer_norm"] == 2 * blocks + (kind is hybrids.HybridBlock)
    assert counts["scaled_dot_product_attention"] == counts["gelu"] == blocks
    assert counts["linear"] == 4 * blocks + 1  # and the head
    for call in calls:
        out = hybrid_speed.run(call)
        assert out.requires_grad and out.isfinite().all()
    out.sum().backward()  # the head: its input is a leaf
    assert all(p.grad is None for n, p in model.named_parameters() if not n.startswith("head"))


def test_what_is_timed_is_a_whole_step_against_forward_and_backward_of_the_parts(monkeypatch):
    noted, bare_parts = {}, hybrid_speed.bare_parts
    monkeypatch.setattr(
        hybrid_speed, "bare_parts", lambda *given: noted.setdefault("calls", bare_parts(*given))
    )
    monkeypatch.setattr(hybrid_speed, "time_ratio", lambda *steps, **_: noted.update(steps=steps))
    model = hybrids.Parallel(TASK.vocabulary, 8, 2, 2, 12)
    hybrid_speed.overhead(model, TASK.sample(4, generator()))
    whole, parts = noted["steps"]
    whole()
    assert all(p.grad is not None for p in model.parameters())
    parts()
    leaves = [x for x in tree_leaves(noted["calls"]) if isinstance(x, torch.Tensor) and x.requires_grad]
    assert len(leaves) > 10 and all(x.grad is not None for x in leaves)
    assert model.embedding.weight.grad is None, "it is no part, and the step's gradient is gone"


@pytest.mark.parametrize("main", [hybrid_speed.main, smt_speed.main, sab_speed.main])
@pytest.mark.parametrize("text", ["0", "-1", "two"])
def test_a_number_that_is_none_is_one_sentence(main, text, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--batch", text])
    assert stop.value.code == 2
    assert (
        f"argument --batch: needs a whole number from 1 to 2147483647, not '{text}'"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("main", "given", "word"),
    [
        (hybrid_speed.main, ["--heads", "3"], "an even width a head"),
        (smt_speed.main, ["--width", "6"], "head"),
        (sab_speed.main, ["--k-att", "0"], "k-att"),
        (hybrid_speed.main, ["--most", "1"], "--most: needs a whole number from 2 on"),
        (hybrid_speed.main, ["--threads", "1000000"], "--threads: needs a whole number from 1 to"),
        (sab_speed.main, ["--threads", "1000000"], "--threads: needs a whole number from 1 to"),
        (hybrid_speed.main, ["--pairs", "2147483647"], "memory"),
        (sab_speed.main, ["--batch", "2147483647"], "memory"),
        (hybrid_speed.main, ["--pairs", "1" + 30 * "0"], "from 1 to 2147483647"),
        (smt_speed.main, ["--width", "1" + 30 * "0"], "from 1 to 2147483647"),
        (sab_speed.main, ["--hidden", "1" + 30 * "0"], "from 1 to 2147483647"),
    ],
)
def test_sizes_that_no_model_or_machine_has_are_one_sentence(main, given, word, capsys):
    with pytest.raises(SystemExit) as stop:
        main(given)
    assert stop.value.code == 2 and word in capsys.readouterr().err


def test_an_error_of_ours_keeps_its_traceback():
    for words in ("shapes cannot be multiplied", "more than one element refers to a single memory location"):
        with pytest.raises(RuntimeError, match=words), told(argparse.ArgumentParser()):
            raise RuntimeError(words)


def test_the_speed_table_names_every_model(capsys):
    hybrid_speed.main(
        ["--width", "8", "--heads", "2", "--pairs", "2", "--batch", "2", "--blocks", "1", "--most", "2"]
    )
    text = capsys.readouterr().out
    assert all(kind.__name__ in text for kind in hybrid_speed.MODELS)
    assert "95 % interval" in text and "overhead" in text


def test_the_speed_table_has_tokens_of_the_model_then_of_its_parts_and_the_models_overhead(monkeypatch):
    ratio = Ratio(mean=1.2, low=1.1, high=1.3, seconds=(2.0, 1.0), pairs=7)
    monkeypatch.setattr(hybrid_speed, "overhead", lambda *_: ratio)
    text = hybrid_speed.table(width=8, heads=2, blocks=1, feed_forward=8, pairs=2, batch=4, threads=1)
    row = next(line for line in text.splitlines() if line.startswith("Sandwich"))
    assert row.split() == ["Sandwich", "18", "36", "+20.0%", "[+10.0%,", "+30.0%],", "7", "pairs"]
