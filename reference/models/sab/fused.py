"""The scan with compiled steps.

Suffixes: T steps, B batch, F input features, H hidden units, G = 4 H gates, N memories, K memories read and
threshold, D scorer width, C outputs, R gradient streams. A leading L is a chunk of steps.
"""

import ctypes

import torch
from torch import Tensor

from reference.models.sab import kernels
from reference.models.sab.options import Memory, Options, Trace
from reference.models.sab.scan import ReadChunk, Scan, StoreGradients
from reference.models.sab.scores import Additive


class FusedScan(Scan):
    """The same scan with everything between two matrix products in one pass (`kernels.cpp`).

    Covers Algorithm 1 and its reverse with one gradient stream on the CPU. The rare steps with few memories,
    and the reverse of a sliding window, stay with `Scan`.
    """

    @staticmethod
    def covers(options: Options, like: Tensor) -> bool:
        """Whether the fused steps know these options and this device."""
        return options.score == "additive" and options.memory == "hidden" and kernels.available(like)

    def __init__(self, options: Options, weights: dict[str, Tensor], batch: int) -> None:
        super().__init__(options, weights, batch)
        self.additive = Additive(weights["w1"], weights["w2"], weights["w3"], batch)

    def bind(self, trace: Trace, memory: Memory) -> kernels.Kernels:
        """Return the kernels bound to a trace and a store."""
        scores_BN = trace.reads_TBH.new_empty(
            self.batch, max(memory.keys_NBD.shape[0], trace.rows_TBK.shape[2])
        )
        return kernels.Kernels(
            trace.reads_TBH.dtype,
            {
                "batch": self.batch,
                "hidden": self.hidden,
                "width": self.scorer.width,
                "ranks": self.o.ranks,
                "read": self.o.k_top,
                "row_stride": trace.rows_TBK.shape[2],
                "capacity": scores_BN.shape[1],
                "shift": memory.shift,
                "denominator": self.o.denominator,
                "margin": self.margin,
            },
            {
                "gates": trace.gates_TBG,
                "cells": trace.cells_TBH,
                "hiddens": trace.hidden_TBH,
                "outputs": trace.outputs_TBH,
                "reads": trace.reads_TBH,
                "queries": trace.queries_TBD,
                "rows": trace.rows_TBK,
                "weights": trace.weights_TBK,
                "inverse": trace.inverse_TB1,
                "values": memory.values_NBH,
                "keys": memory.keys_NBD,
                "w3": self.w["w3"],
                "scores": scores_BN,
            },
        )

    def steps(self, trace: Trace, memory: Memory, start: int) -> None:
        """Run the steps after `start` earlier ones."""
        fused = self.bind(trace, memory)
        at, o = fused.address, self.o
        gates, hidden = trace.gates_TBG.unbind(0), trace.hidden_TBH.unbind(0)
        outputs, queries, keys = (
            trace.outputs_TBH.unbind(0),
            trace.queries_TBD.unbind(0),
            memory.keys_NBD.unbind(0),
        )
        w1_HD, w2_HD = self.additive.w1_HD, self.additive.w2_HD
        for t in range(len(gates)):
            gates[t].addmm_(hidden[t], self.hh_HG)
            fused.cell_forward(at, t)
            n = memory.count
            trace.counts.append(n)
            if n > o.k_top and o.sparse:
                torch.mm(outputs[t], w2_HD, out=queries[t])
                fused.sparse_forward(at, t, n)
            elif n > 0 and o.retrieval == "dense":
                torch.mm(outputs[t], w2_HD, out=queries[t])
                trace.dense[t] = hidden[t].new_empty(n, self.batch)
                fused.dense_forward(at, t, n, ctypes.c_void_p(trace.dense[t].data_ptr()))
            elif self.read(t, memory, trace):
                hidden[t + 1].add_(trace.reads_TBH[t])
            if o.stores(start + t):
                stored_BH = hidden[t + 1].roll(-1, 0) if memory.shift else hidden[t + 1]
                torch.mm(stored_BH, w1_HD, out=keys[n])
                fused.store(at, t, n)
                memory.count += 1

    def settle_ties(self, trace: Trace, memory: Memory) -> None:
        """Nothing to settle: the kernel ranks the earliest first among equals."""

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
        if self.o.streams > 1:
            super().reverse(start, trace, memory, hidden_gradient_TBH, read_gradient_TBH, gradients)
            return
        o, steps = self.o, trace.reads_TBH.shape[0]
        fused = self.bind(trace, memory)
        cell_BH = torch.zeros_like(trace.cells_TBH[0])
        phi_BD, scratch_BD = torch.zeros_like(trace.queries_TBD[0]), torch.empty_like(trace.queries_TBD[0])
        fused.bind(
            {
                "hidden_gradient": hidden_gradient_TBH,
                "read_gradient": read_gradient_TBH,
                "value_gradient": gradients.value_NBH,
                "key_gradient": gradients.key_NBD,
                "cell_gradient": cell_BH,
                "phi": phi_BD,
            }
        )
        at, scratch, null = fused.address, ctypes.c_void_p(scratch_BD.data_ptr()), ctypes.c_void_p(None)
        gates, states, queries = (
            trace.gates_TBG.unbind(0),
            hidden_gradient_TBH.unbind(0),
            trace.queries_TBD.unbind(0),
        )
        values, keys = gradients.value_NBH.unbind(0), gradients.key_NBD.unbind(0)
        for t in range(steps - 1, -1, -1):
            if t + 1 < steps and not o.truncates(start + t + 1):
                states[t].addmm_(gates[t + 1], self.w["hidden"])
            else:
                cell_BH.zero_()
            n = trace.counts[t]
            if o.stores(start + t) and o.mental_updates == "full":
                values[n].addmm_(keys[n], self.additive.w1_DH)
                fused.arrive(at, t, n)
            if n > o.k_top and o.sparse:
                fused.read_backward(at, t, n, null, scratch)
                states[t].addmm_(queries[t], self.additive.w2_DH)
            elif t in trace.dense:
                fused.read_backward(at, t, n, ctypes.c_void_p(trace.dense[t].data_ptr()), scratch)
                states[t].addmm_(queries[t], self.additive.w2_DH)
            elif t in trace.few:
                reads = ReadChunk(self, trace, memory, t, t + 1)
                read_1BH = states[t][None] + read_gradient_TBH[t]
                reads.backward(t, read_1BH, 1, gradients, states[t][None])
                gradients.phi_D += reads.phi_gradient()
            fused.cell_backward(at, t)
        gradients.phi_D += phi_BD.sum(0)
