"""What a trial is called, and what is said about the machine."""

import dataclasses
import os
import platform
from pathlib import Path

import pytest
import torch

from repro import source, trial
from repro.errors import UserError
from repro.trial import Trial, environment, git_state, gpu, processor
from tests import toys


@pytest.fixture
def one() -> Trial:
    return Trial(toys.recipe(), 1000)


def test_key_is_identity_and_fingerprint(one: Trial) -> None:
    identity, _, fingerprint = one.key.partition("-")
    assert (identity, fingerprint) == (one.identity, one.fingerprint)
    assert len(identity) == 16 and len(fingerprint) == 12 and int(identity + fingerprint, 16)


def test_labels_and_the_number_of_the_gpu_are_no_part_of_it(one: Trial) -> None:
    assert dataclasses.replace(one, claim="a.b", cell="c").key == one.key
    assert Trial(one.recipe, 1, "cuda:1").key == Trial(one.recipe, 1, "cuda").key


def test_recipe_seed_device_and_timing_are(one: Trial) -> None:
    others = [
        one,
        Trial(one.recipe, 1001),
        Trial(one.recipe.but(task={"noise": 0.2}), 1000),
        Trial(one.recipe, 1000, "cuda"),
        Trial(one.recipe, 1000, timed=True),
    ]
    assert len({t.identity for t in others}) == len(others)


def test_a_timing_belongs_to_its_processor(one: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Trial(one.recipe, 1000, timed=True)
    assert timed.device_class == processor() and one.device_class == "cpu"
    monkeypatch.setattr(trial, "processor", lambda: "another one")
    assert Trial(one.recipe, 1000, timed=True).identity != timed.identity
    assert Trial(one.recipe, 1000).identity == one.identity


def test_code_changes_the_fingerprint_alone(one: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    before, digest = one.key, source.digest
    monkeypatch.setattr(source, "digest", lambda f: "0" if f.name == "parts.py" else digest(f))
    after = Trial(one.recipe, 1000).key
    assert after.split("-")[0] == before.split("-")[0] and after != before


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cpu:0", ""])
def test_unknown_devices(device: str) -> None:
    with pytest.raises(UserError, match="is unknown; give cpu, cuda or cuda:N"):
        Trial(toys.recipe(), 1, device)


def test_negative_seed() -> None:
    with pytest.raises(UserError, match="seed -1 is negative"):
        Trial(toys.recipe(), -1)


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"there is no device cuda:99 here .* use --device cpu"):
        gpu("cuda:99")


def test_gpu_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"model {index}")
    assert gpu("cuda") == "model 0" and gpu("cuda:1") == "model 1"
    assert Trial(toys.recipe(), 1, "cuda:1", timed=True).device_class == "model 1"
    assert environment("cuda")["gpu"] == "model 0"


def test_environment() -> None:
    found = environment("cpu")
    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__ and found["numpy"] and found["processor"]
    assert found["cores"] == os.cpu_count() and found["gpu"] is None
    assert set(found["git"]) == {"commit", "dirty"}


def test_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git_state.cache_clear()
    monkeypatch.setattr(source, "root", lambda: tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state() == {"commit": "unknown", "dirty": False}
    git_state.cache_clear()
    for command in (
        "init -q",
        "-c user.name=a -c user.email=a@b commit -q --allow-empty -m one",
        "add .",
        "-c user.name=a -c user.email=a@b commit -q --allow-empty -m two",
    ):
        (tmp_path / "file").write_text("text")
        assert os.system(f"git -C {tmp_path} {command}") == 0
    clean = git_state()
    assert len(clean["commit"]) == 40 and clean["dirty"] is False
    (tmp_path / "file").write_text("other text")
    git_state.cache_clear()
    assert git_state() == {**clean, "dirty": True}
    monkeypatch.setenv("PATH", "")
    git_state.cache_clear()
    assert git_state()["commit"] == "unknown"
    git_state.cache_clear()
