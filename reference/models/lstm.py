"""The LSTM baseline of Sparse Attentive Backtracking (arXiv:1809.03702, Sec. 4)."""

import torch
from torch import Tensor, nn

from reference.models.inputs import INPUTS, features, width

LstmState = tuple[Tensor, Tensor]


class LSTM(nn.Module):
    """One LSTM layer and a linear head on every step.

    `inputs` and `outputs` count symbols (or features, with `input="real"`), `hidden` the units. `input` says
    how inputs_BT enter: "one_hot", "symbols" (the same, but a blank is the zero vector), "scalar" (the
    symbol's number as one feature, as in SAB's released code) or "real" (inputs_BTF as they are). Weights
    start uniform in +-1/sqrt(hidden), the input matrix times `input_scale`, the recurrent one times
    `recurrent_scale`; biases at zero, those of the forget and output gates at `forget_bias` and
    `output_bias`.

    Raises ValueError on a size below 1 or an unknown `input`.

    Suffixes: B batch, T steps, F features, H hidden units, C outputs.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden: int = 128,
        input: str = "one_hot",
        input_scale: float = 1.0,
        forget_bias: float = 0.0,
        output_bias: float = 0.0,
        recurrent_scale: float = 1.0,
    ) -> None:
        super().__init__()
        for name, value in (("inputs", inputs), ("outputs", outputs), ("hidden", hidden)):
            if value < 1:
                raise ValueError(f"LSTM needs {name} >= 1, not {value}.")
        if input not in INPUTS:
            raise ValueError(f"LSTM's input is one of {', '.join(INPUTS)}, not {input!r}.")
        self.inputs, self.input = inputs, input
        self.lstm = nn.LSTM(width(input, inputs), hidden, batch_first=True)
        self.head = nn.Linear(hidden, outputs)
        with torch.no_grad():
            weights = dict(self.lstm.named_parameters())
            weights["weight_ih_l0"].mul_(input_scale)
            weights["weight_hh_l0"].mul_(recurrent_scale)
            weights["bias_hh_l0"].zero_()
            bias_G = weights["bias_ih_l0"].zero_()  # in the order input, forget, candidate, output
            bias_G[hidden : 2 * hidden] = forget_bias
            bias_G[3 * hidden :] = output_bias
            self.head.bias.zero_()

    def forward(self, inputs: Tensor, state: LstmState | None = None) -> Tensor:
        """Return logits_BTC of inputs_BT (inputs_BTF with `input="real"`)."""
        return self.unroll(inputs, state)[0]

    def unroll(self, inputs: Tensor, state: LstmState | None = None) -> tuple[Tensor, LstmState]:
        """Return logits_BTC and the final (h, c), each [1, B, H] and part of the graph."""
        hidden_BTH, state = self.lstm(self.encode(inputs), state)
        return self.head(hidden_BTH), state

    def encode(self, inputs: Tensor) -> Tensor:
        """Return the features_BTF of the inputs."""
        return features(inputs, self.input, self.inputs, self.head.weight.dtype)
