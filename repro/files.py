"""Files that are whole or absent, whatever kills the writer."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from repro.errors import UserError


def write(path: Path, data: bytes, sync: bool = True) -> None:
    """Write `data` to a temporary name beside `path` and rename it into place.

    Args:
        path: the file to replace.
        data: its new content.
        sync: wait until the disk has it, so that a power cut cannot leave an empty file.

    Raises:
        UserError: the disk is full or the folder cannot be written; `path` is as it was before.
    """
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):  # a folder that cannot be written holds nothing to remove
            temporary.unlink(missing_ok=True)
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; free space or name another folder."
        ) from None


def alive(pid: int) -> bool:
    """Return whether a process of this machine has the number `pid`."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def sweep(folder: Path) -> None:
    """Remove temporary files in `folder` whose writer, a process of this machine, is dead."""
    host = socket.gethostname()
    for file in folder.glob(".*.tmp"):
        stem, _, pid = file.name.removesuffix(".tmp").rpartition(".")
        if stem.endswith(f".{host}") and pid.isdigit() and not alive(int(pid)):
            file.unlink(missing_ok=True)
