"""How the symbols of a sequence become features, the same for every model that reads them."""

import torch
from torch import Tensor, nn

INPUTS = ("one_hot", "symbols", "scalar", "real")


def width(kind: str, inputs: int) -> int:
    """Return the number of features F of `inputs` different symbols (or features, with "real")."""
    return {"scalar": 1, "symbols": inputs - 1}.get(kind, inputs)


def features(values: Tensor, kind: str, inputs: int, dtype: torch.dtype) -> Tensor:
    """Return features [..., F] of symbol numbers [...] (of features [..., F] with "real").

    "one_hot": a unit a symbol; "symbols": the same without a unit for symbol 0, so that a blank is the zero
    vector; "scalar": the symbol's number as one feature, as in SAB's released code; "real": as they are.
    """
    if kind in ("one_hot", "symbols"):
        one_hot = nn.functional.one_hot(values, inputs).to(dtype)
        return one_hot[..., 1:] if kind == "symbols" else one_hot
    return values.to(dtype)[..., None] if kind == "scalar" else values.to(dtype)
