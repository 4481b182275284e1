"""Algorithm 1 over a whole sequence and its reverse, in plain torch operations.

Suffixes: T steps, B batch, F input features, H hidden units, G = 4 H gates, N memories, K memories read and
threshold, D scorer width, C outputs, R gradient streams. A leading L is a chunk of steps.
"""

import torch
from torch import Tensor

from reference.models.sab.options import Memory, Options, State, Trace, empty_trace
from reference.models.sab.scores import Additive, Scorer, Separable
from reference.models.sab.weights import MARGIN, few_jacobian, few_weights, sparse_jacobian, sparse_weights

CHUNK = 2**18  # numbers in one temporary of the backward pass


class StoreGradients:
    """Gradients of memories and keys, gathered from all reads; `phi_D` is that of w3.

    With own steps, what later frozen reads owe to a key reaches the scorer's parameters, not the memory: it
    is kept in `own_key_NBD`.
    """

    def __init__(self, memory: Memory, own: bool) -> None:
        self.value_NBH, self.key_NBD = torch.zeros_like(memory.values_NBH), torch.zeros_like(memory.keys_NBD)
        self.own_key_NBD = torch.zeros_like(memory.keys_NBD if own else memory.keys_NBD[:0])
        self.phi_D = memory.keys_NBD.new_zeros(memory.scorer.width)

    def all_keys(self) -> Tensor:
        """Return the gradients of the keys as the scorer's parameters see them."""
        return self.key_NBD + self.own_key_NBD if len(self.own_key_NBD) else self.key_NBD


class Scan:
    """One sequence through SAB: the loop of Algorithm 1 and its reverse."""

    def __init__(self, options: Options, weights: dict[str, Tensor], batch: int) -> None:
        self.o, self.w, self.batch = options, weights, batch
        self.hh_HG = weights["hidden"].t()
        self.hidden = weights["hidden"].shape[1]
        self.scorer: Scorer
        if options.score == "additive":
            self.scorer = Additive(weights["w1"], weights["w2"], weights["w3"], batch)
        else:
            self.scorer = Separable(weights["w"])
        self.offsets_B1 = torch.arange(batch, device=self.hh_HG.device)[:, None]
        self.margin = MARGIN if options.threshold == "released" else 0.0

    def memory(self, state: State, steps: int) -> Memory:
        """Return the store of a segment of `steps` steps, filled with the memories of `state`."""
        capacity = (state.step + steps) // self.o.k_att - state.step // self.o.k_att
        return Memory(state.memories_NBH, capacity, self.scorer, self.o.retrieval == "shuffled")

    def forward(self, x_TBF: Tensor, state: State, memory: Memory) -> Trace:
        """Run Algorithm 1; `memory` grows by the states stored."""
        steps, b, features = x_TBF.shape
        h = self.hidden
        k = min(self.o.ranks, memory.values_NBH.shape[0]) if self.o.sparse else 0
        trace = empty_trace(self.hh_HG, steps, b, h, self.scorer.width, k)
        torch.addmm(
            self.w["bias"],
            x_TBF.reshape(-1, features),
            self.w["input"].t(),
            out=trace.gates_TBG.view(-1, 4 * h),
        )
        trace.cells_TBH[0] = state.cell_BH
        trace.hidden_TBH[0] = state.hidden_BH
        self.steps(trace, memory, state.step)
        return trace

    def steps(self, trace: Trace, memory: Memory, start: int) -> None:
        """Run the steps after `start` earlier ones."""
        h = self.hidden
        gates, cells = trace.gates_TBG.unbind(0), trace.cells_TBH.unbind(0)
        hidden, outputs = trace.hidden_TBH.unbind(0), trace.outputs_TBH.unbind(0)
        for t in range(len(gates)):
            gate_BG = gates[t].addmm_(hidden[t], self.hh_HG)
            output, input_, forget, candidate = gate_BG.split(h, dim=1)
            gate_BG[:, : 3 * h].sigmoid_()
            candidate.tanh_()
            torch.mul(forget, cells[t], out=cells[t + 1]).addcmul_(input_, candidate)
            torch.mul(output, cells[t + 1].tanh(), out=outputs[t])
            trace.counts.append(memory.count)
            if self.read(t, memory, trace):
                torch.add(outputs[t], trace.reads_TBH[t], out=hidden[t + 1])
            else:
                hidden[t + 1].copy_(outputs[t])
            if self.o.stores(start + t):
                memory.append(hidden[t + 1] if self.o.memory == "hidden" else outputs[t])

    def read(self, t: int, memory: Memory, trace: Trace) -> bool:
        """Read the memories at step t into the trace; False where nothing is read."""
        n = memory.count
        few = self.o.sparse and n <= self.o.k_top
        if n == 0 or self.o.retrieval == "none" or (few and self.o.few_memories == "skip"):
            return False
        query_BD = trace.queries_TBD[t]
        self.scorer.query(trace.outputs_TBH[t], query_BD)
        scores_NB = self.scorer.scores(memory.keys_NBD[:n], query_BD)
        if self.o.retrieval == "dense":
            weights_NB = scores_NB.softmax(0)
            trace.dense[t] = weights_NB
            torch.sum(memory.values_NBH[:n] * weights_NB[:, :, None], dim=0, out=trace.reads_TBH[t])
            return True
        if few:
            scores_BN = (scores_NB + self.scorer.offset(query_BD)).t()
            weights_BN = few_weights(scores_BN, self.o.few_memories)
            trace.few[t] = few_jacobian(scores_BN, weights_BN, self.o.few_memories)
            rows_BN = torch.arange(n, device=scores_NB.device) * self.batch + self.offsets_B1
            trace.rows_TBK[t, :, :n] = rows_BN
            trace.weights_TBK[t, :, :n] = weights_BN
            k = n
        else:
            k, ranks = self.o.k_top, self.o.ranks
            best_BK, index_BK = scores_NB.t().topk(min(n, ranks + 1), dim=1)
            trace.ranked_TBK[t, :, : best_BK.shape[1]] = best_BK
            weights_BN, trace.inverse_TB1[t] = sparse_weights(
                best_BK, k, ranks, self.margin, self.o.denominator
            )
            trace.weights_TBK[t, :, :k] = weights_BN
            torch.add(self.offsets_B1, index_BK[:, :ranks], alpha=self.batch, out=trace.rows_TBK[t])
            rows_BN = trace.rows_TBK[t, :, :k]
        values_BKH = memory.values_NBH.view(-1, self.hidden).index_select(0, rows_BN.reshape(-1))
        values_BKH = values_BKH.view(self.batch, k, self.hidden)
        torch.sum(values_BKH.mul_(weights_BN[:, :, None]), dim=1, out=trace.reads_TBH[t])
        return True

    def settle_ties(self, trace: Trace, memory: Memory) -> None:
        """Where scores tie at the threshold, let the earliest memories win, so that tau's gradient is
        defined.

        Weights don't depend on it: tied memories at the threshold have weight 0.
        """
        ranks = self.o.ranks
        if not self.o.sparse or trace.rows_TBK.shape[2] < ranks:
            return
        ranked = trace.ranked_TBK
        tied_TB = ranked[..., ranks - 1] == ranked[..., ranks]
        if ranks > 1:
            tied_TB |= ranked[..., ranks - 2] == ranked[..., ranks - 1]
        for t in torch.nonzero(tied_TB.any(1)).flatten().tolist():
            if trace.counts[t] > self.o.k_top:
                scores_NB = self.scorer.scores(memory.keys_NBD[: trace.counts[t]], trace.queries_TBD[t])
                index_BN = scores_NB.t().sort(dim=1, descending=True, stable=True).indices
                trace.rows_TBK[t] = index_BN[:, :ranks] * self.batch + self.offsets_B1

    def final(self, trace: Trace, memory: Memory, step: int) -> State:
        """Return the state after the last step, free of the trace's buffers."""
        values_NBH = memory.values_NBH[: memory.count]
        stored_NBH = values_NBH.roll(1, 1) if memory.shift else values_NBH.clone()
        return State(trace.hidden_TBH[-1].clone(), trace.cells_TBH[-1].clone(), stored_NBH, step)

    def backward(
        self,
        x_TBF: Tensor,
        step: int,
        trace: Trace,
        memory: Memory,
        hidden_gradient_TBH: Tensor,
        read_gradient_TBH: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return the gradients of (input, bias, hidden, scorer parameters...); overwrites trace and
        gradients.
        """
        gradients = StoreGradients(memory, self.o.own)
        self.reverse(step, trace, memory, hidden_gradient_TBH, read_gradient_TBH, gradients)
        flat_MG = trace.gates_TBG.view(-1, 4 * self.hidden)
        width, n = self.scorer.width, memory.count
        # The few features first: BLAS is several times slower with the product the other way round.
        return (
            (x_TBF.reshape(-1, x_TBF.shape[2]).t() @ flat_MG).t().contiguous(),
            flat_MG.sum(0),
            flat_MG.t() @ trace.hidden_TBH[:-1].view(-1, self.hidden),
            *self.scorer.parameter_gradients(
                gradients.all_keys()[:n].view(-1, width),
                memory.values_NBH[:n].view(-1, self.hidden),
                trace.queries_TBD.view(-1, width),
                trace.outputs_TBH.view(-1, self.hidden),
                gradients.phi_D,
            ),
        )

    def reverse(
        self,
        start: int,
        trace: Trace,
        memory: Memory,
        hidden_gradient_TBH: Tensor,
        read_gradient_TBH: Tensor,
        gradients: StoreGradients,
    ) -> None:
        """Put the gradients of gates and queries in their place and fill those of the store."""
        o, b, h, steps = self.o, self.batch, self.hidden, trace.reads_TBH.shape[0]
        budgets = o.streams - o.own  # the last stream beyond them is an own step
        fresh, target = budgets - 1, o.streams - 1
        gates, gates_gradient_RBG = trace.gates_TBG.unbind(0), None
        cell_RBH = trace.reads_TBH.new_zeros(o.streams, b, h)
        size = max(1, CHUNK // (b * max(1, trace.rows_TBK.shape[2]) * max(h, self.scorer.width)))
        for high in range(steps, 0, -size):
            low = max(0, high - size)
            carry, forget = (part.unbind(0) for part in self.local_gradients(trace, low, high))
            reads = ReadChunk(self, trace, memory, low, high)
            for t in range(high - 1, low - 1, -1):
                # 1. What arrives at h_t: from the outputs, from step t + 1, from later reads of the memory.
                state_RBH, cell_RBH = self.recur(
                    hidden_gradient_TBH[t], gates_gradient_RBG, cell_RBH, o.truncates(start + t + 1)
                )
                stored = o.stores(start + t) and o.mental_updates != "none"
                if stored:
                    j = trace.counts[t]
                    self.scorer.key_gradient(
                        gradients.key_NBD[j], memory.values_NBH[j], gradients.value_NBH[j]
                    )
                    arriving_BH = (
                        gradients.value_NBH[j].roll(1, 0) if memory.shift else gradients.value_NBH[j]
                    )
                    if o.memory == "hidden":
                        state_RBH[target].add_(arriving_BH)
                # 2. h_t = output_t + s_t: along the read edges.
                read_RBH = state_RBH.clone()
                read_RBH[fresh] += read_gradient_TBH[t]
                reads.backward(t, read_RBH, budgets, gradients, state_RBH)
                if stored and o.memory == "output":
                    state_RBH[target].add_(arriving_BH)
                # 3. The LSTM cell: local gradients were put in the place of the gates.
                cell_RBH = torch.addcmul(cell_RBH, state_RBH, carry[t - low])
                gate_BG = gates[t]
                if o.streams == 1:
                    gate_BG[:, :h].mul_(state_RBH[0])
                    gate_BG[:, h:].view(b, 3, h).mul_(cell_RBH[0, :, None])
                    gates_gradient_RBG = gate_BG[None]
                else:
                    gates_gradient_RBG = gate_BG.new_empty(o.streams, b, 4 * h)
                    torch.mul(gate_BG[:, :h], state_RBH, out=gates_gradient_RBG[..., :h])
                    ifg = gates_gradient_RBG[..., h:].view(o.streams, b, 3, h)
                    torch.mul(gate_BG[:, h:].view(b, 3, h), cell_RBH[:, :, None], out=ifg)
                    torch.sum(gates_gradient_RBG, dim=0, out=gate_BG)
                cell_RBH.mul_(forget[t - low])
            gradients.phi_D += reads.phi_gradient()

    def local_gradients(self, trace: Trace, low: int, high: int) -> tuple[Tensor, Tensor]:
        """Put d c / d gate (output gate: d output / d gate) in place of the gates; return d output / d c,
        forget.
        """
        output, input_, forget, candidate = trace.gates_TBG[low:high].split(self.hidden, dim=2)
        tanh_LBH = trace.cells_TBH[low + 1 : high + 1].tanh()
        carry_LBH = (1.0 - tanh_LBH.square()).mul_(output)
        forget_LBH = forget.clone()
        output.mul_(1.0 - output).mul_(tanh_LBH)
        new_input_LBH = (1.0 - input_).mul_(input_).mul_(candidate)
        candidate.square_().neg_().add_(1.0).mul_(input_)
        input_.copy_(new_input_LBH)
        forget.mul_(1.0 - forget).mul_(trace.cells_TBH[low:high])
        return carry_LBH, forget_LBH

    def recur(
        self, outer_BH: Tensor, gates_RBG: Tensor | None, cell_RBH: Tensor, truncated: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of h_t and c_t by stream, from the outputs of step t and from step t + 1."""
        r, b, h = self.o.streams, self.batch, self.hidden
        if r == 1:
            if truncated:
                cell_RBH.zero_()
            elif gates_RBG is not None:
                outer_BH.addmm_(gates_RBG[0], self.w["hidden"])
            return outer_BH[None], cell_RBH
        state_RBH, shifted_RBH = outer_BH.new_zeros(r, b, h), outer_BH.new_zeros(r, b, h)
        budgets = r - self.o.own
        if gates_RBG is not None:
            flow_RBH = (gates_RBG.view(-1, 4 * h) @ self.w["hidden"]).view(r, b, h)
            if self.o.truncation == "sliding" and self.o.k_trunc is not None:
                state_RBH[: budgets - 1], shifted_RBH[: budgets - 1] = (
                    flow_RBH[1:budgets],
                    cell_RBH[1:budgets],
                )
            elif not truncated:
                state_RBH[0], shifted_RBH[0] = flow_RBH[0], cell_RBH[0]
        state_RBH[budgets - 1] += outer_BH
        return state_RBH, shifted_RBH

    def jacobians(self, trace: Trace, low: int, high: int) -> Tensor:
        """J_LBKM with d weight_m / d score_k for the steps low..high-1."""
        jacobian = sparse_jacobian(trace.weights_TBK[low:high], trace.inverse_TB1[low:high], self.o.ranks)
        for t, few in trace.few.items():
            if low <= t < high:
                n = few.shape[1]
                jacobian[t - low].zero_()[:, :n, :n] = few
        return jacobian


class ReadChunk:
    """The reads of the steps low..high-1, prepared together, differentiated one by one."""

    def __init__(self, scan: Scan, trace: Trace, memory: Memory, low: int, high: int) -> None:
        self.scan, self.trace, self.memory, self.low = scan, trace, memory, low
        self.sparse = scan.o.sparse and trace.rows_TBK.shape[2] > 0
        self.phi_D: Tensor | None = None
        if not self.sparse:
            return
        steps, b, k = trace.rows_TBK[low:high].shape
        flat = trace.rows_TBK[low:high].reshape(-1)
        self.rows = trace.rows_TBK[low:high].reshape(steps, b * k).unbind(0)
        values = memory.values_NBH.view(-1, scan.hidden).index_select(0, flat).view(steps, b, k, scan.hidden)
        keys = (
            memory.keys_NBD.view(-1, scan.scorer.width)
            .index_select(0, flat)
            .view(steps, b, k, scan.scorer.width)
        )
        # d score_k / d s = J M: from the gradient of the read to those of the scores in one product.
        self.slope_values = (scan.jacobians(trace, low, high) @ values).unbind(0)
        slopes, self.phi = scan.scorer.slopes(keys, trace.queries_TBD[low:high, :, None])
        self.slopes = slopes.unbind(0)
        self.weights = trace.weights_TBK[low:high, ..., None].unbind(0)
        self.scores_LBK = values.new_zeros(steps, b, k)

    def backward(
        self,
        t: int,
        read_RBH: Tensor,
        budgets: int,
        gradients: StoreGradients,
        output_RBH: Tensor,
    ) -> None:
        """Pass the gradient of s_t on to memories, keys and, through the query, to the LSTM output of step t.

        Streams beyond `budgets` end at the memories: they reach the parameters of the scorer only.
        """
        n, scan = self.trace.counts[t], self.scan
        few = n <= scan.o.k_top and self.trace.few.get(t) is None
        if self.sparse and n > 0 and not few:
            i, width = t - self.low, scan.scorer.width
            score_RBK = (self.slope_values[i] * read_RBH[:, :, None]).sum(-1)
            torch.sum(score_RBK, dim=0, out=self.scores_LBK[i])
            pair_RBKD = score_RBK[..., None] * self.slopes[i]
            query_RBD = pair_RBKD.sum(2)
            value_BH = read_RBH[0] if budgets == 1 else read_RBH[:budgets].sum(0)
            pair_BKD = pair_RBKD[0] if budgets == 1 else pair_RBKD[:budgets].sum(0)
            flat_values = (self.weights[i] * value_BH[:, None]).view(-1, scan.hidden)
            gradients.value_NBH.view(-1, scan.hidden).index_add_(0, self.rows[i], flat_values)
            gradients.key_NBD.view(-1, width).index_add_(0, self.rows[i], pair_BKD.view(-1, width))
            if budgets < scan.o.streams:
                gradients.own_key_NBD.view(-1, width).index_add_(
                    0, self.rows[i], pair_RBKD[-1].view(-1, width)
                )
        elif t in self.trace.dense:
            query_RBD = self.dense(t, n, read_RBH, budgets, gradients)
        else:
            return
        scan.scorer.query_gradient(query_RBD, self.trace.outputs_TBH[t], output_RBH)
        torch.sum(query_RBD, dim=0, out=self.trace.queries_TBD[t])

    def dense(
        self,
        t: int,
        n: int,
        read_RBH: Tensor,
        budgets: int,
        gradients: StoreGradients,
    ) -> Tensor:
        """The same where all memories are read with softmax weights; pairs are recomputed."""
        weights_NB, values_NBH = self.trace.dense[t], self.memory.values_NBH[:n]
        slopes_NBD, phi_NBD = self.scan.scorer.slopes(self.memory.keys_NBD[:n], self.trace.queries_TBD[t])
        queries = []
        for r, read_BH in enumerate(read_RBH):
            score_NB = (values_NBH * read_BH).sum(-1).mul_(weights_NB)
            score_NB -= weights_NB * score_NB.sum(0)
            pair_NBD = slopes_NBD * score_NB[..., None]
            queries.append(pair_NBD.sum(0))
            self.add_phi(phi_NBD, score_NB)
            if r < budgets:
                gradients.key_NBD[:n] += pair_NBD
                gradients.value_NBH[:n].addcmul_(weights_NB[..., None], read_BH)
            else:
                gradients.own_key_NBD[:n] += pair_NBD
        return torch.stack(queries)

    def add_phi(self, phi: Tensor, score: Tensor) -> None:
        """Add sum score * phi to the gradient of w3."""
        part_D = phi.reshape(-1, self.scan.scorer.width).t() @ score.reshape(-1)
        self.phi_D = part_D if self.phi_D is None else self.phi_D + part_D

    def phi_gradient(self) -> Tensor | float:
        """Sum of d loss / d score times phi over the chunk: the gradient of w3."""
        if self.sparse:
            self.add_phi(self.phi, self.scores_LBK)
        return 0.0 if self.phi_D is None else self.phi_D
