# ruff: noqa: N815  # fields carry shape suffixes
"""Sparse Attentive Backtracking: an LSTM that reads a few past states (arXiv:1809.03702, Algorithm 1)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from reference.models.inputs import INPUTS, features, width
from reference.models.sab.function import SabFunction, head, make_scan
from reference.models.sab.fused import FusedScan
from reference.models.sab.options import Memory, Options, State, Trace
from reference.models.sab.scan import Scan

__all__ = ["SAB", "Inspection", "Options", "State"]

CHOICES = {
    "truncation": ("grid", "sliding"),
    "mental_updates": ("full", "none", "own_step"),
    "retrieval": ("sparse", "dense", "none", "shuffled"),
    "score": ("additive", "separable"),
    "threshold": ("next", "released"),
    "few_memories": ("skip", "lowest", "softmax", "uniform", "threshold_zero", "raw"),
    "memory": ("hidden", "output"),
    "first_memory": ("none", "zero"),
    "input": INPUTS,
}
STREAM = 64  # steps whose activations exist at once when nothing is kept for a backward pass


@dataclass
class Inspection:
    """What a forward pass did, for plots and diagnosis.

    `weights_BTN`: weight of memory n at step t, 0 where it was not read. `stored_N`: the step, counted from
    0, that each memory comes from; -1 for those the state brought along. `hidden_norm_BT`, `output_norm_BT`,
    `read_norm_BT`: Euclidean norms of h_t, of the LSTM's output before the read, and of s_t. `saturation_BT`:
    share of the three gates of all units below 0.05 or above 0.95.
    """

    logits_BTC: Tensor
    weights_BTN: Tensor
    stored_N: Tensor
    hidden_norm_BT: Tensor
    output_norm_BT: Tensor
    read_norm_BT: Tensor
    saturation_BT: Tensor


class SAB(nn.Module):
    """An LSTM whose state is the cell's output plus a sparse mixture of stored states.

    At step t = 1, 2, ...: (h^_t, c_t) = LSTM(h_{t-1}, c_{t-1}, x_t); a_i = w3 . tanh(W1 m_i + W2 h^_t) for
    every memory; s_t = sum_i alpha_i m_i; h_t = h^_t + s_t; y_t = V1 h_t + V2 s_t + b; h_t is stored if t is
    a multiple of k_att. In this order: detach (if truncation asks for it), LSTM, read, store.

    Arguments, and where the paper is silent the readings on offer:

    - `inputs`, `outputs`, `hidden`, `scorer`: input symbols (or features), outputs, units, scorer width
      (None: `hidden`). `input` says how inputs enter: "one_hot", "symbols" (the same, but a blank is the zero
      vector), "scalar" (the symbol's number as one feature, as in the released code) or "real" (inputs_BTF).
    - `k_trunc`: steps of local back-propagation, None for all. `truncation`: "grid" detaches h and c, not the
      memories, before the steps 1, 1 + k_trunc, 1 + 2 k_trunc, ..., so that a path has 1 to k_trunc steps;
      "sliding" goes exactly k_trunc steps back from every loss and every memory read.
    - `mental_updates`: "full" goes on from a memory as from a loss; "none" takes memories as constants;
      "own_step" reaches the parameters through the step that produced the memory and nothing before it.
    - `k_top`, `threshold`: "next" reads k_top memories, with the (k_top + 1)-th score as threshold;
      "released" takes the k_top-th plus 1e-7, as the released code does, and reads k_top - 1. Among equal
      scores the earliest memory ranks first; where all differences are 0, s = 0. With k_top = 1 the weight is
      always 1 and the scorer gets no gradient.
    - `few_memories`, the weights while there are at most k_top memories: "skip": read nothing; "lowest": the
      lowest score is the threshold; "softmax": softmax; "uniform": their mean; "threshold_zero": the
      threshold is 0; "raw": the scores themselves, unnormalised, as in the released code.
    - `retrieval`: "sparse" (Algorithm 1); "dense" (softmax over all memories: with k_trunc=None the paper's
      LSTM + full self-attention, else its dense ablation); "none" (a plain LSTM) and "shuffled" (each
      sequence reads its neighbour's memories) are controls.
    - `score`: "additive" (above) or "separable", the released code's w . [tanh h^ ; tanh m], whose query
      cannot change the ranking. `first_memory`: "none", or "zero" for the released code's first memory.
    - Departures from Algorithm 1: `memory="output"` stores h^ instead of h; `denominator` is added to the sum
      of the differences.
    - Initialisation: weights uniform in +-1/sqrt(hidden) times `input_scale` (W_x), `recurrent_scale` (W_h),
      `scorer_scale` (W1, W2), `w3_scale` (w3; the released w); `scorer_std`: normal with this standard
      deviation instead, for all of the scorer (the released code's is 0.01). Biases are 0 but `forget_bias`
      and `output_bias`.

    The backward pass is written by hand, and exact; gradients end at `state`. On a CPU with a C++ compiler
    its steps are compiled (`implementation` says so).

    Raises ValueError on a size below 1, an unknown choice, a negative scale, or k_top = 1 with the released
    threshold (which would read nothing).

    Suffixes: B batch, T steps, F features, G = 4 H gates (output, input, forget, candidate), H units, D
    scorer width, N memories, C outputs.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden: int = 128,
        scorer: int | None = None,
        k_trunc: int | None = 5,
        k_top: int = 5,
        k_att: int = 1,
        truncation: str = "grid",
        mental_updates: str = "full",
        retrieval: str = "sparse",
        few_memories: str = "skip",
        score: str = "additive",
        threshold: str = "next",
        first_memory: str = "none",
        memory: str = "hidden",
        denominator: float = 0.0,
        input: str = "one_hot",
        input_scale: float = 1.0,
        recurrent_scale: float = 1.0,
        scorer_scale: float = 1.0,
        w3_scale: float = 1.0,
        scorer_std: float | None = None,
        forget_bias: float = 0.0,
        output_bias: float = 0.0,
    ) -> None:
        given = dict(locals())
        super().__init__()
        for name, choices in CHOICES.items():
            if given[name] not in choices:
                raise ValueError(f"SAB's {name} is one of {', '.join(choices)}, not {given[name]!r}.")
        for name in ("inputs", "outputs", "hidden", "scorer", "k_trunc", "k_top", "k_att"):
            optional = name in ("scorer", "k_trunc")
            if not (given[name] is None and optional) and (type(given[name]) is not int or given[name] < 1):
                raise ValueError(
                    f"SAB's {name} is an integer >= 1{' or None' * optional}, not {given[name]!r}."
                )
        for name in (
            "denominator",
            "input_scale",
            "recurrent_scale",
            "scorer_scale",
            "w3_scale",
            "scorer_std",
        ):
            if given[name] is not None and given[name] < 0:
                raise ValueError(f"SAB's {name} is not negative, unlike {given[name]!r}.")
        if threshold == "released" and k_top == 1:
            raise ValueError(
                "SAB with the released threshold reads k_top - 1 memories, so k_top must be at least 2."
            )
        self.options = Options(
            k_trunc=k_trunc,
            k_top=k_top,
            k_att=k_att,
            truncation=truncation,
            mental_updates=mental_updates,
            retrieval=retrieval,
            score=score,
            threshold=threshold,
            few_memories=few_memories,
            memory=memory,
            denominator=denominator,
        )
        self.inputs, self.hidden, self.input, self.first_memory = inputs, hidden, input, first_memory
        scorer_width = scorer or hidden

        def uniform(*shape: int, scale: float = 1.0) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape).uniform_(-(hidden**-0.5), hidden**-0.5).mul_(scale))

        self.weight_input_GF = uniform(4 * hidden, width(input, inputs), scale=input_scale)
        self.weight_hidden_GH = uniform(4 * hidden, hidden, scale=recurrent_scale)
        self.bias_G = nn.Parameter(torch.zeros(4 * hidden))
        if score == "additive":
            self.w1_DH = uniform(scorer_width, hidden, scale=scorer_scale)
            self.w2_DH = uniform(scorer_width, hidden, scale=scorer_scale)
            self.w3_D = uniform(scorer_width, scale=w3_scale)
        else:
            self.w_2H = uniform(2 * hidden, scale=w3_scale)
        self.v1_CH, self.v2_CH = uniform(outputs, hidden), uniform(outputs, hidden)
        self.b_C = nn.Parameter(torch.zeros(outputs))
        with torch.no_grad():
            self.bias_G[:hidden] = output_bias
            self.bias_G[2 * hidden : 3 * hidden] = forget_bias
            if scorer_std is not None:
                for weight in self.scorer_weights().values():
                    weight.normal_(0.0, scorer_std)

    @property
    def implementation(self) -> str:
        """Return "fused" or "plain": what the steps of this model run where it is (they round apart)."""
        return "fused" if FusedScan.covers(self.options, self.b_C) else "plain"

    def scorer_weights(self) -> dict[str, Tensor]:
        """Return the scorer's parameters by the paper's names (w: the released code's)."""
        if self.options.score == "additive":
            return {"w1": self.w1_DH, "w2": self.w2_DH, "w3": self.w3_D}
        return {"w": self.w_2H}

    def weights(self) -> dict[str, Tensor]:
        """Return all parameters in the order of `SabFunction`'s gradients."""
        return {
            "input": self.weight_input_GF,
            "bias": self.bias_G,
            "hidden": self.weight_hidden_GH,
            **self.scorer_weights(),
            "v1": self.v1_CH,
            "v2": self.v2_CH,
            "b": self.b_C,
        }

    def start(self, batch: int) -> State:
        """Return the state before the first step."""
        zero_BH = self.b_C.detach().new_zeros(batch, self.hidden)
        return State(
            zero_BH, zero_BH, zero_BH.new_zeros(int(self.first_memory == "zero"), batch, self.hidden)
        )

    def encode(self, inputs: Tensor) -> Tensor:
        """Return the features_TBF of inputs_BT (inputs_BTF with `input="real"`)."""
        return features(inputs.transpose(0, 1), self.input, self.inputs, self.b_C.dtype)

    def forward(self, inputs: Tensor, state: State | None = None) -> Tensor:
        """Return logits_BTC of inputs_BT (inputs_BTF with `input="real"`).

        Without gradients, memory grows by the stored states and their keys only: sequences of any length are
        streamed.
        """
        x_TBF, state = self.prepare(inputs, state)
        weights = self.weights()
        if self.differentiates():
            logits_TBC = SabFunction.apply(
                x_TBF, state, self.options, None, tuple(weights), *weights.values()
            )
        else:
            logits_TBC = self.stream(x_TBF, state)[0]
        return logits_TBC.transpose(0, 1)

    def unroll(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Return logits_BTC and the state after the last step, which carries no gradient."""
        x_TBF, state = self.prepare(inputs, state)
        weights = self.weights()
        if self.differentiates():
            final: list[State] = []
            logits_TBC = SabFunction.apply(
                x_TBF, state, self.options, final, tuple(weights), *weights.values()
            )
            return logits_TBC.transpose(0, 1), final[0]
        logits_TBC, scan, memory, trace = self.stream(x_TBF, state)
        return logits_TBC.transpose(0, 1), scan.final(trace, memory, state.step + x_TBF.shape[0])

    def prepare(self, inputs: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Return features_TBF and the state to start from; ValueError if there is no step or no sequence."""
        if inputs.shape[0] < 1 or inputs.shape[1] < 1:
            raise ValueError(
                f"SAB needs at least one sequence of one step, not inputs of shape {tuple(inputs.shape)}."
            )
        return self.encode(inputs), state or self.start(inputs.shape[0])

    def differentiates(self) -> bool:
        """Whether this forward pass needs a backward pass."""
        return torch.is_grad_enabled() and any(weight.requires_grad for weight in self.parameters())

    def stream(self, x_TBF: Tensor, state: State) -> tuple[Tensor, Scan, Memory, Trace]:
        """Run chunk by chunk, keeping only logits, memories and the last chunk's trace."""
        weights = self.weights()
        scan = make_scan(self.options, weights, x_TBF.shape[1])
        memory = scan.memory(state, x_TBF.shape[0])
        logits = []
        for x_LBF in x_TBF.split(STREAM):
            trace = scan.forward(x_LBF, state, memory)
            logits.append(head(trace, weights))
            state = State(
                trace.hidden_TBH[-1], trace.cells_TBH[-1], state.memories_NBH, state.step + len(x_LBF)
            )
        return torch.cat(logits), scan, memory, trace

    @torch.no_grad()
    def inspect(self, inputs: Tensor, state: State | None = None) -> Inspection:
        """Return logits with what was read and how states and gates behaved; memory grows with steps x
        memories.
        """
        x_TBF, state = self.prepare(inputs, state)
        (steps, batch), weights = x_TBF.shape[:2], self.weights()
        scan = make_scan(self.options, weights, batch)
        memory = scan.memory(state, steps)
        trace = scan.forward(x_TBF, state, memory)
        weights_TBN = trace.reads_TBH.new_zeros(steps, batch, memory.count)
        for t, weights_NB in trace.dense.items():
            weights_TBN[t, :, : len(weights_NB)] = weights_NB.t()
        if self.options.sparse:
            weights_TBN.scatter_add_(2, trace.rows_TBK // batch, trace.weights_TBK)
        stored = [-1] * len(state.memories_NBH) + [
            t for t in range(steps) if self.options.stores(state.step + t)
        ]
        gates_TBG = trace.gates_TBG[..., : 3 * self.hidden]
        return Inspection(
            logits_BTC=head(trace, weights).transpose(0, 1),
            weights_BTN=weights_TBN.transpose(0, 1),
            stored_N=torch.tensor(stored),
            hidden_norm_BT=trace.hidden_TBH[1:].norm(dim=2).t(),
            output_norm_BT=trace.outputs_TBH.norm(dim=2).t(),
            read_norm_BT=trace.reads_TBH.norm(dim=2).t(),
            saturation_BT=((gates_TBG - 0.5).abs() > 0.45).to(gates_TBG.dtype).mean(2).t(),
        )
