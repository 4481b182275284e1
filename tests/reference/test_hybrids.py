"""Hybrids against their naive twin, their bypass bit for bit, and who takes part in training."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from reference.algorithms.delayed_attention import Participation, whole
from reference.models import hybrids
from reference.models.hybrids import Attn, Block, Hybrid
from reference.models.smt_blocks import turning
from reference.naive.hybrids import logits as naive_logits
from reference.tasks.modulo_recall import ModuloRecall

FIVE = (hybrids.AttnOnLstm, hybrids.LstmOnAttn, hybrids.Parallel, hybrids.HybridBlock, hybrids.Sandwich)
ALL = (*FIVE, hybrids.TransformerOnly, hybrids.LstmOnly)
TASK = ModuloRecall(modulus=3, keys=7, longest=3)
SLEEP = {"sleeping": ["attention"]}


def built(kind, dtype=torch.float64):
    torch.manual_seed(1)
    model = kind(TASK.vocabulary, 12, heads=3, blocks=2, feed_forward=10).to(dtype)
    with torch.no_grad():  # LayerNorms that would be the same as none at their start
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model


def batch_of(size=5, pairs=3):
    return TASK.at(pairs).sample(size, torch.Generator().manual_seed(4))


def gradients(model, value):
    found = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
    names = [name for name, _ in model.named_parameters()]
    return {name: g for name, g in zip(names, found, strict=True) if g is not None}


# --- the twin


@pytest.mark.parametrize(("kind", "asleep"), [*((k, False) for k in ALL), *((k, True) for k in FIVE)])
@pytest.mark.parametrize("chosen", [False, True])
def test_output_and_all_gradients_equal_the_naive_twin(kind, asleep, chosen):
    model = built(kind)
    if asleep:
        model.asleep = frozenset(["attention"])
    batch = batch_of()
    at = batch["positions"] if chosen else None
    fast, slow = model(batch["inputs"], at), naive_logits(model, batch["inputs"])
    if chosen:
        slow = slow[:, at]
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-12)
    weights = torch.randn_like(slow)
    ours, theirs = gradients(model, (fast * weights).sum()), gradients(model, (slow * weights).sum())
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-8, atol=1e-10, msg=name)


@pytest.mark.parametrize("kind", ALL)
def test_no_position_sees_what_comes_after_it(kind):
    model, batch = built(kind), batch_of()
    inputs = batch["inputs"]
    with torch.no_grad():
        before = model(inputs)
        for t in range(inputs.shape[1] - 1):
            later = inputs.clone()
            later[:, t + 1 :] = (later[:, t + 1 :] + 1) % TASK.vocabulary
            torch.testing.assert_close(model(later)[:, : t + 1], before[:, : t + 1])
            chosen = torch.tensor([t])
            torch.testing.assert_close(model(later, chosen), model(inputs, chosen))


def test_the_scores_that_are_measured_are_those_that_the_block_attends_by():
    """Their softmax over the values, merged, in place of its own attention, gives the block's output."""
    torch.manual_seed(3)
    block, x = Block(12, 3, 10).double(), torch.randn(2, 7, 12, dtype=torch.float64)
    turns = turning(torch.arange(7), 4, torch.float64)
    values = block.query_key_value(x)[..., 24:].unflatten(-1, (3, 4)).transpose(1, 2)
    read = block.scores(x, turns).softmax(-1) @ values
    y = block.attention_norm(x + block.merge(read.transpose(1, 2).flatten(2)))
    y = block.feed_norm(y + block.narrow(F.gelu(block.widen(y))))
    torch.testing.assert_close(block(x, turns), y, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ALL)
def test_longer_sequences_than_trained_on_are_accepted(kind):
    assert built(kind)(batch_of(2, 7)["inputs"]).isfinite().all()


def test_impossible_attention_is_one_sentence():
    with pytest.raises(ValueError, match="even width"):
        Attn(12, 4, 1, 12)
    with pytest.raises(ValueError, match="blocks"):
        Attn(12, 3, 0, 12)


# --- the bypass


class LstmAlone(nn.Module):
    """The recurrent path of a hybrid, rebuilt out of torch's own modules and nothing else."""

    def __init__(self, model):
        super().__init__()
        width = model.embedding.embedding_dim
        self.embedding = nn.Embedding(*model.embedding.weight.shape)
        self.head = nn.Linear(width, model.head.out_features)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        for name, kind in (
            ("upper_lstm", lambda: nn.LSTM(width, width, batch_first=True)),
            ("lstm_norm", lambda: nn.LayerNorm(width)),
        ):
            setattr(self, name, kind() if hasattr(model, name) else None)
        mine = {k: v for k, v in model.state_dict().items() if not k.startswith("attention.")}
        self.load_state_dict(mine, strict=True)

    def forward(self, inputs):
        x = self.embedding(inputs)
        h = self.lstm(x)[0]
        if self.lstm_norm is not None:
            h = self.lstm_norm(x + h)
        if self.upper_lstm is not None:
            h = self.upper_lstm(h)[0]
        return self.head(h)


@pytest.mark.parametrize("kind", FIVE)
def test_with_attention_off_the_output_is_the_recurrent_path_alone_bit_for_bit(kind):
    model, batch = built(kind, torch.float32), batch_of()
    Participation(**SLEEP).begin(model)
    alone = LstmAlone(model)  # strict loading: no LayerNorm of the branch is left in the path
    assert torch.equal(model(batch["inputs"]), alone(batch["inputs"]))
    at = batch["positions"]
    torch.testing.assert_close(model(batch["inputs"], at), alone(batch["inputs"])[:, at])
    with torch.no_grad():
        for p in model.attention.parameters():
            p.fill_(torch.nan)
    assert torch.equal(model(batch["inputs"]), alone(batch["inputs"]))
    Participation().begin(model)
    assert model(batch["inputs"]).isnan().any()


@pytest.mark.parametrize("kind", FIVE)
def test_frozen_attention_still_speaks(kind):
    """The control is no bypass: output and recurrent gradients differ from those of the sleeping model."""
    model, batch = built(kind), batch_of()
    found = {}
    for mode, given in {"frozen": {"frozen": ["attention"]}, "asleep": SLEEP, "awake": {}}.items():
        step = Participation(**given)
        step.begin(model)
        model.zero_grad(set_to_none=True)
        step.backward(model, batch)
        found[mode] = (model(batch["inputs"]).detach(), model.lstm.weight_hh_l0.grad.clone())
        grads = [p.grad for p in model.attention.parameters()]
        assert all(g is None for g in grads) if mode != "awake" else all(g is not None for g in grads)
    for part in range(2):
        torch.testing.assert_close(found["frozen"][part], found["awake"][part])
        assert not torch.allclose(found["frozen"][part], found["asleep"][part])


@pytest.mark.parametrize("kind", FIVE)
def test_inference_uses_the_whole_model(kind):
    model, batch = built(kind), batch_of()
    with torch.no_grad():
        awake = model(batch["inputs"])
        Participation(**SLEEP).begin(model)
        with pytest.raises(KeyError), whole(model):
            assert torch.equal(model(batch["inputs"]), awake)
            raise KeyError
        assert not torch.equal(model(batch["inputs"]), awake)


# --- the schedule, for any model


class Toy(nn.Module):
    """A model of another kind that names two modules which can sleep."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 4), nn.Linear(4, 20)
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)
        self.asleep = frozenset()

    @property
    def sleepers(self):
        return {"left": self.left, "right": self.right}

    def forward(self, inputs, at):
        x = self.embedding(inputs)
        for name, module in self.sleepers.items():
            if name not in self.asleep:
                x = x + module(x)
        return self.head(x[:, at])


def optimiser_of(kind, model):
    return kind(model.parameters(), lr=0.01, weight_decay=0.1)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("make", [Toy, lambda: built(hybrids.Parallel)])
def test_sleepers_keep_still_without_moments_or_decay_and_join_at_step_one(kind, make):
    torch.manual_seed(0)
    model, batch = make(), batch_of()
    name = next(iter(model.sleepers))
    sleeper = model.sleepers[name]
    optimiser = optimiser_of(kind, model)
    before = [p.detach().clone() for p in sleeper.parameters()]
    for stage, steps in ((Participation(sleeping=[name]), 3), (Participation(), 1)):
        stage.begin(model)
        for _ in range(steps):
            optimiser.zero_grad(set_to_none=True)
            stage.backward(model, batch)
            optimiser.step()
        if stage.sleeping:
            assert all(torch.equal(p, q) for p, q in zip(sleeper.parameters(), before, strict=True))
            assert not any(p in optimiser.state for p in sleeper.parameters())
    for p, q in zip(sleeper.parameters(), before, strict=True):
        state = optimiser.state[p]
        assert state["step"] == 1
        torch.testing.assert_close(
            state["exp_avg"], p.grad * 0.1 + (0.01 * q if kind is torch.optim.Adam else 0)
        )
        assert not torch.equal(p, q)
    assert optimiser.state[model.head.weight]["step"] == 4


def test_modules_sleep_one_by_one_and_a_stage_starts_from_no_earlier_one():
    model, batch = Toy(), batch_of()
    Participation(sleeping=["left"], frozen=["right"]).begin(model)
    assert model.asleep == {"left"} and not model.right.weight.requires_grad
    step = Participation(sleeping=["right"])
    step.begin(model)
    step.backward(model, batch)
    assert model.left.weight.grad is not None and model.right.weight.grad is None
    assert model.right.weight.requires_grad


def test_shuffled_answers_are_the_neighbours():
    model, batch = Toy(), batch_of()
    rolled = {**batch, "targets": batch["targets"].roll(1, dims=0)}
    shuffled, true = Participation(answers="shuffled"), Participation()
    assert torch.equal(shuffled.backward(model, batch)["loss"], true.backward(model, rolled)["loss"])
    assert not torch.equal(shuffled.backward(model, batch)["loss"], true.backward(model, batch)["loss"])


def test_the_loss_is_the_mean_cross_entropy_of_all_answers():
    """By hand, in float64: −log p of every answer, over B · Q of them; and its gradient at the logits."""
    logits = torch.randn(5, 2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    targets = torch.tensor([[0, 1], [2, 3], [4, 5], [6, 0], [1, 2]])
    model = nn.Module()
    model.logits = nn.Parameter(logits)
    model.forward = lambda inputs, at: model.logits
    batch = {"inputs": torch.zeros(5, 3), "positions": torch.tensor([1, 2]), "targets": targets}
    loss = Participation().backward(model, batch)["loss"]
    p = logits.exp() / logits.exp().sum(-1, keepdim=True)
    nats = [-p[b, q, targets[b, q]].log() for b in range(5) for q in range(2)]
    assert loss.item() == pytest.approx(sum(nats).item() / 10, rel=1e-12)
    expected = (p - F.one_hot(targets, 7)) / 10
    torch.testing.assert_close(model.logits.grad, expected, rtol=1e-12, atol=1e-15)


def test_models_without_sleepers_train_as_they_are():
    model = built(hybrids.LstmOnly)
    step = Participation()
    step.begin(model)
    assert step.backward(model, batch_of())["loss"].isfinite()
    plain = nn.Linear(2, 2)
    step.begin(plain)
    with whole(plain):
        pass


@pytest.mark.parametrize(
    ("given", "word"),
    [({"sleeping": ["mlp"]}, "it has: attention"), ({"frozen": ["mlp"]}, "it has: attention")],
)
def test_an_unknown_sleeper_is_one_sentence(given, word):
    with pytest.raises(ValueError, match=word):
        Participation(**given).begin(built(hybrids.Parallel))


def test_impossible_participation_is_one_sentence():
    with pytest.raises(ValueError, match="it has: none"):
        Participation(**SLEEP).begin(built(hybrids.LstmOnly))
    with pytest.raises(ValueError, match="not both"):
        Participation(sleeping=["attention"], frozen=["attention"])
    with pytest.raises(ValueError, match="shuffled"):
        Participation(answers="wrong")
    for given in ({"sleeping": "attention"}, {"frozen": "attention"}):
        with pytest.raises(ValueError, match="names of modules in a list"):
            Participation(**given)
    alone = {**batch_of(), "targets": batch_of()["targets"][:1]}
    with pytest.raises(ValueError, match="at least two sequences"):
        Participation(answers="shuffled").backward(Toy(), alone)


def test_the_base_class_has_no_path():
    with pytest.raises(NotImplementedError):
        Hybrid(9, 4, heads=1)(torch.zeros(1, 3, dtype=torch.int64))
