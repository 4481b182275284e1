"""FLOPs of anything that runs in torch, counted from shapes: no number is computed on the meta device.

Convention: **one multiplication and one addition are two FLOPs** (2·MAC); only matrix products count, as
torch's own counter has it: no softmax, no normalisation, no activation, no embedding. A masked product counts
in full, because it runs in full.

Torch's counter gives 0 for what runs in one fused CPU kernel: attention and the LSTM. Both have formulas,
and a fused kernel without one is an error instead of a 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_flop_count

aten = torch.ops.aten
FUSED = ("attention", "rnn", "lstm", "gru")  # names of kernels that hide matrix products


def _attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _lstm_layer(tokens: Any, w_input: Any, w_hidden: Any, *args: Any, **kwargs: Any) -> int:
    """One direction of one layer; shapes [T, B, I], [4H, I], [4H, H]."""
    length, batch, _ = tokens
    return 2 * length * batch * (w_input[0] * w_input[1] + w_hidden[0] * w_hidden[1])


FORMULAS = {
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten.mkldnn_rnn_layer: _lstm_layer,
}


class _NoSilentZero(TorchDispatchMode):
    """Raise where a fused kernel would be counted as 0."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        packet = func._overloadpacket
        name = packet.__name__
        if any(word in name for word in FUSED) and packet not in flop_registry and packet not in FORMULAS:
            raise NotImplementedError(f"{name} hides its matrix products: run it on the meta device.")
        return func(*args, **(kwargs or {}))


@contextmanager
def counting() -> Iterator[FlopCounterMode]:
    """Count the FLOPs of the block; read them with `.get_total_flops()`.

    Raises:
        NotImplementedError: the block runs a fused kernel whose products nobody counts.
    """
    with FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter, _NoSilentZero():
        yield counter


def flops(run: Callable[[], object]) -> int:
    """Return the FLOPs of `run()`.

    >>> from torch import nn
    >>> layer, x_BD = nn.Linear(3, 5, device="meta"), torch.empty(7, 3, device="meta")
    >>> flops(lambda: layer(x_BD))  # 2 · 7 · 3 · 5
    210
    """
    with counting() as counter:
        run()
    return counter.get_total_flops()
