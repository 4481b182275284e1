"""Training, checkpoints, curves, early stopping and failures, on the toys."""

import math
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from repro import engine
from repro.engine import Training, derive, learning_rate, replay, run, stream
from repro.errors import UserError
from repro.recipe import Recipe, RecipeError, Stage, part
from repro.record import Record
from repro.trial import Heartbeat, Trial
from tests import toys
from tests.toys.parts import Backprop, Net, Rule

SEED = 1000
STOPPING = toys.stage(12, validate_every=2, stop=toys.stop(at_most=100.0, checks=2), clip=0.5)
SECOND = toys.stage(5, keep_optimiser=True, warmup=2, decay="cosine", algorithm={"frozen": True})
THREE = toys.recipe(STOPPING, SECOND, toys.stage(4, optimiser="sgd"))  # 4 + 5 + 4 steps


def silent(_beat: Heartbeat) -> None:
    pass


def do(recipe: Recipe, folder: Path, report: Callable[[Heartbeat], None] = silent, **options: Any) -> Record:
    return run(Trial(recipe, SEED, claim="toy.claim", cell="cell"), folder / "x.pt", report, **options)


def same(a: Record, b: Record) -> bool:
    return (a.metrics, a.training, a.validation, a.status) == (b.metrics, b.training, b.validation, b.status)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat at every step."""
    monkeypatch.setattr(engine, "BEAT_EVERY_S", 0.0)


class Pause:
    """A report that ends the trial once `step` steps are done."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, beat: Heartbeat) -> None:
        if beat.step == self.step:
            raise UserError("pause")


# --- the same numbers


def test_the_same_trial_twice_is_bit_identical(tmp_path: Path) -> None:
    first, second = do(THREE, tmp_path), do(THREE, tmp_path)
    assert same(first, second) and first.status == "done"
    assert first.cost["steps"] == 4 + 5 + 4


def test_seeds_differ(tmp_path: Path) -> None:
    other = run(Trial(THREE, SEED + 1), tmp_path / "x.pt", silent)
    assert not same(do(THREE, tmp_path), other)


def test_the_three_streams_differ() -> None:
    draws = {torch.rand(1, generator=stream(SEED, n)).item() for n in ("training", "validation", "judgement")}
    assert len(draws) == 3
    assert derive(1, "a") == derive(1, "a") != derive(2, "a")


def test_each_stream_is_used_where_it_should(tmp_path: Path) -> None:
    record = do(THREE, tmp_path)
    seen = [point["error_seen"] for point in record.validation]
    assert record.metrics["error_seen"] == Rule().sample(64, stream(SEED, "judgement"))["x"][0, 0].item()
    assert seen[0] == Rule().sample(16, stream(SEED, "validation"))["x"][0, 0].item()
    norm = Rule().sample(4, stream(SEED, "training"))["x"].norm().item()
    assert record.training[0]["size"] == norm
    assert len(set(seen)) == len(seen)  # fresh samples at every validation


def test_validating_does_not_disturb_training(tmp_path: Path) -> None:
    plain, watched = do(toys.recipe(), tmp_path), do(toys.recipe(toys.stage(validate_every=1)), tmp_path)
    assert watched.validation and plain.training == watched.training and plain.metrics == watched.metrics


def test_a_measure_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    more = (part("tests.toys.parts.error", size=5, name="first"), *toys.recipe().measures)
    alone, second = do(toys.recipe(), tmp_path), do(toys.recipe(measures=more), tmp_path)
    assert alone.metrics.items() <= second.metrics.items()


def test_the_callers_torch_is_left_as_it_was(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    torch.backends.cuda.matmul.allow_tf32 = True
    state = torch.get_rng_state()
    try:
        do(toys.recipe(), tmp_path)
        assert torch.get_num_threads() == 2 and torch.backends.cuda.matmul.allow_tf32
        assert torch.equal(torch.get_rng_state(), state)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def test_a_trial_has_one_thread_without_tf32(tmp_path: Path) -> None:
    seen = []
    torch.set_num_threads(2)
    record = do(
        toys.recipe(),
        tmp_path,
        lambda _: seen.append((torch.get_num_threads(), torch.backends.cudnn.allow_tf32)),
    )
    assert seen[0] == (1, False)
    assert record.environment.items() >= {"threads": 1, "tf32": False, "deterministic": True}.items()


# --- resuming


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("step", range(1, 13))
def test_resumed_after_any_step_it_ends_the_same(tmp_path: Path, step: int) -> None:
    whole = do(THREE, tmp_path)
    with pytest.raises(UserError):
        do(THREE, tmp_path, Pause(step))
    assert (tmp_path / "x.pt").is_file()
    resumed = do(THREE, tmp_path)
    assert same(whole, resumed) and resumed.environment["resumes"] == 1
    assert resumed.environment["warnings"] == []


@pytest.mark.usefixtures("eager")
def test_resuming_begins_the_earlier_stages_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stage adds to the model when it begins is there before the checkpoint is loaded."""

    def grow(_self: Backprop, model: Net) -> None:
        model.register_parameter(f"added_{len(list(model.parameters()))}", nn.Parameter(torch.ones(1)))

    monkeypatch.setattr(Backprop, "begin", grow)
    recipe = toys.recipe(toys.stage(3), toys.stage(3))
    whole = do(recipe, tmp_path)
    with pytest.raises(UserError):
        do(recipe, tmp_path, Pause(5))
    resumed = do(recipe, tmp_path)
    assert same(whole, resumed) and (resumed.status, resumed.environment["resumes"]) == ("done", 1)
    assert resumed.cost["parameters"] == whole.cost["parameters"] == 43 + 2


@pytest.mark.usefixtures("eager")
def test_many_interruptions(tmp_path: Path) -> None:
    whole = do(THREE, tmp_path)
    for step in (2, 4, 5, 9, 11):
        with pytest.raises(UserError):
            do(THREE, tmp_path, Pause(step))
    resumed = do(THREE, tmp_path)
    assert same(whole, resumed) and resumed.environment["resumes"] == 5


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("lost", ["torch_rng", "streams", "model", "optimiser"])
def test_the_comparison_would_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """Each part of the checkpoint matters: without it the resumed numbers are others."""
    recipe = toys.recipe(toys.stage(12))
    whole = do(recipe, tmp_path)
    with pytest.raises(UserError):
        do(recipe, tmp_path, Pause(6))
    load = Training.load

    def forgetful(self: Training, state: dict[str, Any]) -> None:
        fresh = Training(Trial(recipe, SEED))
        fresh.enter(recipe.stages[0])
        load(self, {**state, lost: fresh.state()[lost]})

    monkeypatch.setattr(Training, "load", forgetful)
    assert not same(whole, do(recipe, tmp_path))


@pytest.mark.usefixtures("eager")
def test_wall_time_counts_over_all_processes(tmp_path: Path) -> None:
    recipe = toys.recipe(toys.stage(6, algorithm={"slow": 0.03}))
    with pytest.raises(UserError):
        do(recipe, tmp_path, Pause(4))
    record = do(recipe, tmp_path)
    assert record.cost["wall_s"] >= 6 * 0.03
    assert torch.load(tmp_path / "x.pt", weights_only=True)["wall_s"] >= 4 * 0.03


@pytest.mark.parametrize("damage", ["truncate", "garbage", "empty", "other"])
@pytest.mark.usefixtures("eager")
def test_a_damaged_checkpoint_starts_the_trial_again(tmp_path: Path, damage: str) -> None:
    whole = do(THREE, tmp_path)
    with pytest.raises(UserError):
        do(THREE, tmp_path, Pause(7))
    file = tmp_path / "x.pt"
    if damage == "other":
        torch.save({"training": {"at": [0, 1, 0, 0]}, "wall_s": 0.0}, file)
    else:
        data = {"truncate": file.read_bytes()[:-100], "garbage": b"no checkpoint", "empty": b""}
        file.write_bytes(data[damage])
    damaged = file.read_bytes()
    again = do(THREE, tmp_path)
    assert same(whole, again) and again.environment["resumes"] == 0
    assert "x.pt.unreadable, and the trial started again" in again.environment["warnings"][0]
    assert (tmp_path / "x.pt.unreadable").read_bytes() == damaged


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["torch", "implementation"])
def test_resuming_under_another_torch_or_implementation_is_noted(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError):
        do(THREE, tmp_path, Pause(7))
    saved = torch.load(tmp_path / "x.pt", weights_only=True)
    torch.save({**saved, name: "another"}, tmp_path / "x.pt")
    (warning,) = do(THREE, tmp_path).environment["warnings"]
    assert warning.startswith(f"resumed under {name} ") and warning.endswith(" from another.")


def test_the_record_names_the_model_s_implementation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert do(THREE, tmp_path).environment["implementation"] is None
    monkeypatch.setattr("repro.engine.implementation", lambda _model: "fused")
    assert do(THREE, tmp_path / "other").environment["implementation"] == "fused"


def test_checkpoints_are_periodic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    monkeypatch.setattr(engine.files, "write", lambda path, data, sync=True: written.append(step[0]))
    step = [0]
    one_step = Training.one_step

    def counted(self: Training, stage: Stage) -> None:
        one_step(self, stage)
        step[0] += 1

    monkeypatch.setattr(Training, "one_step", counted)
    clock = SimpleNamespace(monotonic=lambda: float(step[0]), time=time.time)  # a step takes a second
    monkeypatch.setattr(engine, "time", clock)
    for every_s, expected in ((1000, []), (4, [4, 8]), (0, list(range(1, 11)))):
        step[0] = 0
        written.clear()
        do(toys.recipe(toys.stage(10)), tmp_path, checkpoint_every_s=every_s)
        assert written == expected


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_step_and_the_checkpoint(tmp_path: Path, number: int) -> None:
    class EndedError(Exception):
        pass

    def end(_number: int, _frame: object) -> None:
        raise EndedError

    def report(beat: Heartbeat) -> None:
        if beat.step == 5:
            signal.raise_signal(number)

    whole, before = do(THREE, tmp_path), signal.signal(number, end)
    try:
        with pytest.raises(EndedError):
            do(THREE, tmp_path, report)
        assert signal.getsignal(number) is end
    finally:
        signal.signal(number, before)
    assert torch.load(tmp_path / "x.pt", weights_only=True)["training"]["at"][:3] == [1, 2, 4]
    assert same(whole, do(THREE, tmp_path))


@pytest.mark.usefixtures("eager")
def test_keyboard_interrupt_in_the_ordinary_way(tmp_path: Path) -> None:
    def report(beat: Heartbeat) -> None:
        if beat.step == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        do(THREE, tmp_path, report)
    assert (tmp_path / "x.pt").is_file()


@pytest.mark.usefixtures("eager")
def test_a_second_signal_comes_at_once(tmp_path: Path) -> None:
    def report(beat: Heartbeat) -> None:
        if beat.step == 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            pytest.fail("the second interrupt did not come")

    with pytest.raises(KeyboardInterrupt):
        do(THREE, tmp_path, report)


@pytest.mark.usefixtures("eager")
def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        record = do(THREE, tmp_path, lambda _: signal.raise_signal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert record.status == "done" and not (tmp_path / "x.pt").exists()


def test_outside_the_main_thread_signals_go_elsewhere(tmp_path: Path) -> None:
    records: list[Record] = []
    thread = threading.Thread(target=lambda: records.append(do(THREE, tmp_path)))
    thread.start()
    thread.join()
    assert same(records[0], do(THREE, tmp_path))


def test_an_unwritable_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    trial = Trial(toys.recipe(), SEED)
    with pytest.raises(UserError, match=r"cannot write .*x\.pt: .*; free space or name another folder"):
        run(trial, tmp_path / "file" / "x.pt", silent, checkpoint_every_s=0.0)


# --- optimisers and schedules


def weights(training: Training) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in training.model.state_dict().items()}


def trained(*stages: Stage, limit: int | None = None) -> tuple[dict[str, torch.Tensor], Training]:
    training = Training(Trial(toys.recipe(*stages), SEED))
    before = weights(training)
    training.go(lambda: None, limit=limit)
    return before, training


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
def test_parameters_without_a_gradient_are_left_alone(optimiser: str) -> None:
    before, training = trained(toys.stage(3, optimiser=optimiser, weight_decay=0.1))
    assert moved(before, weights(training)) == {"body.weight", "body.bias", "head.weight", "head.bias"}
    before, training = trained(
        toys.stage(3, optimiser=optimiser, weight_decay=0.1, algorithm={"frozen": True})
    )
    assert moved(before, weights(training)) == {"head.weight", "head.bias"}


def test_the_optimisers_differ_and_sgd_is_plain() -> None:
    ends = [
        trained(toys.stage(3, optimiser=o, weight_decay=0.1))[1].model.head.weight
        for o in ("adam", "adamw", "sgd")
    ]
    assert len({end.sum().item() for end in ends}) == 3
    before, training = trained(toys.stage(1, optimiser="sgd", lr=0.25))
    step = -0.25 * training.model.head.weight.grad
    assert torch.allclose(before["head.weight"] + step, training.model.head.weight)


def test_moments_are_kept_only_when_asked() -> None:
    for keep in (True, False):
        first, second = toys.stage(3), toys.stage(2, keep_optimiser=keep)
        _, training = trained(first, second, limit=4)
        steps = {int(state["step"]) for state in training.optimiser.state.values()}
        assert steps == ({4} if keep else {1})


def test_kept_moments_go_on_under_the_stages_own_options() -> None:
    second = toys.stage(2, keep_optimiser=True, weight_decay=0.2, betas=(0.5, 0.6))
    _, training = trained(toys.stage(3, weight_decay=0.1), second, limit=4)
    (group,) = training.optimiser.param_groups
    assert (group["weight_decay"], tuple(group["betas"])) == (0.2, (0.5, 0.6))


def test_clipping_bounds_the_step() -> None:
    for clip in (0.01, None):
        before, training = trained(toys.stage(1, optimiser="sgd", lr=1.0, clip=clip))
        length = math.sqrt(sum((v - before[n]).square().sum().item() for n, v in weights(training).items()))
        assert (length == pytest.approx(0.01, rel=1e-3)) == (clip is not None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [1, 1, 1, 1, 1, 1]),
        ({"warmup": 2}, [0.5, 1, 1, 1, 1, 1]),
        ({"decay": "linear", "warmup": 2}, [0.5, 1, 1, 0.75, 0.5, 0.25]),
        ({"decay": "linear", "lr_end": 0.4}, [1, 0.9, 0.8, 0.7, 0.6, 0.5]),
        ({"decay": "cosine", "warmup": 2}, [0.5, 1, 1, 0.853553, 0.5, 0.146447]),
        ({"warmup": 12}, [1 / 12, 2 / 12, 3 / 12, 4 / 12, 5 / 12, 6 / 12]),
    ],
)
def test_learning_rates(changes: dict, expected: list[float]) -> None:
    stage = toys.stage(6, lr=1.0, **changes)
    assert [learning_rate(stage, step) for step in range(6)] == pytest.approx(expected, abs=1e-6)


def test_the_learning_rate_reaches_the_optimiser() -> None:
    _, training = trained(toys.stage(6, lr=1e-3, decay="linear"), limit=4)
    assert training.optimiser.param_groups[0]["lr"] == pytest.approx(0.5e-3)


def test_every_stage_counts_warmup_and_decay_from_its_own_first_step() -> None:
    first = toys.stage(3, lr=0.1)
    training = Training(Trial(toys.recipe(first, toys.stage(6, lr=0.4, warmup=2, decay="linear")), SEED))
    rates: list[float] = []
    training.go(lambda: rates.append(training.optimiser.param_groups[0]["lr"]))
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.2, 0.4, 0.4, 0.3, 0.2, 0.1])


# --- curves, early stopping


def test_curves_are_thinned_to_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = toys.recipe(toys.stage(25), toys.stage(7))
    fine = do(recipe, tmp_path).training
    assert [p["step"] for p in fine] == list(range(1, 33)) and {p["stage"] for p in fine} == {0, 1}
    monkeypatch.setattr(engine, "POINTS", 10)
    coarse = do(recipe, tmp_path).training
    assert [p["step"] for p in coarse] == [5, 10, 15, 20, 25, 27, 29, 31, 32]
    for name in ("loss", "size"):
        assert coarse[1][name] == pytest.approx(sum(p[name] for p in fine[5:10]) / 5)
        assert coarse[-1][name] == fine[-1][name]


def test_long_stages_give_at_most_200_points() -> None:
    for stages in ((100_001,), (999, 3), (7, 7, 100_000)):
        curve = engine.Curve(tuple(toys.stage(n) for n in stages))
        assert sum(math.ceil(n / curve.every(i)) for i, n in enumerate(stages)) <= 200


def test_stop_needs_checks_in_a_row(tmp_path: Path) -> None:
    errors = [
        p["error"] for p in do(toys.recipe(toys.stage(60, validate_every=2, lr=0.05)), tmp_path).validation
    ]
    bound = sorted(errors)[len(errors) // 2]
    for checks in (1, 2, 3):
        stage = toys.stage(60, validate_every=2, lr=0.05, stop=toys.stop(at_most=bound, checks=checks))
        record = do(toys.recipe(stage), tmp_path)
        held = [error <= bound for error in errors]
        expected = next(i for i in range(len(held)) if i + 1 >= checks and all(held[i + 1 - checks : i + 1]))
        assert record.cost["steps"] == 2 * (expected + 1) == record.validation[-1]["step"]
        assert record.training[-1]["step"] == record.cost["steps"]


def test_stop_from_below(tmp_path: Path) -> None:
    stage = toys.stage(20, validate_every=4, stop=toys.stop(at_most=None, at_least=0.0))
    assert do(toys.recipe(stage), tmp_path).cost["steps"] == 4


@pytest.mark.parametrize("side", ["at_most", "at_least"])
def test_a_value_at_the_limit_stops(tmp_path: Path, side: str) -> None:
    first = do(toys.recipe(toys.stage(4, validate_every=4)), tmp_path).validation[0]["error"]
    stop = toys.stop(**{"at_most": None, side: first})
    stage = toys.stage(20, validate_every=4, stop=stop)
    assert do(toys.recipe(stage), tmp_path).cost["steps"] == 4


def test_a_stage_starts_with_no_check_held(tmp_path: Path) -> None:
    stages = [toys.stage(8, validate_every=2, stop=toys.stop(at_most=most)) for most in (100.0, -1.0, 100.0)]
    assert do(toys.recipe(*stages), tmp_path).cost["steps"] == 2 + 8 + 2
    stages = [toys.stage(8, validate_every=2, stop=toys.stop(at_most=100.0, checks=3))] * 2
    assert do(toys.recipe(*stages), tmp_path).cost["steps"] == 6 + 6


@pytest.mark.parametrize("metric", ["accuracy", "error_list"])
def test_stop_on_what_is_no_number(tmp_path: Path, metric: str) -> None:
    stage = toys.stage(20, validate_every=4, stop=toys.stop(metric=metric))
    with pytest.raises(RecipeError, match=f"the stop reads '{metric}', .* it gives: error, error_seen"):
        do(toys.recipe(stage), tmp_path)


def test_replay_gives_a_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "POINTS", 10)
    recipe = toys.recipe(toys.stage(30, validate_every=3))
    record = do(recipe, tmp_path)
    for steps, points in ((1, 1), (7, 2), (10**6, 10)):
        training, validation = replay(Trial(recipe, SEED), steps)
        assert len(training) == points and tuple(training) == record.training[:points]
        assert tuple(validation) == record.validation[: len(validation)]


# --- what a record says


def test_record_of_a_training(tmp_path: Path) -> None:
    trial = Trial(THREE, SEED)
    record = do(THREE, tmp_path)
    assert record.key == trial.key and record.recipe == THREE.to_plain() and record.seed == SEED
    assert record.sources == trial.sources and (record.device, record.device_class) == ("cpu", "cpu")
    assert record.cost["parameters"] == 3 * 8 + 8 + 8 + 1 + 2
    assert record.cost["peak_bytes"] > 50e6 and record.cost["wall_s"] > 0
    assert record.metrics["error_list"] == [[1.0, 2.0], [3.0, 4.0]]
    assert Record.from_json(record.to_json()).metrics == record.metrics


def test_record_of_a_measurement(tmp_path: Path) -> None:
    record = do(toys.measurement(n=2, value=[1, [2.5, True]]), tmp_path)
    assert record.status == "done" and record.training == () and record.cost["steps"] == 0
    assert record.metrics["n"] == 2 and record.metrics["value"] == [1, [2.5, True]]
    draws = torch.rand(2, generator=stream(SEED, "judgement")).tolist()
    assert record.metrics["draw"] == draws


def test_a_model_without_training_is_measured(tmp_path: Path) -> None:
    recipe = Recipe(measures=toys.recipe().measures, model=toys.recipe().model, task=toys.recipe().task)
    record = do(recipe, tmp_path)
    assert record.metrics["error"] > 0 and record.cost["parameters"] == 43 and record.cost["steps"] == 0


@pytest.mark.usefixtures("eager")
def test_heartbeats(tmp_path: Path) -> None:
    beats: list[Heartbeat] = []
    do(THREE, tmp_path, beats.append)
    assert [b.step for b in beats] == list(range(14)) and {b.steps for b in beats} == {12 + 5 + 4}
    assert (beats[0].metric_name, beats[0].metric, beats[0].seconds_left) == ("loss", None, None)
    assert beats[1].metric_name == "loss" and beats[1].metric is not None
    assert beats[2].metric_name == "error"
    assert beats[-1].stage == 2 and beats[-1].seconds_left is not None and beats[-1].seconds_left > 0
    assert (beats[-1].claim, beats[-1].cell, beats[-1].seed) == ("toy.claim", "cell", SEED)
    assert beats[0].started <= beats[0].updated <= beats[-1].updated


def test_heartbeats_are_rare(tmp_path: Path) -> None:
    beats: list[Heartbeat] = []
    do(toys.recipe(toys.stage(100)), tmp_path, beats.append)
    took = beats[-1].updated - beats[0].updated
    assert len(beats) <= 2 + 2 * took


# --- what goes wrong


@pytest.mark.parametrize("points", [200, 3])
def test_a_loss_that_is_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, points: int) -> None:
    monkeypatch.setattr(engine, "POINTS", points)
    record = do(toys.recipe(toys.stage(30, algorithm={"explode_at": 17})), tmp_path)
    assert record.status == "failed" and record.metrics == {}
    assert record.error == "the loss is nan at step 17; lower the learning rate or clip."
    assert all(math.isfinite(p["loss"]) for p in record.training)
    assert [p["step"] for p in record.training] == (list(range(1, 17)) if points == 200 else [10])


@pytest.mark.usefixtures("eager")
def test_what_is_not_finite_is_never_saved(tmp_path: Path) -> None:
    recipe = toys.recipe(toys.stage(30, algorithm={"explode_at": 17}))
    assert do(recipe, tmp_path, checkpoint_every_s=0.0).status == "failed"
    assert torch.load(tmp_path / "x.pt", weights_only=True)["training"]["at"][1] == 16


def test_parameters_that_end_infinite(tmp_path: Path) -> None:
    stage = toys.stage(1, optimiser="sgd", lr=1e38, algorithm={"scale": 1e6})
    record = do(toys.recipe(stage), tmp_path)
    assert record.status == "failed" and record.error.startswith("the parameters are not finite after")


def test_code_that_raises(tmp_path: Path) -> None:
    record = do(toys.recipe(toys.stage(30, algorithm={"raise_at": 5})), tmp_path)
    assert record.status == "failed" and record.cost["steps"] == 4 and len(record.training) == 4
    assert record.error.startswith("ValueError in parts.py line ") and record.error.endswith(
        "the toy is broken"
    )
    assert "raise ValueError" in record.environment["traceback"]


def test_a_missing_data_set(tmp_path: Path) -> None:
    record = do(toys.recipe(task={"data": str(tmp_path / "none")}), tmp_path)
    assert record.status == "absent" and record.cost["steps"] == 0
    assert record.error == f"the data set is missing: unpack it to {tmp_path / 'none'}"


def test_a_file_that_the_code_misses_is_a_failure(tmp_path: Path) -> None:
    record = do(toys.measurement(log=str(tmp_path / "none" / "log")), tmp_path)
    assert record.status == "failed" and "FileNotFoundError" in record.error


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("text", "tests.toys.parts.count gives 'value' as a str"),
        ({"a": 1}, "tests.toys.parts.count gives 'value' as a dict"),
        (None, "tests.toys.parts.count gives 'value' as a NoneType"),
    ],
)
def test_metrics_that_are_no_numbers(tmp_path: Path, value: object, message: str) -> None:
    record = do(toys.measurement(value=value), tmp_path)
    assert record.status == "failed" and record.error.startswith(message)


def test_metrics_that_are_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.toys import parts

    for value in (math.nan, [1.0, math.inf]):
        monkeypatch.setattr(parts, "count", lambda generator, device, value=value: {"value": value})
        record = do(toys.measurement(), tmp_path)
        assert record.status == "failed" and "which is not finite" in record.error
    monkeypatch.setattr(parts, "count", lambda generator, device: 3.0)
    assert "returned a float; a measure returns a dict" in do(toys.measurement(), tmp_path).error


def test_two_measures_with_one_name(tmp_path: Path) -> None:
    record = do(toys.recipe(measures=toys.recipe().measures * 2), tmp_path)
    assert record.status == "failed" and record.error.startswith("two measures give 'error'")


def test_an_algorithm_without_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.toys import parts

    monkeypatch.setattr(parts.Backprop, "backward", lambda self, model, batch: {"size": 1.0})
    record = do(toys.recipe(), tmp_path)
    assert record.status == "failed" and "returned no 'loss'" in record.error
    monkeypatch.setattr(parts.Backprop, "backward", lambda self, model, batch: {"loss": 1.5})
    assert do(toys.recipe(), tmp_path).training[0]["loss"] == 1.5  # a plain number will do


def test_cuda_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no device cuda:99"):
        run(Trial(toys.recipe(), SEED, "cuda:99"), tmp_path / "x.pt", silent)
