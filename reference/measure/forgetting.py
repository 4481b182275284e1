"""Where a slot goes that nothing is written to: the terminal state of biased memory normalisation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from reference.models.memformer import SlotWriter


@torch.no_grad()
def terminal_state(
    *,
    generator: torch.Generator,
    device: str,
    slots: int = 64,
    width: int = 128,
    heads: int = 4,
    steps: int = 200,
    shortest: float = 0.5,
    longest: float = 3.2,
) -> dict[str, float | list[float]]:
    """Write `steps` times with every token masked and follow the slots' distance to v_bias/|v_bias|.

    In float64. The lengths of the v_bias_i go from `shortest` to `longest` (the paper prints 1.15 and 3.20);
    the slots start at random unit vectors, none antipodal to its v_bias.

    Returns, always the worst slot:
        distance: Euclidean, after the last step; distance_by_step: from step 0 on;
        distance_without_forgetting: the same walk without the bias (the control: it must not shrink);
        distance_antipodal: after one step from exactly -v_bias/|v_bias| with |v_bias| < 1: the walk is stuck;
        raw_error: largest difference between m' and the raw m_i when the weight on itself is 1;
        bias_error: largest difference between that write and (m_i + v_bias_i) over its length;
        least_weight: smallest softmax weight on a token when none is masked: above 0, so "never written"
        needs a mask.
    """

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(device)

    def made(forgetting: bool) -> SlotWriter:
        return (
            SlotWriter(width=width, heads=heads, memory_size=slots, forgetting=forgetting).double().to(device)
        )

    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        writer, control = made(True), made(False)
    lengths_K1 = torch.linspace(shortest, longest, slots, dtype=torch.float64, device=device)[:, None]
    writer.bias.copy_(lengths_K1 * F.normalize(draw(slots, width), dim=-1))
    control.load_state_dict(writer.state_dict())
    end_KD = F.normalize(writer.bias, dim=-1)
    start_BKD = F.normalize(draw(1, slots, width), dim=-1)
    tokens_BND = draw(1, 8, width)
    masked_BN = torch.zeros(1, 8, dtype=torch.bool, device=device)

    def distance(slots_BKD: Tensor) -> float:
        return float((slots_BKD - end_KD).norm(dim=-1).max())

    def walk(writer: SlotWriter) -> list[float]:
        m_BKD, distances = start_BKD, [distance(start_BKD)]
        for _ in range(steps):
            m_BKD = writer(m_BKD, tokens_BND, masked_BN)
            distances.append(distance(m_BKD))
        return distances

    by_step = walk(writer)
    kept_BKD = writer.attend(start_BKD, tokens_BND, masked_BN)
    moved_BKD = F.normalize(start_BKD + writer.bias, dim=-1)
    written_BKD = writer(start_BKD, tokens_BND, masked_BN)
    writer.bias.copy_(end_KD / 2)
    opposite_BKD = writer(-end_KD[None], tokens_BND, masked_BN)
    return {
        "distance": by_step[-1],
        "distance_by_step": by_step,
        "distance_without_forgetting": walk(control)[-1],
        "distance_antipodal": distance(opposite_BKD),
        "raw_error": float((kept_BKD - start_BKD).abs().max()),
        "bias_error": float((written_BKD - moved_BKD).abs().max()),
        "least_weight": float(writer.weights(start_BKD, tokens_BND)[..., 1:].min()),
    }
