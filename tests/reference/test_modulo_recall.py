import pytest
import torch

from reference.tasks.modulo_recall import BOS, MODULO, RECALL, ModuloRecall


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def parsed(task, batch, row):
    """Keys and values of a row's prefix, and the tokens after it."""
    tokens = batch["inputs"][row].tolist()
    end = min(i for i, t in enumerate(tokens) if t in (MODULO, RECALL))
    prefix = tokens[1:end]
    return prefix[::2], [t - 3 for t in prefix[1::2]], tokens[end:]


def test_sequences_are_laid_out_as_in_the_paper():
    task = ModuloRecall(modulus=7, keys=11, longest=5)
    for seed in range(6):
        batch = task.sample(9, generator(seed))
        n = (batch["inputs"].shape[1] - 5) // 2
        assert 1 <= n <= 5 and batch["inputs"].shape == (9, 2 * n + 5)
        assert batch["positions"].tolist() == [2 * n + 1, 2 * n + 4]
        for row in range(9):
            keys, values, tail = parsed(task, batch, row)
            m, v = (t - 3 for t in batch["targets"][row].tolist())
            assert batch["inputs"][row, 0] == BOS and len(keys) == len(set(keys)) == len(values) == n
            assert all(10 <= k < task.vocabulary for k in keys) and all(0 <= x < 7 for x in values)
            assert m == sum(values) % 7
            assert tail[0] == MODULO and tail[1] == m + 3 and tail[2] == RECALL
            j = int(batch["asked"][row])
            assert tail[3] == keys[j], "the key asked for must be one of those present"
            assert v == values[j]


def test_the_worked_example():
    """A 7 B 8 C 4 asked for B: 19 mod 10 is 9, B holds 8."""
    text = ModuloRecall.__doc__
    assert "inputs  <bos> A  7  B  8  C  4 <modulo> 9 <recall>  B" in text
    line = next(x for x in text.splitlines() if x.strip().startswith("answer"))
    assert line.split()[1:] == [*"·······", "9", "·", "·", "8"]
    assert (7 + 8 + 4) % 10 == 9


@pytest.mark.parametrize("questions", [["modulo", "recall"], ["modulo"], ["recall"]])
def test_no_answer_stands_at_its_own_position_or_before(questions):
    """Inputs end with the question at an answer's position; the answer is the next token, or is left out."""
    task = ModuloRecall(modulus=5, keys=8, longest=4, shortest=4, questions=questions)
    batch = task.sample(256, generator())
    inputs, positions, targets = batch["inputs"], batch["positions"].tolist(), batch["targets"]
    for column, position in enumerate(positions):
        asked = {"modulo": MODULO, "recall": RECALL}[questions[column]]
        last = inputs[:, position]
        if asked == MODULO:
            assert (last == MODULO).all()
        else:
            assert (inputs[:, position - 1] == RECALL).all() and (last >= 3 + task.modulus).all()
        if position + 1 < inputs.shape[1]:
            assert (inputs[:, position + 1] == targets[:, column]).all(), "the next token is the answer"
        else:
            assert position == inputs.shape[1] - 1, "the last answer is not in the input at all"
        assert (inputs[:, position] != targets[:, column]).all()


def test_one_length_a_batch_and_every_length_comes():
    task = ModuloRecall(modulus=3, keys=6, longest=4, shortest=2)
    some = generator()
    lengths = [(task.sample(1, some)["inputs"].shape[1] - 5) // 2 for _ in range(3000)]
    shares = {n: lengths.count(n) / 3000 for n in set(lengths)}
    assert shares == pytest.approx(dict.fromkeys((2, 3, 4), 1 / 3), abs=0.03)
    assert task.at(3).sample(2, some)["inputs"].shape[1] == 11


def test_questions_alone():
    both = ModuloRecall(keys=6, longest=4, shortest=4)
    modulo = ModuloRecall(keys=6, longest=4, shortest=4, questions=["modulo"]).sample(5, generator())
    recall = ModuloRecall(keys=6, longest=4, shortest=4, questions=["recall"]).sample(5, generator())
    full = both.sample(5, generator())
    assert torch.equal(modulo["inputs"], full["inputs"][:, :10])
    assert modulo["positions"].tolist() == [9] and torch.equal(modulo["targets"], full["targets"][:, :1])
    assert torch.equal(recall["inputs"][:, :9], full["inputs"][:, :9])
    assert torch.equal(recall["inputs"][:, 9:], full["inputs"][:, 11:])
    assert recall["positions"].tolist() == [10] and torch.equal(recall["targets"], full["targets"][:, 1:])


def test_one_question_may_be_given_by_its_name():
    assert ModuloRecall(questions="recall") == ModuloRecall(questions=["recall"])


def test_answers_are_spread_evenly():
    batch = ModuloRecall(modulus=5, keys=8, longest=6, shortest=6).sample(4000, generator())
    for column in range(2):
        share = torch.bincount(batch["targets"][:, column] - 3, minlength=5) / 4000
        assert (share - 0.2).abs().max() < 0.03
    assert torch.bincount(batch["asked"], minlength=6).min() > 550


def test_every_ordered_pair_of_keys_and_of_values_comes_alike_often_in_a_batch():
    """Rows differ, no key is left out however few pairs there are, neither keys nor values are sorted."""
    batch = ModuloRecall(modulus=5, keys=8, longest=2, shortest=2).sample(56_000, generator())
    k1, v1, k2, v2 = (batch["inputs"][:, 1:5] - torch.tensor([8, 3, 8, 3])).unbind(1)
    keys = torch.bincount(k1 * 8 + k2, minlength=64).view(8, 8)
    assert not keys.diag().any() and keys[~torch.eye(8, dtype=torch.bool)].tolist() == pytest.approx(
        [1000] * 56, rel=0.15
    )
    assert torch.bincount(v1 * 5 + v2, minlength=25).tolist() == pytest.approx([2240] * 25, rel=0.15)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"modulus": 1}, "modulus"),
        ({"shortest": 0}, "shortest"),
        ({"shortest": 9, "longest": 8}, "shortest"),
        ({"keys": 24}, "as many keys"),
        ({"questions": ["recall", "modulo"]}, "asks"),
        ({"questions": []}, "asks"),
        ({"questions": "sum"}, "asks modulo, recall or both, not sum"),
        ({"modulus": 4.5}, "integer for modulus, not 4.5"),
        ({"keys": 40.0}, "integer for keys"),
        ({"longest": 3.0}, "integer for longest"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(change, word):
    with pytest.raises(ValueError, match=word):
        ModuloRecall(**change)
