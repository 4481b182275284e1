"""What the command lines of the speed measures share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager


def count(text: str) -> int:
    """Return a whole number from 1 on, as an argparse type; anything else is one sentence to the user."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"needs a whole number from 1 on, not {text!r}")
    return number


@contextmanager
def told(parser: argparse.ArgumentParser) -> Iterator[None]:
    """End the program with one sentence where sizes fit no model: a ValueError inside the block."""
    try:
        yield
    except ValueError as error:
        parser.error(str(error))
