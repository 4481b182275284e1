"""From scores to weights, and the Jacobian of the weights (arXiv:1809.03702, Algorithm 1).

Suffixes: T steps, B batch, F input features, H hidden units, G = 4 H gates, N memories, K memories read and
threshold, D scorer width, C outputs, R gradient streams. A leading L is a chunk of steps.
"""

import torch
from torch import Tensor

MARGIN = 1e-7  # added to the threshold by the released code


def sparse_weights(
    best_BK: Tensor, k_top: int, ranks: int, margin: float, denominator: float
) -> tuple[Tensor, Tensor]:
    """Return (weights_Bk, 1 / sum_B1) from the best scores in falling order.

    The threshold is the score of rank `ranks`: k_top + 1 as written, so that [4, 3, 1, 0] with k_top = 2
    gives [3, 2] / 5; k_top plus `margin` in the released code. Weights are 0 where all differences are
    (ties).
    """
    excess_Bk = best_BK[:, :k_top] - best_BK[:, ranks - 1 : ranks]
    if margin:
        excess_Bk.sub_(margin).relu_()
    total_B1 = excess_Bk.sum(1, keepdim=True).add_(denominator)
    total_B1.clamp_min_(torch.finfo(best_BK.dtype).tiny)
    return excess_Bk / total_B1, total_B1.reciprocal_()


def sparse_jacobian(weights: Tensor, inverse: Tensor, ranks: int) -> Tensor:
    """Return J[..., K, M] = d weight_m / d score_k from weights [..., K] and 1 / sum [..., 1] of
    `sparse_weights`.
    """
    k = weights.shape[-1]
    eye = torch.eye(k, dtype=weights.dtype, device=weights.device)
    jacobian = ((weights > 0) * inverse)[..., :, None] * (eye - weights[..., None, :])
    if k == ranks:  # the threshold moves all differences the other way
        jacobian[..., ranks - 1, :] -= jacobian.sum(-2)
    return jacobian


def few_weights(scores_BN: Tensor, rule: str) -> Tensor:
    """Weights of all memories when there are at most k_top of them; see `SAB` for the rules."""
    if rule == "uniform":
        return torch.full_like(scores_BN, 1.0 / scores_BN.shape[1])
    if rule == "softmax":
        return scores_BN.softmax(1)
    if rule == "raw":
        return scores_BN
    if rule == "skip":
        return torch.zeros_like(scores_BN)
    excess_BN = few_excess(scores_BN, rule)
    return excess_BN / excess_BN.sum(1, keepdim=True).clamp_min(torch.finfo(scores_BN.dtype).tiny)


def few_excess(scores_BN: Tensor, rule: str) -> Tensor:
    """Scores above the threshold of "threshold_zero" or "lowest"."""
    return scores_BN.relu() if rule == "threshold_zero" else scores_BN - scores_BN.amin(1, keepdim=True)


def few_jacobian(scores_BN: Tensor, weights_BN: Tensor, rule: str) -> Tensor:
    """J_BNM with d weight_m / d score_n of `few_weights`."""
    b, n = scores_BN.shape
    eye = torch.eye(n, dtype=scores_BN.dtype, device=scores_BN.device)
    if rule in ("skip", "uniform"):
        return scores_BN.new_zeros(b, n, n)
    if rule == "raw":
        return eye.expand(b, n, n)
    if rule == "softmax":
        return weights_BN[:, :, None] * (eye - weights_BN[:, None, :])
    excess_BN = few_excess(scores_BN, rule)
    total_B1 = excess_BN.sum(1, keepdim=True)
    active_BN = (excess_BN > 0).to(scores_BN.dtype) / torch.where(total_B1 > 0, total_B1, 1.0)
    jacobian_BNM = active_BN[:, :, None] * (eye - weights_BN[:, None, :])
    if rule == "lowest":
        lowest_B = first_lowest(scores_BN)
        jacobian_BNM[torch.arange(b, device=scores_BN.device), lowest_B] -= jacobian_BNM.sum(1)
    return jacobian_BNM


def first_lowest(scores_BN: Tensor) -> Tensor:
    """Index of the threshold memory among few: the last in order of (score descending, time ascending)."""
    n = scores_BN.shape[1]
    return n - 1 - scores_BN.flip(1).argmin(1)
