"""Reached code, digests and argument checks, on packages written for the test."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from repro import source
from repro.recipe import Part, Recipe, RecipeError, Stage, part
from tests import toys

Write = Callable[[dict[str, str]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files of a first-party package under tmp_path; code is read anew."""

    def write(texts: dict[str, str]) -> Path:
        for name, text in texts.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        source.forget()
        return tmp_path

    yield write
    source.forget()


def names(files: tuple[Path, ...], root: Path) -> set[str]:
    return {str(file.relative_to(root)) for file in files}


# --- digests


CODE = '"""Doc."""\n\n\ndef f(x=1):\n    """What f does."""\n    return x + 1\n'


@pytest.mark.parametrize(
    "same",
    [
        '# a comment\n"""Another doc."""\ndef f(x = 1):\n\n    return (x + 1)  # sum\n',
        "def f(x=1):\n    return x + 1",
        CODE.replace("What f does.", "Longer.\n\n    Much longer."),
    ],
)
def test_comments_docstrings_and_layout_do_not_count(write: Write, same: str) -> None:
    root = write({"a.py": CODE, "b.py": same})
    assert source.digest(root / "a.py") == source.digest(root / "b.py")


@pytest.mark.parametrize(
    "other",
    [
        CODE.replace("x + 1", "x + 2"),
        CODE.replace("x + 1", "x + 1.0"),
        CODE.replace("x + 1", "x - 1"),
        CODE.replace("x=1", "x=2"),
        CODE.replace("x=1", "x=True"),
        CODE.replace("def f", "@cache\ndef f"),
        CODE + "f(None)\n",
        CODE.replace("return x + 1", "return x + 1\n    'a string that is no docstring'"),
    ],
)
def test_code_counts(write: Write, other: str) -> None:
    root = write({"a.py": CODE, "b.py": other})
    assert source.digest(root / "a.py") != source.digest(root / "b.py")


def test_a_process_reads_a_file_once(write: Write) -> None:
    root = write({"a.py": CODE})
    before = source.digest(root / "a.py")
    (root / "a.py").write_text("changed = 1\n")
    assert source.digest(root / "a.py") == before
    source.forget()
    assert source.digest(root / "a.py") != before


def test_broken_code_is_named(write: Write) -> None:
    root = write({"toy/a.py": "def f(:\n"})
    with pytest.raises(RecipeError, match=r"a\.py is no valid Python \(line 1"):
        source.digest(root / "toy" / "a.py")


# --- reached files


def test_imports_of_every_form_are_followed(write: Write) -> None:
    root = write(
        {
            "toy/__init__.py": "",
            "toy/models/__init__.py": "from . import hidden\n",
            "toy/models/hidden.py": "",
            "toy/models/net.py": (
                "import torch\nimport other.thing\nimport toy.plain\nfrom toy.tools import helper\n"
                "from . import sibling\nfrom .. import uncle\nfrom ..deep.er import leaf\n"
                "def f():\n    from toy.late import x\n"
            ),
            "toy/models/sibling.py": "",
            "toy/plain.py": "",
            "toy/tools/helper.py": "from toy import helped\n",
            "toy/helped.py": "from toy.models import net\n",  # a circle
            "toy/uncle.py": "",
            "toy/deep/__init__.py": "",
            "toy/deep/er.py": "leaf = 1\n",
            "toy/late.py": "x = 1\n",
            "toy/lonely.py": "",
            "other/thing.py": "",
        }
    )
    found = names(source.reached(["toy.models.net.Net"], root), root)
    assert found == {
        "toy/__init__.py",
        "toy/models/__init__.py",
        "toy/models/hidden.py",
        "toy/models/net.py",
        "toy/models/sibling.py",
        "toy/plain.py",
        "toy/tools/helper.py",
        "toy/helped.py",
        "toy/uncle.py",
        "toy/deep/__init__.py",
        "toy/deep/er.py",
        "toy/late.py",
    }
    both = names(source.reached(["toy.plain.X", "other.thing.Y"], root), root)
    assert both == {"toy/__init__.py", "toy/plain.py", "other/thing.py"}


def test_a_path_without_a_module_is_named(write: Write) -> None:
    root = write({"toy/a.py": ""})
    with pytest.raises(RecipeError, match=r"no module for toy\.b\.C"):
        source.reached(["toy.b.C"], root)


def test_paths_inside_arguments_are_reached(write: Write) -> None:
    root = write({"toy/m.py": "def f(**k): ...\n", "toy/a.py": "", "toy/b.py": "", "toy/c.py": ""})
    args = {
        "model": "toy.a.A",
        "more": [{"path": "toy.b.B", "args": {}}],
        "text": "toy.zzz is no module",
        "gone": "toy.zzz.Z",
        "name": "c",
    }
    recipe = Recipe(measures=(Part(path="toy.m.f", args=args),))
    assert set(source.fingerprint(recipe, root)) == {"repro/engine.py", "toy/m.py", "toy/a.py", "toy/b.py"}


def test_other_files_that_code_names_are_reached(write: Write) -> None:
    code = 'SOURCE = "kernel.cpp"\nELSEWHERE = "/etc/hostname"\nTEXT = "notes.txt is a word"\nNUMBER = 3\n'
    root = write({"toy/m.py": code, "toy/kernel.cpp": "int x;", "toy/notes.txt": "", "toy/other.cpp": ""})
    assert names(source.reached(["toy.m.f"], root), root) == {"toy/m.py", "toy/kernel.cpp"}
    before = source.digest(root / "toy/kernel.cpp")
    write({"toy/kernel.cpp": "int y;"})
    assert source.digest(root / "toy/kernel.cpp") != before


def test_fingerprint_of_the_toys() -> None:
    found = source.fingerprint(toys.recipe(), source.root())
    assert {"repro/engine.py", "tests/toys/parts.py"} <= set(found)
    assert not {f for f in found if f.startswith("repro/")} - {"repro/engine.py"}
    assert found["tests/toys/parts.py"] == source.digest(source.root() / "tests/toys/parts.py")


def test_reading_code_imports_nothing_heavy() -> None:
    code = (
        "import sys; from repro import source, store, trial; from tests import toys;"
        "t = trial.Trial(toys.recipe(), 1); t.key; source.check_arguments(t.recipe, source.root());"
        "print([m for m in ('torch', 'numpy', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=source.root())
    assert done.stdout.strip() == "[]", done.stderr


# --- arguments


PARTS = """
from dataclasses import dataclass, field, KW_ONLY
from typing import ClassVar
from torch import nn
from toy.base import Base, Based as Renamed
from toy.base import made

class Task:
    def __init__(self, delay: int, symbols=8, *, noise: float = 0.0): ...

class Model(nn.Module):
    def __init__(self, *, hidden: int): ...

class Open(nn.Module):
    def forward(self, x): ...

class Anything:
    def __init__(self, **options): ...

class Nothing:
    pass

class Child(Base):
    pass

@dataclass
class Data(Renamed):
    a: int
    _: KW_ONLY
    b: float = 1.0
    c: list = field(default_factory=list)
    d: int = field(repr=False)
    e: int = field(init=False)
    F: ClassVar[int] = 3

class Algo:
    def __init__(self, k=1): ...

def measure(model, task, generator, size=3): ...
def alone(generator, device, n): ...
def narrow(model, task): ...
alias = measure
"""
BASE = """
from dataclasses import dataclass

class Base:
    def __init__(self, width, depth=1): ...

@dataclass(frozen=True)
class Based:
    base: int = 0

def made(): ...
"""


@pytest.fixture
def toy(write: Write) -> Path:
    return write({"toy/parts.py": PARTS, "toy/base.py": BASE})


def trained(**changes: object) -> Recipe:
    given: dict = {
        "task": part("toy.parts.Task", delay=3),
        "model": part("toy.parts.Model", hidden=4),
        "measures": (part("toy.parts.measure"),),
        "validation": part("toy.parts.measure", size=2),
        "algorithm": part("toy.parts.Algo", k=2),
        **changes,
    }
    stage = Stage(algorithm=given.pop("algorithm"), steps=1, batch=1, lr=0.1)
    return Recipe(stages=(stage, stage), **given)


@pytest.mark.parametrize(
    "task",
    [
        part("toy.parts.Task", delay=1, symbols=2, noise=0.5),
        part("toy.parts.Anything", whatever=1),
        part("toy.parts.Open", unknowable=1),
        part("toy.parts.Nothing"),
        part("toy.parts.Child", width=1, depth=2),
        part("toy.parts.Data", a=1, b=2.0, c=[1], d=4, base=5),
        part("toy.parts.Base", width=1),
        part("toy.parts.alias", anything=1),
        part("toy.parts.made"),
    ],
)
def test_fitting_arguments_pass(toy: Path, task: Part) -> None:
    source.check_arguments(trained(task=task), toy)


def test_measures_without_a_model(toy: Path) -> None:
    source.check_arguments(Recipe(measures=(part("toy.parts.alone", n=1),)), toy)
    with pytest.raises(RecipeError, match=r"measures\[0\]: toy.parts.measure must take 'device'"):
        source.check_arguments(Recipe(measures=(part("toy.parts.measure"),)), toy)


MISFITS = [
    (
        {"task": part("toy.parts.Task", delay=1, symbol=2)},
        "Task has no argument 'symbol'; did you mean 'symbols'?",
    ),
    (
        {"task": part("toy.parts.Task", delay=1, zzz=2)},
        "Task has no argument 'zzz'; it takes: delay, symbols, noise.",
    ),
    ({"task": part("toy.parts.Task")}, "Task needs the argument 'delay'; add it."),
    ({"task": part("toy.parts.Nothing", x=1)}, "Nothing has no argument 'x'; it takes: none."),
    ({"task": part("toy.parts.Child")}, "Child needs the argument 'width'; add it."),
    ({"task": part("toy.parts.Data", a=1)}, "Data needs the argument 'd'; add it."),
    (
        {"task": part("toy.parts.Data", a=1, d=1, e=1)},
        "Data has no argument 'e'; it takes: base, a, b, c, d.",
    ),
    ({"model": part("toy.parts.Model", hiden=4)}, "Model has no argument 'hiden'; did you mean 'hidden'?"),
    ({"stages[0].algorithm": part("toy.parts.Algo", kk=4)}, "Algo has no argument 'kk'; did you mean 'k'?"),
    ({"validation": part("toy.parts.measure", n=4)}, "measure has no argument 'n'; it takes: size."),
    ({"measures[0]": part("toy.parts.measure", n=4)}, "measure has no argument 'n'; it takes: size."),
]


@pytest.mark.parametrize(("changes", "message"), MISFITS)
def test_misfits_are_one_sentence(toy: Path, changes: dict, message: str) -> None:
    ((where, value),) = changes.items()
    name = {"stages[0].algorithm": "algorithm", "measures[0]": "measures"}.get(where, where)
    with pytest.raises(RecipeError) as caught:
        source.check_arguments(trained(**{name: (value,) if name == "measures" else value}), toy)
    assert str(caught.value) == f"{where}: toy.parts.{message}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"measures": (part("toy.parts.measure"), part("toy.parts.measure", task=4))},
            "measures[1]: the engine gives 'task' to toy.parts.measure; leave it out.",
        ),
        (
            {"measures": (part("toy.parts.narrow"),)},
            "measures[0]: toy.parts.narrow must take 'generator'; a measure of this recipe is called with ",
        ),
        ({"task": part("toy.part.Task", delay=1)}, "task: no module for toy.part.Task under"),
        (
            {"task": part("toy.parts.Tusk", delay=1)},
            "task: toy.parts defines no class or function 'Tusk'; it defines: Task, Model,",
        ),
        (
            {"task": part("toy.parts.Task.deeper", delay=1)},
            "task: toy.parts defines no class or function 'Task.deeper';",
        ),
        (
            {"task": part("toy.parts.Anything", inner={"path": "toy.parts.Algo", "args": {"q": 1}})},
            "task.inner: toy.parts.Algo has no argument 'q'; it takes: k.",
        ),
        (
            {"task": part("toy.parts.Anything", more=[{"one": {"path": "toy.parts.Task", "args": {}}}])},
            "task.more.0.one: toy.parts.Task needs the argument 'delay'; add it.",
        ),
    ],
)
def test_misfits_elsewhere(toy: Path, changes: dict, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        source.check_arguments(trained(**changes), toy)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_the_toys_fit_themselves() -> None:
    source.check_arguments(toys.recipe(), source.root())
    source.check_arguments(toys.measurement(n=2), source.root())
    with pytest.raises(RecipeError, match="no argument 'frozn'; did you mean 'frozen'"):
        source.check_arguments(toys.recipe(toys.stage(algorithm={"frozn": True})), source.root())


def test_root_holds_the_packages() -> None:
    assert (source.root() / "repro" / "source.py").is_file()
