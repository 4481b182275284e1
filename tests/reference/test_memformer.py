import pytest
import torch
import torch.nn.functional as F
from torch import nn

from reference.measure.forgetting import terminal_state
from reference.models.memformer import Memformer, SlotWriter
from reference.naive.slot_attention import slot_attention, write
from tests.reference.segment_checks import SHAPE, error, gradients, leaks, run, scalar, worst


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def memformer(**changes):
    return Memformer(**{**SHAPE, "encoder_layers": 2, "decoder_layers": 2, "memory_size": 3, **changes})


def writer(**changes):
    return SlotWriter(**{"width": 12, "heads": 3, "memory_size": 5, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temperature": 1.0},
        {"multi_head": False},
        {"forgetting": False},
        {"heads": 1, "memory_size": 1, "bias_length": 3.0},
    ],
    ids=str,
)
@pytest.mark.parametrize(("batch", "tokens", "masked"), [(1, 1, False), (2, 7, False), (3, 4, True)])
def test_writer_equals_the_loop_over_slots(changes, batch, tokens, masked):
    w = writer(**changes)
    results = []
    slots = F.normalize(torch.randn(batch, w.bias.shape[0], 12), dim=-1).requires_grad_()
    x = torch.randn(batch, tokens, 12, requires_grad=True)
    visible = torch.rand(batch, tokens) < 0.5 if masked else None
    for how in (lambda *a: (w.attend(*a), w(*a)), lambda *a: (slot_attention(w, *a), write(w, *a))):
        slots.grad = x.grad = None
        outputs = how(slots, x, visible)
        found = gradients(w, scalar(outputs))
        found |= {"m'": outputs[0].detach(), "m": outputs[1].detach(), "slots": slots.grad, "tokens": x.grad}
        results.append(found)
    size, name = worst(*results)
    assert size < 1e-9, name


def test_a_slot_sees_itself_and_tokens_but_no_other_slot():
    w = writer()
    slots, tokens = torch.randn(2, 5, 12), torch.randn(2, 4, 12)
    changed = slots.clone()
    changed[:, 2] += 1
    moved = (w(slots, tokens) != w(changed, tokens)).any(dim=-1)
    assert moved.tolist() == [[False, False, True, False, False]] * 2


def test_sabotage_a_writer_that_sees_other_slots():
    class Seeing(SlotWriter):
        def attend(self, slots, tokens, visible=None):
            return super().attend(slots, torch.cat([tokens, slots], dim=1), visible)

    w = Seeing(width=12, heads=3, memory_size=5)
    slots, tokens = torch.randn(2, 5, 12), torch.randn(2, 4, 12)
    changed = slots.clone()
    changed[:, 2] += 1
    assert (w(slots, tokens) != w(changed, tokens)).any(dim=-1).all()
    assert error(w(slots, tokens), write(w, slots, tokens)) > 1e-3


def test_writer_by_hand():
    """One slot, one token, a head of width 2: sigmoid((q·k_own - q·k_token) / (sqrt(2) tau)) on itself."""
    w = SlotWriter(width=2, heads=1, memory_size=1, temperature=0.5)
    w.norm = nn.Identity()
    with torch.no_grad():
        for linear in (w.query, w.key, w.value):
            linear.weight.copy_(torch.eye(2))
        w.bias.copy_(torch.tensor([[0.0, 1.0]]))
    slots, tokens = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]])
    own = torch.sigmoid(torch.tensor(1 / 2**0.5 / 0.5))
    torch.testing.assert_close(w.weights(slots, tokens).flatten(), torch.stack([own, 1 - own]))
    updated = torch.stack([own, 1 - own])
    torch.testing.assert_close(w.attend(slots, tokens).flatten(), updated)
    moved = updated + torch.tensor([0.0, 1.0])
    torch.testing.assert_close(w(slots, tokens).flatten(), moved / moved.norm())


def test_low_temperature_sharpens():
    slots, tokens = torch.randn(1, 5, 12), torch.randn(1, 9, 12)
    sharp, soft = writer(temperature=0.25), writer(temperature=1.0)
    soft.load_state_dict(sharp.state_dict())
    entropy = [-(p * p.log()).sum(-1).mean() for p in (w.weights(slots, tokens) for w in (sharp, soft))]
    assert entropy[0] < entropy[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 5}, "width 12 doesn't split into 5"),
        ({"temperature": 0.0}, "temperature > 0"),
        ({"memory_size": 0}, "memory_size >= 1"),
    ],
)
def test_impossible_writers(changes, message):
    with pytest.raises(ValueError, match=message):
        writer(**changes)


def test_terminal_state_and_its_control():
    torch.set_default_dtype(torch.float32)
    found = terminal_state(
        generator=torch.Generator().manual_seed(0), device="cpu", slots=6, width=12, heads=3
    )
    assert found["distance"] < 1e-12
    assert found["distance_by_step"][0] > 1
    assert found["raw_error"] == 0
    assert found["bias_error"] < 1e-15
    assert found["distance_without_forgetting"] > 1
    assert found["distance_antipodal"] == pytest.approx(2.0)
    assert 0 < found["least_weight"] < 0.2
    again = terminal_state(
        generator=torch.Generator().manual_seed(0), device="cpu", slots=6, width=12, heads=3
    )
    assert again == found


def test_initial_memory_is_the_normalised_bias_and_trains_it():
    model = memformer(bias_length=2.0)
    slots, previous = model.initial_memory(4)
    assert slots.shape == (4, 3, 12)
    torch.testing.assert_close(slots[1], model.writer.bias / 2)
    assert previous.tolist() == [[7]] * 4
    slots[:, 0].sum().backward()
    assert model.writer.bias.grad[0].norm() > 0


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"memory": "off"},
        {"memory": "frozen"},
        {"decoder_reads": "encoder"},
        {"decoder_reads": "memory"},
        {"cls_tokens": 0},
    ],
    ids=str,
)
def test_logits_see_only_what_came_before(changes):
    model = memformer(**changes)
    logits, (slots, previous) = run(model, torch.randint(7, (2, 13)))
    assert logits.shape == (2, 13, 7)
    assert slots.shape == (2, 0 if changes.get("memory") == "off" else 3, 12)
    assert previous.shape == (2, 3)
    assert leaks(model) == []


def test_sabotage_a_decoder_that_sees_the_encoder_of_its_own_segment():
    class Leaking(Memformer):
        def step(self, segment, memory):
            slots, previous = memory
            states, slots = self.encode(segment, slots)
            inputs = torch.cat([previous[:, -1:], segment[:, :-1]], dim=1)
            return self.decode(inputs, states, slots), (slots, segment)

    model = Leaking(**SHAPE, encoder_layers=1, decoder_layers=1, memory_size=3)
    assert leaks(model) == list(range(13))


def test_every_earlier_token_reaches_the_logits():
    model = memformer().eval()
    tokens = torch.randint(7, (1, 20))
    before = run(model, tokens)[0]
    for n in range(19):
        changed = tokens.clone()
        changed[0, n] = (changed[0, n] + 3) % 7
        assert (run(model, changed)[0][0, -1] - before[0, -1]).abs().max() > 0, n


@pytest.mark.parametrize("memory", ["on", "off", "frozen"])
def test_only_written_memory_carries_the_first_segment_to_the_third(memory):
    """Without memory, or with one frozen at its start, the decoder sees nothing before the last segment."""
    model = memformer(memory=memory).eval()
    tokens = torch.randint(7, (2, 15))
    changed = tokens.clone()
    changed[:, :5] = (changed[:, :5] + 1) % 7
    one, other = (run(model, t)[0][:, 10:] for t in (tokens, changed))
    assert torch.equal(one, other) == (memory != "on")
    if memory == "frozen":
        assert torch.equal(run(model, tokens)[1][0], model.initial_memory(2)[0])


def test_forgetting_off_changes_the_memory():
    model, control = memformer(), memformer(forgetting=False)
    control.load_state_dict(model.state_dict())
    tokens = torch.randint(7, (2, 15))
    assert error(run(control, tokens)[1][0], run(model, tokens)[1][0]) > 1e-3


def test_memory_step_is_step_without_the_decoder():
    model = memformer(dropout=0.3)
    memory = model.initial_memory(2)
    _, memory = model.step(torch.randint(7, (2, 5)), memory)
    segment = torch.randint(7, (2, 5))
    torch.manual_seed(2)
    slots, previous = model.step(segment, memory)[1]
    torch.manual_seed(2)
    cheap_slots, cheap_previous = model.memory_step(segment, memory)
    assert torch.equal(slots, cheap_slots)
    assert torch.equal(previous, cheap_previous)


def test_only_the_last_encoder_layer_writes_and_all_layers_read():
    model = memformer()
    assert all(layer.read is not None for layer in model.encoder)
    assert [name for name, _ in model.named_modules() if name.endswith("writer")] == ["writer"]
    off = memformer(memory="off")
    assert all(layer.read is None for layer in off.encoder)
    assert off.writer is None


def test_it_learns_to_repeat_a_token_of_three_segments_ago_only_with_memory():
    """Segments of one token: a b b a. Chance is log 4 = 1.386; the segment before the last says nothing."""
    torch.set_default_dtype(torch.float32)
    sizes = {"vocab": 5, "width": 16, "heads": 2, "head_width": 8, "feed_forward": 16}
    sizes |= {"encoder_layers": 1, "decoder_layers": 1, "segment": 1, "memory_size": 2, "cls_tokens": 0}
    losses = {}
    for memory in ("on", "frozen"):
        torch.manual_seed(1)
        model = Memformer(**sizes, memory=memory)
        optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(120):
            first = torch.randint(4, (16, 1))
            tokens = torch.cat([first, torch.full((16, 2), 4), first], dim=1)
            loss = F.cross_entropy(run(model, tokens)[0][:, -1], tokens[:, -1])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        losses[memory] = loss.item()
    assert losses["on"] < 0.3
    assert losses["frozen"] > 1.2


def test_it_runs_on_the_meta_device():
    with torch.device("meta"):
        model = memformer()
    logits, _ = model.step(torch.zeros(2, 5, dtype=torch.int64, device="meta"), model.initial_memory(2))
    assert logits.shape == (2, 5, 7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": "of"}, "memory is 'of'; choose from on, off, frozen"),
        ({"decoder_reads": "all"}, "choose from both, encoder, memory"),
        ({"memory": "off", "decoder_reads": "memory"}, "Without memory the decoder can't read it"),
        ({"encoder_layers": 0}, "at least one encoder layer"),
        ({"heads": 0}, "must be at least 1"),
    ],
)
def test_impossible_models(changes, message):
    with pytest.raises(ValueError, match=message):
        memformer(**changes)


@pytest.mark.parametrize("length", [0, 6])
def test_segments_that_do_not_fit(length):
    model = memformer()
    with pytest.raises(ValueError, match="doesn't fit a model built for 1 to 5"):
        model.step(torch.zeros(1, length, dtype=torch.int64), model.initial_memory(1))
