"""A project with toy claims in a temporary folder, and runs of pytest on it."""

import json
from pathlib import Path
from typing import Any

from repro import suite
from repro.record import Record
from repro.store import Store
from repro.trial import Trial

ROOT = Path(__file__).resolve().parents[2]
INI = """[pytest]
strict_markers = true
addopts = -ra -p no:cacheprovider -p no:hypothesispytest -p no:unraisableexception -p no:threadexception
"""  # the last two collect garbage over and over: slow beside torch

QUICK = """
from repro.claim import Claim, Criterion, Protocol
from tests.toys import measurement

one = Criterion(
    name="is_one", kind="identity", statement="the value is 1", cell="one", metric="value", at_least=1,
    at_most=1,
)
claim = Claim(
    id="toy.quick", paper="Toys", title="one is one", source="Table 1", statement="It is 1.", headline=True,
    profiles={"every": Protocol(cells={"one": measurement(value=1.0)}, criteria=(one,))},
)
"""

TRAINED = """
from repro.claim import Claim, Control, Criterion, KnownDeviation, Protocol
from tests.toys import recipe, stage

good = recipe(stage(20, lr=0.1, algorithm=ALGORITHM), task=TASK, validation=None)
cells = {"good": good, "off": good.but(stage={"lr": 1e-9}), "extra": recipe(stage(5), validation=None)}
if CONTROL == "twin":  # as good as the original: a control that is not red
    cells["twin"] = good.but(stage={"lr": 0.11})
learns = Criterion(
    name="learns", kind="train", statement="the error is low", cell="good", metric=METRIC, at_most=AT_MOST,
    sd_floor=0.02, paper=0.1,
)
gains = Criterion(
    name="gains", kind="train", statement="training helps", cell="good", rival="off", metric="error",
    at_most=-0.1, sd_floor=0.02,
)
protocol = Protocol(
    cells=cells, criteria=(learns, gains),
    controls=(
        Control(name="no_learning", criterion="learns", swap={"good": CONTROL}),
        Control(name="no_gain", criterion="gains", swap={"good": "off", "off": "good"}),
    ),
    scale="a toy",
)
claim = Claim(
    id="toy.NAME", paper="Toys", title="it learns", source="Table 2", statement="It learns.",
    profiles={"cpu": protocol, "smoke": protocol}, known_deviation=DEVIATION,
)
"""
DEVIATION = "KnownDeviation(reason='toys differ', records=('0-0',), one_factor='toy.learns')"


def trained(name: str = "learns", **changes: object) -> str:
    """The source of a trained claim; a change fills in one of the names in capitals."""
    given = {"ALGORITHM": {}, "TASK": {}, "METRIC": "error", "AT_MOST": 1.4, "CONTROL": "off", **changes}
    text = TRAINED.replace("NAME", name).replace("DEVIATION", str(given.pop("DEVIATION", None)))
    for word, value in given.items():
        text = text.replace(word, repr(value))
    return text


def write(folder: Path, **claims: str) -> None:
    """Write `claims/toy/<name>.py` for each name, and pytest's settings."""
    (folder / "claims/toy").mkdir(parents=True, exist_ok=True)
    (folder / "pytest.ini").write_text(INI)
    for name, text in claims.items():
        (folder / f"claims/toy/{name}.py").write_text(text)


def metrics(store: Path) -> dict[str, Any]:
    """Return key → metrics of every record in a store."""
    found = [json.loads(file.read_text()) for file in (store / "records").glob("*.json")]
    return {record["key"]: record["metrics"] for record in found}


def put(store: Store, trial: Trial, status: str = "done", why: str = "", **metrics: object) -> None:
    """Write a record as if the trial had run."""
    record = Record(
        key=trial.key,
        recipe=trial.recipe.to_plain(),
        seed=trial.seed,
        device=trial.kind,
        device_class=trial.device_class,
        sources=dict(trial.sources),
        status=status,
        error=why,
        metrics=metrics,
        cost={"wall_s": 2.0},
    )
    (store.root / f"records/{trial.key}.json").write_text(record.to_json())


def fill(folder: Path, claim: str, profile: str = "cpu") -> Store:
    """Put a record for every trial of a toy claim: trained cells learn, the others do not."""
    store = Store(folder / ".repro")
    claims = suite.discover(folder / "claims")
    for cell, trials in suite.trials(claims[claim], profile).items():
        for trial in trials:
            put(store, trial, error=0.1 if cell in ("good", "twin") else 2.0, value=1.0)
    return store
