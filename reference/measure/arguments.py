"""What the command lines of the speed measures share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return an argparse type: a whole number in [low, high]; anything else is one sentence to the user."""
    room = f"from {low} on" if high is None else f"from {low} to {high}"

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if number < low or (high is not None and number > high):
            raise argparse.ArgumentTypeError(f"needs a whole number {room}, not {text!r}")
        return number

    return read


count = whole_number(1, 2**31 - 1)
cores = whole_number(1, os.cpu_count())
NO_ROOM = ("can't allocate memory", "not enough memory", "out of memory", "overflow")  # as torch words it


@contextmanager
def told(parser: argparse.ArgumentParser) -> Iterator[None]:
    """End the program with one sentence where sizes fit no model (a ValueError inside) or no memory."""
    try:
        yield
    except ValueError as error:
        parser.error(str(error))
    except (RuntimeError, MemoryError, OverflowError) as error:  # torch has no error of its own for these
        if type(error) is RuntimeError and not any(words in str(error).lower() for words in NO_ROOM):
            raise
        parser.error("these sizes do not fit into this machine's memory; make them smaller.")
