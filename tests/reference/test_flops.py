"""FLOP counts against numbers derived by hand: one attention block, one LSTM step, and no silent zero."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from reference.measure.flops import counting, flops

B, H, L, K, D = 2, 4, 8, 12, 16  # batch, heads, queries, keys, width of a head


def attention_block(device: str, by_hand: bool):
    """One block: four projections of width H·D, attention of L over L, two feed-forward layers."""
    width = H * D
    layers = [nn.Linear(width, width, device=device) for _ in range(4)]
    up, down = nn.Linear(width, 4 * width, device=device), nn.Linear(4 * width, width, device=device)
    x_BLE = torch.empty(B, L, width, device=device)

    def run():
        q, k, v = (layer(x_BLE).view(B, L, H, D).transpose(1, 2) for layer in layers[:3])
        if by_hand:
            mixed = ((q @ k.transpose(2, 3)) / D**0.5).softmax(-1) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return down(up(layers[3](mixed.transpose(1, 2).reshape(B, L, width))).relu())

    return run


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("by_hand", [True, False])
def test_one_attention_block(device, by_hand):
    width = H * D
    projections = 4 * B * L * width * width
    scores_and_mix = 2 * B * H * L * L * D
    feed_forward = 2 * B * L * width * 4 * width
    assert flops(attention_block(device, by_hand)) == 2 * (projections + scores_and_mix + feed_forward)


def test_torchs_own_counter_misses_attention_on_cpu():
    q = torch.zeros(B, H, L, D)
    with FlopCounterMode(display=False) as own:
        F.scaled_dot_product_attention(q, q, q)
    assert own.get_total_flops() == 0, "torch counts it now: FORMULAS may go"


def test_more_keys_than_queries():
    q, k = torch.zeros(B, H, L, D), torch.zeros(B, H, K, D)
    assert flops(lambda: F.scaled_dot_product_attention(q, k, k)) == 2 * 2 * B * H * L * K * D


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_one_lstm_step_and_one_sequence(device):
    inputs, hidden, length = 10, 20, 7
    step = 2 * B * 4 * hidden * (inputs + hidden)  # four gates, input and state
    cell = nn.LSTMCell(inputs, hidden, device=device)
    assert flops(lambda: cell(torch.empty(B, inputs, device=device))) == step
    layer = nn.LSTM(inputs, hidden, batch_first=True, device=device)
    with torch.no_grad():
        assert flops(lambda: layer(torch.empty(B, length, inputs, device=device))) == length * step
    two = nn.LSTM(inputs, hidden, num_layers=2, batch_first=True, device=device)
    above = 2 * B * 4 * hidden * (hidden + hidden)
    assert flops(lambda: two(torch.empty(B, length, inputs, device=device))) == length * (step + above)


def test_a_fused_kernel_without_formula_is_an_error():
    layer = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    x = torch.zeros(1, 3, 16)
    with torch.no_grad(), pytest.raises(NotImplementedError, match="meta device"):
        flops(lambda: layer(x, x, x))


def test_backward_counts_twice_the_forward():
    layer = nn.Linear(3, 5, device="meta")
    x = torch.empty(7, 3, device="meta", requires_grad=True)
    with counting() as counter:
        layer(x).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 7 * 3 * 5
