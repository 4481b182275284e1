"""Scores of Sparse Attentive Backtracking, split into a key per memory and a query per step.

Both scorers have the form a_i = sum_j phi(p_ij + q_j), where p depends on the memory only and q on the step
only. So p is computed once a memory, and d a_i / d p_ij = d a_i / d q_j: one slope serves both gradients.

Suffixes: N memories, B batch, K memories read, H hidden units, D scorer width, T steps.
"""

from typing import Protocol

import torch
from torch import Tensor

Gradients = tuple[Tensor, ...]


class Scorer(Protocol):
    """What the scan needs of a scorer. Keys and queries may be stored in any invertible form."""

    width: int

    def key(self, memory_BH: Tensor, out_BD: Tensor) -> None:
        """Write the key of a memory."""

    def query(self, cell_BH: Tensor, out_BD: Tensor) -> None:
        """Write the query of a step from the LSTM output before the read."""

    def scores(self, key_NBD: Tensor, query_BD: Tensor) -> Tensor:
        """Return a_NB, up to a term that is equal for all memories."""

    def offset(self, query_BD: Tensor) -> Tensor | float:
        """Return the term that `scores` leaves out, [B] or one number."""

    def slopes(self, key: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Return (d a / d p, phi) in the last dimension D, for any broadcastable leading dimensions."""

    def query_gradient(self, gradient: Tensor, cell: Tensor, out: Tensor) -> None:
        """Add d a / d q, traced to the LSTM output, to `out`; leading dimensions [..., B]."""

    def key_gradient(self, gradient_BD: Tensor, memory_BH: Tensor, out_BH: Tensor) -> None:
        """Add the gradient of a memory's key, traced to the memory, to `out_BH`."""

    def parameter_gradients(
        self, key_ND: Tensor, memory_NH: Tensor, query_TD: Tensor, cell_TH: Tensor, phi_D: Tensor
    ) -> Gradients:
        """Return gradients in the order of the parameters, from all keys and queries at once."""


class Additive:
    """a_i = w3 . tanh(W1 m_i + W2 h^_t) (arXiv:1809.03702, Algorithm 1).

    tanh(x) = 1 - 2 / (1 + e^{2x}), and e^{2(p + q)} = e^{2p} e^{2q}. Keys are stored as e^{2p} and queries as
    e^{2q}, so that a pair of memory and step costs one product and one division and no transcendental
    function. In float32 the result is that of tanh as long as |p| and |q| stay below 43 (354 in float64): the
    query's exponent is clamped there, so no product is infinity times zero; a larger p saturates towards tanh
    = +-1.
    """

    def __init__(self, w1_DH: Tensor, w2_DH: Tensor, w3_D: Tensor, batch: int) -> None:
        self.width = w3_D.shape[0]
        self.w1_DH, self.w2_DH, self.w3_D = 2.0 * w1_DH, 2.0 * w2_DH, w3_D
        self.w1_HD, self.w2_HD = self.w1_DH.t(), self.w2_DH.t()
        self.numerator_BD = (-2.0 * w3_D).expand(batch, -1).contiguous()
        self.limit = 87.0 if w3_D.dtype == torch.float32 else 708.0
        self.one = torch.ones((), dtype=w3_D.dtype, device=w3_D.device)
        self.chunk = max(1, 2**18 // (batch * self.width))
        self.buffer = torch.empty(0, dtype=w3_D.dtype, device=w3_D.device)
        self.batch = batch

    def key(self, memory_BH: Tensor, out_BD: Tensor) -> None:
        """See `Scorer`."""
        torch.mm(memory_BH, self.w1_HD, out=out_BD).exp_()

    def query(self, cell_BH: Tensor, out_BD: Tensor) -> None:
        """See `Scorer`."""
        torch.mm(cell_BH, self.w2_HD, out=out_BD).clamp_(-self.limit, self.limit).exp_()

    def scores(self, key_NBD: Tensor, query_BD: Tensor) -> Tensor:
        """See `Scorer`."""
        n, b, d = key_NBD.shape
        if self.buffer.shape[0] < min(n, self.chunk):
            self.buffer = key_NBD.new_empty(min(self.chunk, 2 * n), b, d)
        if n <= self.chunk:
            return self._scores(key_NBD, query_BD, key_NBD.new_empty(n, b))
        out_NB = key_NBD.new_empty(n, b)
        for low in range(0, n, self.chunk):
            self._scores(key_NBD[low : low + self.chunk], query_BD, out_NB[low : low + self.chunk])
        return out_NB

    def _scores(self, key_NBD: Tensor, query_BD: Tensor, out_NB: Tensor) -> Tensor:
        # A sum over the last dimension rounds every row alike, as a matrix-vector product need not: equal
        # memories get equal scores, so ties stay ties.
        pair_NBD = torch.addcmul(self.one, key_NBD, query_BD, out=self.buffer[: key_NBD.shape[0]])
        return torch.sum(torch.div(self.numerator_BD, pair_NBD, out=pair_NBD), dim=2, out=out_NB)

    def offset(self, query_BD: Tensor) -> Tensor | float:
        """See `Scorer`."""
        return self.w3_D.sum()

    def slopes(self, key: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """See `Scorer`."""
        half = torch.addcmul(self.one, key, query).reciprocal_()  # (1 - tanh) / 2
        slope = (1.0 - half).mul_(half).mul_(2.0 * self.w3_D)  # with respect to 2 p
        return slope, half.mul_(-2.0).add_(1.0)

    def query_gradient(self, gradient: Tensor, cell: Tensor, out: Tensor) -> None:
        """See `Scorer`."""
        out.view(-1, out.shape[-1]).addmm_(gradient.view(-1, self.width), self.w2_DH)

    def key_gradient(self, gradient_BD: Tensor, memory_BH: Tensor, out_BH: Tensor) -> None:
        """See `Scorer`."""
        out_BH.addmm_(gradient_BD, self.w1_DH)

    def parameter_gradients(
        self, key_ND: Tensor, memory_NH: Tensor, query_TD: Tensor, cell_TH: Tensor, phi_D: Tensor
    ) -> Gradients:
        """See `Scorer`."""
        return (key_ND.t() @ memory_NH).mul_(2.0), (query_TD.t() @ cell_TH).mul_(2.0), phi_D


class Separable:
    """a_i = w . [tanh h^_t ; tanh m_i]: the released code's score, in which the query cannot change the
    ranking.
    """

    def __init__(self, w_2H: Tensor) -> None:
        self.width = 1
        self.w_query_H, self.w_memory_H = w_2H.chunk(2)

    def key(self, memory_BH: Tensor, out_BD: Tensor) -> None:
        """See `Scorer`."""
        torch.sum(memory_BH.tanh() * self.w_memory_H, dim=1, keepdim=True, out=out_BD)

    def query(self, cell_BH: Tensor, out_BD: Tensor) -> None:
        """See `Scorer`."""
        torch.sum(cell_BH.tanh() * self.w_query_H, dim=1, keepdim=True, out=out_BD)

    def scores(self, key_NBD: Tensor, query_BD: Tensor) -> Tensor:
        """See `Scorer`."""
        return key_NBD.squeeze(2)

    def offset(self, query_BD: Tensor) -> Tensor | float:
        """See `Scorer`."""
        return query_BD.squeeze(1)

    def slopes(self, key: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """See `Scorer`."""
        return torch.ones_like(key), torch.zeros_like(key)

    def query_gradient(self, gradient: Tensor, cell: Tensor, out: Tensor) -> None:
        """See `Scorer`."""
        out.add_(gradient * (1.0 - cell.tanh().square()) * self.w_query_H)

    def key_gradient(self, gradient_BD: Tensor, memory_BH: Tensor, out_BH: Tensor) -> None:
        """See `Scorer`."""
        out_BH.add_(gradient_BD * (1.0 - memory_BH.tanh().square()) * self.w_memory_H)

    def parameter_gradients(
        self, key_ND: Tensor, memory_NH: Tensor, query_TD: Tensor, cell_TH: Tensor, phi_D: Tensor
    ) -> Gradients:
        """See `Scorer`."""
        return (torch.cat([query_TD.t() @ cell_TH.tanh(), key_ND.t() @ memory_NH.tanh()], dim=1).squeeze(0),)
