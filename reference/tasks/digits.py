"""Real MNIST digits as sequences of grey levels, pixel by pixel in reading order.

Memformer's image task (arXiv:2010.06891, Table 1) has 784 pixels of 256 levels. Smaller sequences come from
the same real pixels: `pool` averages squares of pool × pool pixels, `levels` cuts the greys into equal steps.
"""

from __future__ import annotations

import functools
import gzip
import io
import struct

import numpy as np
import torch
from torch import Tensor

from reference.data.digits import MNIST_5K
from reference.data.folder import DataFile

SIDE = 28
SPLITS = ("train", "validation", "test")
PERMUTATION_SEED = 28_2_28  # one fixed split, whatever the trial's seed
SMALL = {"train": 4000, "validation": 500, "test": 500}  # of the 5,000 images
FULL_VALIDATION = 5000  # of the 60,000 training images; the test file is the test split

_FULL = "from any copy of the original MNIST files"
FULL_TRAIN = DataFile(
    name="train-images-idx3-ubyte.gz",
    size=9_912_422,
    sha256="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    source=_FULL,
)
FULL_TEST = DataFile(
    name="t10k-images-idx3-ubyte.gz",
    size=1_648_877,
    sha256="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    source=_FULL,
)


class Digits:
    """MNIST digits as token sequences [B, N] with N = (28 / pool)².

    Args:
        source: `small` (the 5,000 digits that `python -m reference.data.digits` fetches) or `full` (the
            60,000 and 10,000 images of the original IDX files in the data folder).
        pool: side of the squares that are averaged: 1, 2, 4, 7 or 14.
        levels: grey levels, 2 to 256.

    Raises:
        FileNotFoundError: the files are absent; the message says what to put where.
        ValueError: an argument out of its range.

    >>> tokens_N(torch.full((1, 28, 28), 255, dtype=torch.uint8), pool=14, levels=8)
    tensor([[7, 7, 7, 7]])
    """

    def __init__(self, source: str = "small", pool: int = 1, levels: int = 256) -> None:
        if pool < 1 or SIDE % pool:
            raise ValueError(f"pool={pool} does not divide {SIDE}; use 1, 2, 4, 7 or 14.")
        if not 2 <= levels <= 256:
            raise ValueError(f"levels={levels}; use 2 to 256.")
        if source not in ("small", "full"):
            raise ValueError(f"source={source!r} is unknown; use small or full.")
        images = _small_images() if source == "small" else _full_images()
        self._tokens = {split: tokens_N(image, pool=pool, levels=levels) for split, image in images.items()}
        self.levels = levels

    def split(self, name: str) -> Tensor:
        """Return every sequence [n, N] of the split: train, validation or test."""
        if name not in SPLITS:
            raise ValueError(f"the split {name!r} is unknown; use {', '.join(SPLITS)}.")
        return self._tokens[name]

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return `size` training sequences drawn with replacement: {"tokens": [size, N]}."""
        train = self._tokens["train"]
        return {"tokens": train[torch.randint(len(train), (size,), generator=generator)]}


def tokens_N(images_BHW: Tensor, *, pool: int, levels: int) -> Tensor:  # noqa: N802
    """Return images of bytes [B, 28, 28] as tokens [B, (28 / pool)²], exact in whole numbers."""
    side = SIDE // pool
    sums = images_BHW.reshape(-1, side, pool, side, pool).to(torch.int64).sum((2, 4))
    return (sums * levels // (256 * pool * pool)).flatten(1)


@functools.lru_cache(maxsize=1)
def _small_images() -> dict[str, Tensor]:
    rows = np.loadtxt(io.BytesIO(gzip.decompress(MNIST_5K.read())), delimiter=",", dtype=np.float64)
    return split_small(torch.from_numpy(rows[:, :-1].astype(np.uint8)).view(-1, SIDE, SIDE))


def split_small(images: Tensor) -> dict[str, Tensor]:
    """Cut the 5,000 images into the fixed splits, permuted first: the file is sorted by class."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(PERMUTATION_SEED))
    parts = images[order].split([SMALL[name] for name in SPLITS])
    return dict(zip(SPLITS, parts, strict=True))


@functools.lru_cache(maxsize=1)
def _full_images() -> dict[str, Tensor]:
    train, test = (read_idx(gzip.decompress(file.read())) for file in (FULL_TRAIN, FULL_TEST))
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(PERMUTATION_SEED))
    return {
        "train": train[order[FULL_VALIDATION:]],
        "validation": train[order[:FULL_VALIDATION]],
        "test": test,
    }


def read_idx(content: bytes) -> Tensor:
    """Return the images [n, 28, 28] of an unpacked IDX file.

    Raises:
        ValueError: no IDX file of 28 × 28 bytes.
    """
    header = struct.unpack(">iiii", content[:16].ljust(16, b"\0"))
    if header[0] != 0x803 or header[2:] != (SIDE, SIDE):
        raise ValueError("not an IDX file of 28 × 28 images; take the original MNIST image files.")
    pixels = np.frombuffer(content, dtype=np.uint8, offset=16).copy()
    return torch.from_numpy(pixels).view(header[1], SIDE, SIDE)
