import pytest
import torch
import torch.nn.functional as F

from reference.models.attention import Attention, Layer, split_heads
from reference.models.decoder import Decoder
from reference.models.segment_lstm import SegmentLstm
from tests.reference.segment_checks import SHAPE, gradients, leaks, run, scalar, worst


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_written_out(causal):
    """Against softmax(QK^T / sqrt(E)) V, head by head, with all gradients."""
    module = Attention(6, 3, 5)
    x = torch.randn(2, 4, 6, requires_grad=True)

    def plain(x):
        q = module.query(x)
        k, v = module.key_value(x).chunk(2, dim=-1)
        heads = []
        for h in range(3):
            part = slice(5 * h, 5 * h + 5)
            logits = torch.einsum("bie,bje->bij", q[..., part], k[..., part]) / 5**0.5
            if causal:
                logits = logits.masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf)
            heads.append(logits.softmax(-1) @ v[..., part])
        return module.out(torch.cat(heads, dim=-1))

    results = []
    for how in (lambda x: module(x, x, causal=causal), plain):
        x.grad = None
        output = how(x)
        results.append(gradients(module, scalar([output])) | {"output": output.detach(), "x": x.grad})
    assert worst(*results)[0] < 1e-9


def test_split_heads():
    assert split_heads(torch.arange(8).view(1, 2, 4), 2).tolist() == [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]


def test_a_layer_without_a_read_has_no_cross_attention():
    sizes = {"width": 12, "heads": 3, "head_width": 4, "feed_forward": 10, "causal": True}
    names = {name.split(".")[0] for name, _ in Layer(**sizes, reads=False).named_parameters()}
    assert names == {"norm", "attention", "feed_forward_norm", "feed_forward"}
    reading = {name.split(".")[0] for name, _ in Layer(**sizes, reads=True).named_parameters()}
    assert reading == names | {"read", "read_norm"}


def test_the_decoder_sees_its_segment_and_nothing_older():
    model = Decoder(**SHAPE, layers=2).eval()
    assert leaks(model) == []
    tokens = torch.randint(7, (1, 10))
    before = run(model, tokens)[0][0]
    for n in range(10):
        changed = tokens.clone()
        changed[0, n] = (changed[0, n] + 1) % 7
        moved = (run(model, changed)[0][0] != before).any(dim=-1)
        # token n is the input of position n + 1: seen from there to the end of that position's segment
        assert moved.tolist() == [n < p <= (n + 1) // 5 * 5 + 4 for p in range(10)]


def test_its_memory_is_one_token():
    model = Decoder(**SHAPE, layers=1)
    assert model.initial_memory(2)[0].tolist() == [[7], [7]]
    tokens = torch.randint(7, (2, 5))
    logits, (last,) = model.step(tokens, model.initial_memory(2))
    assert logits.shape == (2, 5, 7)
    assert torch.equal(last, tokens[:, -1:])


def test_dropout_only_in_training():
    for model in (
        Decoder(**SHAPE, layers=1, dropout=0.5),
        SegmentLstm(vocab=7, width=4, layers=2, segment=5, dropout=0.5),
    ):
        tokens = torch.randint(7, (2, 5))
        assert not torch.equal(run(model, tokens)[0], run(model, tokens)[0])
        model.eval()
        assert torch.equal(run(model, tokens)[0], run(model, tokens)[0])


def test_the_lstm_is_the_same_however_it_is_cut():
    tokens = torch.randint(7, (2, 13))
    cut = SegmentLstm(vocab=7, width=6, layers=2, segment=4).eval()
    assert leaks(cut) == []
    whole = SegmentLstm(vocab=7, width=6, layers=2, segment=13).eval()
    whole.load_state_dict(cut.state_dict())
    torch.testing.assert_close(run(cut, tokens)[0], run(whole, tokens)[0], rtol=1e-12, atol=1e-12)


def test_the_lstm_cell_written_out():
    model = SegmentLstm(vocab=7, width=3, layers=1, segment=5)
    tokens = torch.randint(7, (2, 5))
    logits, (h, c, last) = run(model, tokens)
    inputs = torch.cat([torch.full((2, 1), 7), tokens[:, :-1]], dim=1)
    state, cell, rows = torch.zeros(2, 3), torch.zeros(2, 3), []
    for n in range(5):
        gates = F.linear(model.embedding(inputs[:, n]), model.lstm.weight_ih_l0, model.lstm.bias_ih_l0)
        gates = gates + F.linear(state, model.lstm.weight_hh_l0, model.lstm.bias_hh_l0)
        i, f, g, o = gates.chunk(4, dim=1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        state = o.sigmoid() * cell.tanh()
        rows.append(model.head(state))
    torch.testing.assert_close(logits, torch.stack(rows, dim=1))
    torch.testing.assert_close(h[0], state)
    torch.testing.assert_close(c[0], cell)
    assert torch.equal(last, tokens[:, -1:])


def test_impossible_models():
    with pytest.raises(ValueError, match="at least one layer"):
        Decoder(**SHAPE, layers=0)
    with pytest.raises(ValueError, match="at least one unit"):
        SegmentLstm(vocab=7, width=0, layers=1, segment=5)
