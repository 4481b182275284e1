"""Are the teacher's memories spread out or gathered in one place? (arXiv:2606.06479, Eq. 4, Fig. 16)"""

from __future__ import annotations

import torch

from reference.algorithms.smt import uniformity
from reference.measure.drift import Task, on_device
from reference.models.smt import SMT


def memory_uniformity(
    model: SMT, task: Task, generator: torch.Generator, size: int = 64, most: int = 2048
) -> dict[str, float]:
    """Measure the spread of the teacher's memories over `size` sequences at every position.

    Returns:
        uniformity: L_unif over at most `most` memory tokens of length 1: 0 when all are alike, about −4
            spread out.
        memory_uniformity: the same with a whole memory as one row.
        spread: mean variance of one number of the memory over sequences and positions; a token's numbers have
            mean square 1, so 1 at most, and 0 at collapse.
        rank: effective number of directions the memories vary in, (Σλ)² / Σλ² of their covariance; 0 at
            collapse.
    """
    batch = on_device(model, task.sample(size, generator))
    with torch.no_grad():
        memory = model.teach(batch["inputs"]).flatten(0, 1).double()

        def some(rows: torch.Tensor) -> torch.Tensor:
            return rows[torch.randperm(len(rows), generator=generator)[:most].to(rows.device)]

        whole = memory.flatten(1)
        centred = whole - whole.mean(0)
        spread = centred.square().mean()
        power = torch.linalg.svdvals(some(centred)).square() if spread > 1e-12 else centred.new_zeros(1)
        rank = (power.sum().square() / power.square().sum().clamp(min=1e-300)).item()
        return {
            "uniformity": uniformity(some(memory.flatten(0, 1))).item(),
            "memory_uniformity": uniformity(some(whole)).item(),
            "spread": spread.item(),
            "rank": rank,
        }
