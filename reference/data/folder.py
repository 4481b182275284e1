"""The git-ignored folder that holds real data, and a file in it that must be exactly the right one."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path


def folder() -> Path:
    """Return the data folder: the variable REPRO_DATA, or `data` beside the `reference` package."""
    return Path(os.environ.get("REPRO_DATA") or Path(__file__).parents[2] / "data")


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file of known content.

    Attributes:
        name: path below the data folder.
        size: bytes.
        sha256: of the whole file.
        source: how to get it, as the end of a sentence that says what to put where.
    """

    name: str
    size: int
    sha256: str
    source: str

    def is_in(self, content: bytes) -> bool:
        """Say whether `content` is this file's."""
        return len(content) == self.size and hashlib.sha256(content).hexdigest() == self.sha256

    def read(self) -> bytes:
        """Return the content.

        Raises:
            FileNotFoundError: the file is absent or another one; one sentence says what to put where.
        """
        path = folder() / self.name
        try:
            content = path.read_bytes()
            state = "is another file"
        except OSError as problem:
            content, state = b"", "is missing" if isinstance(problem, FileNotFoundError) else "can't be read"
        if not self.is_in(content):
            what = f"{self.name} ({self.size:,} bytes, SHA-256 {self.sha256})"
            raise FileNotFoundError(f"{path} {state}: put {what} there, {self.source}.")
        return content
