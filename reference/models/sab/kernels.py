"""Compile and call the fused steps of `kernels.cpp`; without a C++ compiler there are none and nothing is
lost.

The library is built once per source, compiler and processor and kept in the user's cache folder. It covers
the CPU in float32 and float64. `status()` says whether it is in use, and why not.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

SOURCE = Path(__file__).with_name("kernels.cpp")
FLAGS = [
    "-O3",
    "-march=native",
    "-std=c++20",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
]
NAMES = ("forward", "backward", "cell_forward", "store", "arrive", "cell_backward")
_enabled = True

Kernel = Callable[..., None]


@contextmanager
def disabled() -> Iterator[None]:
    """Use plain torch operations within the block."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def available(like: Tensor) -> bool:
    """Whether the fused steps can work on tensors of this device and type.

    They step aside for fake tensors, which have no numbers, and for dispatch modes, which could not see them:
    counters of FLOPs and bytes count plain torch operations.
    """
    return (
        _enabled
        and type(like) in (Tensor, torch.nn.Parameter)
        and _get_current_dispatch_mode() is None
        and like.device.type == "cpu"
        and like.dtype in (torch.float32, torch.float64)
        and bool(library())
    )


def status() -> str:
    """Return "fused", or "plain" and why."""
    return "fused" if library() else "plain (no C++20 compiler that works)"


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library, building it if need be, or None."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
        identity = [SOURCE.read_bytes(), version, processor().encode(), " ".join(FLAGS).encode()]
        name = f"sab-{hashlib.sha256(b'|'.join(identity)).hexdigest()[:16]}.so"
        for folder in (cache_folder(), Path(tempfile.gettempdir()) / f"reference-kernels-{os.getuid()}"):
            try:
                return ctypes.CDLL(str(build(compiler, folder / name)))
            except PermissionError:
                continue
    except (OSError, subprocess.CalledProcessError):
        return None
    return None


def cache_folder() -> Path:
    """Return the folder that keeps compiled libraries."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reference-kernels"


def processor() -> str:
    """Return a name for what -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def build(compiler: str, path: Path) -> Path:
    """Compile to `path` unless it is there; two processes may do so at once."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".so")
        os.close(handle)
        try:
            subprocess.run([compiler, *FLAGS, "-o", temporary, str(SOURCE)], capture_output=True, check=True)
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    return path


def buffers(real: Any) -> type[ctypes.Structure]:
    """Return the struct `Buffers` of the C++ source for one floating-point type."""
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    sizes = ("steps", "batch", "hidden", "width", "ranks", "read", "row_stride", "capacity")
    place = ("shift", "threads", "start", "stored", "k_att", "k_trunc")
    options = ("sparse", "mental", "before_read")
    trace = ("gates", "cells", "hiddens", "outputs", "reads", "queries", "rows", "weights", "inverse")
    store = ("values", "keys", "w3", "scores", "dense")
    packed = ("to_gates", "to_query", "to_key", "from_gates", "from_query", "from_key")
    gradients = ("hidden_gradient", "read_gradient", "value_gradient", "key_gradient", "cell_gradient")
    fields: list[tuple[str, Any]] = [(name, integer) for name in sizes + place + options]
    fields += [(name, pointer) for name in trace + store + packed]
    fields += [("denominator", real), ("margin", real)]
    fields += [(name, pointer) for name in (*gradients, "phi", "scratch")]
    return type("Buffers", (ctypes.Structure,), {"_fields_": fields})


STRUCTS = {torch.float32: buffers(ctypes.c_float), torch.float64: buffers(ctypes.c_double)}


def pack(matrix_KN: Tensor) -> Tensor:
    """Return the panels_PKC of a matrix for the kernels' products.

    The C columns of a panel, 64 bytes in a row, lie together; zeros fill up the last panel.
    """
    k, n = matrix_KN.shape
    columns = 64 // matrix_KN.element_size()
    panels = -(-n // columns)
    padded_KN = torch.nn.functional.pad(matrix_KN, (0, panels * columns - n))
    return padded_KN.view(k, panels, columns).transpose(0, 1).contiguous()


class Kernels:
    """The fused steps bound to buffers.

    Raises ValueError on a tensor that is not contiguous or has another floating-point type. An empty tensor
    is a null pointer, which no step follows.
    """

    forward: Kernel
    backward: Kernel
    cell_forward: Kernel
    store: Kernel
    arrive: Kernel
    cell_backward: Kernel

    def __init__(self, dtype: torch.dtype, sizes: dict[str, int | float], tensors: dict[str, Tensor]) -> None:
        self.dtype = dtype
        self.struct = STRUCTS[dtype](threads=torch.get_num_threads(), **sizes)
        self.tensors: dict[str, Tensor] = {}  # kept alive
        self.bind(tensors)
        self.address = ctypes.c_void_p(ctypes.addressof(self.struct))
        suffix = str(dtype).removeprefix("torch.")
        for name in NAMES:
            function = getattr(library(), f"{name}_{suffix}")
            function.restype = None
            setattr(self, name, function)

    def bind(self, tensors: dict[str, Tensor]) -> None:
        """Set pointers by name."""
        self.tensors.update(tensors)
        for name, tensor in tensors.items():
            if not tensor.is_contiguous():
                raise ValueError(f"The fused steps need {name} to be contiguous.")
            if tensor.dtype not in (self.dtype, torch.int64):
                raise ValueError(f"The fused steps of {self.dtype} need {name} in that type.")
            setattr(self.struct, name, tensor.data_ptr() if tensor.numel() > 0 else None)
