"""The scan with compiled steps.

Suffixes: T steps, B batch, F input features, H hidden units, G = 4 H gates, N memories, K memories read and
threshold, D scorer width, C outputs, R gradient streams. A leading L is a chunk of steps.
"""

import torch
from torch import Tensor

from reference.models.sab import kernels
from reference.models.sab.options import Memory, Options, Trace
from reference.models.sab.scan import ReadChunk, Scan, StoreGradients
from reference.models.sab.scores import Additive


class FusedScan(Scan):
    """The same scan with all its steps in one call (`kernels.cpp`): no thread waits for another within it.

    Covers Algorithm 1 and its reverse with one gradient stream on the CPU. The rare steps that read few
    memories, and the reverse of a sliding window, stay with `Scan`.
    """

    @staticmethod
    def covers(options: Options, like: Tensor) -> bool:
        """Whether the fused steps know these options and this device."""
        return options.score == "additive" and kernels.available(like)

    def __init__(self, options: Options, weights: dict[str, Tensor], batch: int) -> None:
        super().__init__(options, weights, batch)
        self.additive = Additive(weights["w1"], weights["w2"], weights["w3"], batch)
        self.to_gates = kernels.pack(self.hh_HG)
        self.to_query, self.to_key = kernels.pack(self.additive.w2_HD), kernels.pack(self.additive.w1_HD)

    def bind(self, trace: Trace, memory: Memory, start: int, stored: int) -> kernels.Kernels:
        """Return the kernels bound to a trace and a store that held `stored` memories after `start` steps."""
        scores_BN = trace.reads_TBH.new_empty(
            self.batch, max(memory.keys_NBD.shape[0], trace.rows_TBK.shape[2])
        )
        o, grid = self.o, self.o.truncation == "grid" or self.o.k_trunc == 1
        fused = kernels.Kernels(
            trace.reads_TBH.dtype,
            {
                "steps": trace.reads_TBH.shape[0],
                "batch": self.batch,
                "hidden": self.hidden,
                "width": self.scorer.width,
                "ranks": o.ranks,
                "read": o.k_top,
                "row_stride": trace.rows_TBK.shape[2],
                "capacity": scores_BN.shape[1],
                "shift": memory.shift,
                "start": start,
                "stored": stored,
                "k_att": o.k_att,
                "k_trunc": (o.k_trunc or 0) if grid else 0,
                "sparse": o.sparse,
                "mental": o.mental_updates == "full",
                "before_read": o.memory == "output",
                "denominator": o.denominator,
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
        if trace.dense:
            weights = [trace.dense.get(t) for t in range(len(trace.counts))]
            addresses = [0 if weights_NB is None else weights_NB.data_ptr() for weights_NB in weights]
            fused.bind({"dense": torch.tensor(addresses)})
        return fused

    def steps(self, trace: Trace, memory: Memory, start: int) -> None:
        """Run the steps after `start` earlier ones."""
        o, steps, stored = self.o, trace.reads_TBH.shape[0], memory.count
        before = start // o.k_att
        trace.counts.extend(stored + (start + t) // o.k_att - before for t in range(steps))
        if o.retrieval == "dense":
            for t, n in enumerate(trace.counts):
                if n > 0:
                    trace.dense[t] = self.w["w3"].new_empty(n, self.batch)
        fused = self.bind(trace, memory, start, stored)
        fused.bind({"to_gates": self.to_gates, "to_query": self.to_query, "to_key": self.to_key})
        few = 0
        while o.sparse and o.few_memories != "skip" and few < steps and trace.counts[few] <= o.k_top:
            t, memory.count = few, trace.counts[few]
            fused.cell_forward(fused.address, t)
            if self.read(t, memory, trace):
                trace.hidden_TBH[t + 1].add_(trace.reads_TBH[t])
            if o.stores(start + t):
                fused.store(fused.address, t)
            few += 1
        fused.forward(fused.address, few, steps)
        memory.count = stored + (start + steps) // o.k_att - before

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
        phi_BD = torch.zeros_like(trace.queries_TBD[0])
        fused = self.bind(trace, memory, start, trace.counts[0])
        fused.bind(
            {
                "from_gates": kernels.pack(self.w["hidden"]),
                "from_query": kernels.pack(self.additive.w2_DH),
                "from_key": kernels.pack(self.additive.w1_DH),
                "hidden_gradient": hidden_gradient_TBH,
                "read_gradient": read_gradient_TBH,
                "value_gradient": gradients.value_NBH,
                "key_gradient": gradients.key_NBD,
                "cell_gradient": torch.zeros_like(trace.cells_TBH[0]),
                "phi": phi_BD,
                "scratch": torch.empty_like(phi_BD),
            }
        )
        few = max(trace.few, default=-1) + 1
        fused.backward(fused.address, few, len(trace.counts))
        for t in range(few - 1, -1, -1):
            fused.arrive(fused.address, t)
            if t in trace.few:
                reads = ReadChunk(self, trace, memory, t, t + 1)
                read_1BH = (hidden_gradient_TBH[t] + read_gradient_TBH[t])[None]
                reads.backward(t, read_1BH, 1, gradients, hidden_gradient_TBH[t][None])
                gradients.phi_D += reads.phi_gradient()
            fused.cell_backward(fused.address, t)
        gradients.phi_D += phi_BD.sum(0)
