"""The engine: trains and measures one trial.

On the CPU a trial uses one thread, and its numbers are the same however often it was interrupted, because a
checkpoint holds everything that the next step depends on. Every record is keyed by the code of this file.
"""

from __future__ import annotations

import io
import math
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from repro import files
from repro.errors import UserError
from repro.recipe import Part, RecipeError, Stage, _plain
from repro.record import Record
from repro.trial import Heartbeat, Trial, environment, gpu

POINTS = 200  # training points in a record at most
BEAT_EVERY_S = 0.5

Report = Callable[[Heartbeat], None]


class _FailureError(Exception):
    """A trial that cannot go on; the message is the record's error."""


class _Interrupted(BaseException):
    """A signal came; the checkpoint has been written."""


def run(
    trial: Trial,
    checkpoint: Path,
    report: Report,
    deterministic: bool = False,
    checkpoint_every_s: float = 30.0,
) -> Record:
    """Train and measure `trial`, from `checkpoint` where there is one.

    SIGINT and SIGTERM are acted on between two steps: the checkpoint is written, then the signal goes to
    whoever handled it before. A UserError from `report` ends the trial in the same way. The checkpoint is
    left in place; whoever stores the record removes it.

    Args:
        trial: what to run.
        checkpoint: file to resume from and to write to. One that cannot be read is renamed to `*.unreadable`,
            the trial starts again, and the record's environment says so under "warnings".
        report: called with a heartbeat before the first step and then at most twice a second.
        deterministic: on CUDA, allow only deterministic kernels. (The CPU is deterministic without it.)
        checkpoint_every_s: seconds between checkpoints.

    Returns:
        The record. Its status is "failed" when the code of the recipe raises or the loss is not finite, and
        "absent" when a data set is missing; `cost["wall_s"]` counts the steps it consists of, not those that
        a kill threw away.

    Raises:
        UserError: no such device, or a checkpoint that cannot be written.
    """
    if trial.kind == "cuda":
        gpu(trial.device)  # a device that does not exist is a mistake to mend, no failed trial
    with _settings(trial, deterministic) as settings:
        return _Run(trial, checkpoint, report, checkpoint_every_s, settings).record()


def replay(trial: Trial, steps: int, deterministic: bool = False) -> tuple[list[Any], list[Any]]:
    """Train the first `steps` steps of `trial` again, at least up to the first point of its training curve.

    Returns:
        The points of the training and of the validation curve up to there.
    """
    with _settings(trial, deterministic):
        training = Training(trial)
        training.go(lambda: None, limit=max(steps, training.curve.every(0)))
        return training.curve.points, training.validation


@contextmanager
def _settings(trial: Trial, deterministic: bool) -> Iterator[dict[str, Any]]:
    """Set torch for a trial and put it back afterwards; yields what the record says about it."""
    cuda = trial.kind == "cuda"
    threads, loose = torch.get_num_threads(), not torch.are_deterministic_algorithms_enabled()
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    strict = cuda and deterministic and loose
    if strict:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    devices = [torch.device(trial.device).index or 0] if cuda else []
    try:
        with torch.random.fork_rng(devices=devices):
            if cuda:
                torch.cuda.reset_peak_memory_stats(trial.device)
            yield {"threads": 1, "tf32": False, "deterministic": deterministic or not cuda}
    finally:
        torch.set_num_threads(threads)
        if strict:
            torch.use_deterministic_algorithms(False)
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32


# --- random streams and parts


def derive(seed: int, stream: str) -> int:
    """Return the seed of one of a trial's random streams."""
    return int.from_bytes(sha256(f"{seed}/{stream}".encode()).digest()[:8], "big") >> 1


def stream(seed: int, name: str) -> torch.Generator:
    """Return the CPU generator of the training, validation or judgement stream."""
    return torch.Generator().manual_seed(derive(seed, name))


def build(part: Part, **given: Any) -> Any:
    """Call what `part` names with its arguments and `given`."""
    return pkgutil.resolve_name(part.path)(**_plain(part.args), **given)


def measure(part: Part, **given: Any) -> dict[str, Any]:
    """Call a measure; return its numbers and nested lists of numbers by name."""
    values = build(part, **given)
    if not isinstance(values, Mapping):
        raise _FailureError(
            f"{part.path} returned a {type(values).__name__}; a measure returns a dict of numbers."
        )
    return {str(name): _numbers(value, f"{part.path} gives '{name}'") for name, value in values.items()}


def _numbers(value: Any, where: str) -> Any:
    """Return a number or nested list of finite numbers as plain Python."""
    if hasattr(value, "tolist"):  # tensors and arrays
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_numbers(item, where) for item in value]
    if not isinstance(value, bool | int | float):
        raise _FailureError(f"{where} as a {type(value).__name__}; return numbers or lists of numbers.")
    if not math.isfinite(value):
        raise _FailureError(f"{where} as {value}, which is not finite.")
    return value


# --- training


class Curve:
    """Training metrics as means over intervals of steps, at most `POINTS` of them.

    Values stay tensors until somebody needs them, so that a step on a GPU waits for nothing.
    """

    def __init__(self, stages: tuple[Stage, ...]) -> None:
        quota = max(1, POINTS // max(1, len(stages)))
        self._every = [math.ceil(stage.steps / quota) for stage in stages]
        self.points: list[dict[str, Any]] = []
        self._tensors: dict[str, list[Tensor]] = {}
        self._read: dict[str, list[float]] = {}

    def every(self, stage: int) -> int:
        """Return the steps that a point of the stage stands for (its last may stand for fewer)."""
        return self._every[stage]

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Take in the metrics of one step."""
        if "loss" not in metrics:
            raise _FailureError("the algorithm's backward() returned no 'loss'.")
        for name, value in metrics.items():
            tensor = (
                value.detach().clone().reshape(())
                if isinstance(value, Tensor)
                else torch.tensor(float(value))
            )
            self._tensors.setdefault(name, []).append(tensor)

    def read(self) -> dict[str, list[float]]:
        """Return the values of the interval that has not ended, by name."""
        for name, tensors in self._tensors.items():
            if tensors:
                self._read.setdefault(name, []).extend(torch.stack(tensors).tolist())
                tensors.clear()
        return self._read

    def close(self, stage: int, step: int) -> None:
        """End the interval at `step` with a point, if it holds any step."""
        values = self.read()
        if values:
            means = {name: math.fsum(some) / len(some) for name, some in values.items()}
            self.points.append({"stage": stage, "step": step, **means})
        self._read = {}

    def state(self) -> dict[str, Any]:
        """Return the curve as plain lists."""
        return {"points": self.points, "read": self.read()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.points, self._read = list(state["points"]), dict(state["read"])


class Training:
    """A trial in the middle of its stages: everything that a checkpoint holds.

    `stage` counts from 0, `step` within the stage; steps in the curves count over all stages.
    """

    def __init__(self, trial: Trial) -> None:
        recipe, seed = trial.recipe, trial.seed
        self.stages, self.recipe, self.device = recipe.stages, recipe, torch.device(trial.device)
        self.streams = {name: stream(seed, name) for name in ("training", "validation")}
        self.task = build(recipe.task) if recipe.task is not None else None
        torch.manual_seed(derive(seed, "model"))
        self.model: nn.Module = build(recipe.model).to(self.device) if recipe.model else nn.Module()
        torch.manual_seed(derive(seed, "algorithm"))
        self.stage = self.step = self.before = self.hits = 0
        self.curve = Curve(recipe.stages)
        self.validation: list[dict[str, Any]] = []
        self.optimiser: torch.optim.Optimizer | None = None
        self.algorithm: Any = None

    @property
    def done(self) -> int:
        """Steps done over all stages."""
        return self.before + self.step

    def enter(self, stage: Stage) -> None:
        """Begin a stage: its algorithm, and an optimiser over all parameters of the model."""
        self.model.train()
        self.algorithm = build(stage.algorithm)
        self.algorithm.begin(self.model)
        self.model.to(self.device)
        old, self.optimiser = self.optimiser, _optimiser(stage, list(self.model.parameters()))
        if stage.keep_optimiser and old is not None:
            state = {**self.optimiser.state_dict(), "state": old.state_dict()["state"]}
            self.optimiser.load_state_dict(state)

    def go(self, tick: Callable[[], None], limit: int | None = None) -> None:
        """Train on to the end, or to `limit` steps over all stages; `tick` is called after each step."""
        while self.stage < len(self.stages):
            stage = self.stages[self.stage]
            if self.optimiser is None or self.step == 0:
                self.enter(stage)
            while not self._over(stage):
                if limit is not None and self.done >= limit:
                    return
                self.one_step(stage)
                tick()
            self.stage, self.before, self.step, self.hits = self.stage + 1, self.done, 0, 0
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise _FailureError(
                "the parameters are not finite after the last step; lower the learning rate or clip."
            )

    def _over(self, stage: Stage) -> bool:
        return self.step >= stage.steps or (stage.stop is not None and self.hits >= stage.stop.checks)

    def one_step(self, stage: Stage) -> None:
        """Sample, differentiate, clip, update, and validate where it is time."""
        optimiser, model = self.optimiser, self.model
        assert optimiser is not None and self.task is not None
        batch = self.task.sample(stage.batch, self.streams["training"])
        if self.device.type != "cpu":
            batch = {name: tensor.to(self.device) for name, tensor in batch.items()}
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(stage, self.step)
        optimiser.zero_grad(set_to_none=True)
        self.curve.add(self.algorithm.backward(model, batch))
        if stage.clip is not None:
            nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], stage.clip, foreach=True)
        optimiser.step()
        self.step += 1
        if self.step % self.curve.every(self.stage) == 0:
            self.check_finite()
            self.curve.close(self.stage, self.done)
        if stage.validate_every and self.step % stage.validate_every == 0:
            self.check_finite()
            self._validate(stage)
        if self._over(stage):
            self.check_finite()
            self.curve.close(self.stage, self.done)

    def _validate(self, stage: Stage) -> None:
        """Measure on the validation stream; count how often in a row the stop has held."""
        part = self.recipe.validation
        assert part is not None
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            values = measure(part, model=self.model, task=self.task, generator=self.streams["validation"])
        for module, mode in modes:
            module.training = mode
        numbers = {name: value for name, value in values.items() if not isinstance(value, list)}
        self.validation.append({"stage": self.stage, "step": self.done, **numbers})
        if stage.stop is not None:
            name, low, high = stage.stop.metric, stage.stop.at_least, stage.stop.at_most
            if name not in numbers:
                raise RecipeError(
                    f"the stop reads '{name}', which {part.path} does not give as a number; "
                    f"it gives: {', '.join(numbers)}."
                )
            held = numbers[name] >= low if low is not None else numbers[name] <= high
            self.hits = self.hits + 1 if held else 0

    def check_finite(self) -> None:
        """Raise if a loss since the last point was not finite."""
        losses = self.curve.read().get("loss", [])
        for i, loss in enumerate(losses):
            if not math.isfinite(loss):
                step = self.done - len(losses) + i + 1
                raise _FailureError(f"the loss is {loss} at step {step}; lower the learning rate or clip.")

    def state(self) -> dict[str, Any]:
        """Return everything that the next step depends on, as tensors and plain types."""
        assert self.optimiser is not None
        cuda = self.device.type == "cuda"
        return {
            "at": [self.stage, self.step, self.before, self.hits],
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "streams": {name: generator.get_state() for name, generator in self.streams.items()},
            "torch_rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(self.device) if cuda else None,
            "curve": self.curve.state(),
            "validation": self.validation,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned; the stages so far are begun again first."""
        self.stage, self.step, self.before, self.hits = state["at"]
        for stage in self.stages[: self.stage + 1]:
            self.enter(stage)
        assert self.optimiser is not None
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.curve.load(state["curve"])
        self.validation = list(state["validation"])
        for name, generator in self.streams.items():
            generator.set_state(state["streams"][name])
        torch.set_rng_state(state["torch_rng"])
        if state["cuda_rng"] is not None:
            torch.cuda.set_rng_state(state["cuda_rng"], self.device)


def learning_rate(stage: Stage, step: int) -> float:
    """Return the learning rate of the update after `step` updates: warm-up, then decay to `lr_end`."""
    if step < stage.warmup:
        return stage.lr * (step + 1) / stage.warmup
    past = (step - stage.warmup) / max(1, stage.steps - stage.warmup)
    left = {"constant": 1.0, "linear": 1 - past, "cosine": (1 + math.cos(math.pi * past)) / 2}[stage.decay]
    return stage.lr_end + (stage.lr - stage.lr_end) * left


def _optimiser(stage: Stage, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the stage's optimiser over `parameters`; those without a gradient are left alone by torch.

    The fused kernels are the fastest, and deterministic; they take no complex parameters.
    """
    fused = all(p.is_floating_point() for p in parameters)
    if stage.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr=stage.lr, weight_decay=stage.weight_decay, fused=fused)
    kind = torch.optim.Adam if stage.optimiser == "adam" else torch.optim.AdamW
    return kind(parameters, lr=stage.lr, betas=stage.betas, weight_decay=stage.weight_decay, fused=fused)


def implementation(model: nn.Module) -> str | None:
    """Return which of its implementations a model runs here, if it says so: their sums round differently."""
    return getattr(model, "implementation", None)


# --- one trial


class _Run:
    """One call of `run`: training between checkpoints, then the measures."""

    def __init__(
        self, trial: Trial, checkpoint: Path, report: Report, every_s: float, settings: Mapping[str, Any]
    ) -> None:
        self.trial, self.checkpoint, self.report, self.every_s = trial, checkpoint, report, every_s
        self.key = trial.key  # reads the code before it is imported
        self.environment = {**environment(trial.device), **settings, "resumes": 0, "warnings": []}
        self.steps = sum(stage.steps for stage in trial.recipe.stages)
        self.started, self.began = time.time(), time.monotonic()
        self.earlier_s, self.earlier_peak, self.first_step = 0.0, 0, 0
        self.next_beat, self.next_save = 0.0, self.began + every_s
        self.training: Training | None = None
        self.caught: list[int] = []

    def record(self) -> Record:
        """Run the trial; what the recipe's code raises becomes a failed or absent record."""
        status, error, metrics = "done", "", {}
        try:
            with _deferred(self.caught):
                self.training = self.resumed()
                self.environment["implementation"] = implementation(self.training.model)
                self.beat()
                self.training.go(self.tick)
            metrics = self.judge(self.training)
        except (UserError, RecipeError):
            raise
        except _FailureError as failure:
            status, error = "failed", str(failure)
        except FileNotFoundError as missing:
            # our tasks say in one sentence what to put where; the system's own errors carry a number
            status = "absent" if missing.errno is None else "failed"
            error = str(missing) if missing.errno is None else self.explain(missing)
        except Exception as problem:
            if self.caught:  # raised by the handler of a signal
                raise
            status, error = "failed", self.explain(problem)
        training, trial = self.training, self.trial
        return Record(
            key=self.key,
            recipe=trial.recipe.to_plain(),
            seed=trial.seed,
            device=trial.kind,
            device_class=trial.device_class,
            sources=dict(trial.sources),
            status=status,
            error=error,
            metrics=metrics,
            training=tuple(training.curve.points) if training else (),
            validation=tuple(training.validation) if training else (),
            cost={
                "wall_s": self.elapsed(),
                "steps": training.done if training else 0,
                "parameters": sum(p.numel() for p in training.model.parameters()) if training else 0,
                "peak_bytes": self.peak(),
            },
            environment=self.environment,
        )

    def explain(self, problem: Exception) -> str:
        """Return one line on an exception of the recipe's code, and keep its traceback."""
        frame = traceback.extract_tb(problem.__traceback__)[-1]
        self.environment["traceback"] = "".join(traceback.format_exception(problem))
        text = str(problem).strip().partition("\n")[0]
        return f"{type(problem).__name__} in {Path(frame.filename).name} line {frame.lineno}: {text}"

    def elapsed(self) -> float:
        """Seconds of work in the record, over all processes that did a part of it."""
        return self.earlier_s + time.monotonic() - self.began

    def peak(self) -> int:
        """Bytes at most: of the CUDA allocator, or the resident set of the whole process."""
        if self.trial.kind == "cuda":
            now = torch.cuda.max_memory_allocated(self.trial.device)
        else:
            now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
                1 if sys.platform == "darwin" else 1024
            )
        return max(self.earlier_peak, now)

    def judge(self, training: Training) -> dict[str, Any]:
        """Call the measures; each sees the judgement stream from its beginning."""
        recipe, seed = self.trial.recipe, self.trial.seed
        training.model.eval()
        metrics: dict[str, Any] = {}
        for part in recipe.measures:
            torch.manual_seed(derive(seed, "measure"))
            given: dict[str, Any] = {"generator": stream(seed, "judgement")}
            if recipe.model is not None:
                given |= {"model": training.model, "task": training.task}
            else:
                given |= {"device": training.device}
            values = measure(part, **given)
            both = sorted(set(values) & set(metrics))
            if both:
                raise _FailureError(f"two measures give '{both[0]}', the second is {part.path}; rename one.")
            metrics |= values
        return metrics

    # -- between steps

    def tick(self) -> None:
        """Look at signals and the clock after a step."""
        if self.caught:
            self.save()
            raise _Interrupted
        now = time.monotonic()
        if now >= min(self.next_beat, self.next_save):
            assert self.training is not None
            self.training.check_finite()  # neither reported nor saved
        if now >= self.next_beat:
            try:
                self.beat()
            except BaseException:
                self.save()
                raise
        if now >= self.next_save:
            self.save()
            self.next_save = time.monotonic() + self.every_s

    def beat(self) -> None:
        """Report where the trial stands."""
        training = self.training
        assert training is not None
        self.next_beat = time.monotonic() + BEAT_EVERY_S
        done, here_s = training.done, time.monotonic() - self.began
        rate = (done - self.first_step) / here_s if here_s > 0 else 0.0
        name, value = self.latest(training)
        self.report(
            Heartbeat(
                key=self.key,
                claim=self.trial.claim,
                cell=self.trial.cell,
                seed=self.trial.seed,
                stage=min(training.stage, max(0, len(training.stages) - 1)),
                step=done,
                steps=self.steps,
                metric_name=name,
                metric=value,
                started=self.started,
                updated=time.time(),
                seconds_left=(self.steps - done) / rate if rate > 0 else None,
                pid=os.getpid(),
            )
        )

    def latest(self, training: Training) -> tuple[str, float | None]:
        """Return the newest number: of the validation (the one the stop reads), else the loss."""
        if training.validation:
            point = training.validation[-1]
            stop = training.stages[point["stage"]].stop
            names = [n for n in point if n not in ("stage", "step")]
            name = stop.metric if stop is not None else names[0] if names else ""
            return name, point.get(name)
        losses = training.curve.read().get("loss") or [p["loss"] for p in training.curve.points[-1:]]
        return "loss", losses[-1] if losses else None

    # -- checkpoints

    def save(self) -> None:
        """Write the checkpoint; the one before stays whole until the new one is."""
        assert self.training is not None
        buffer = io.BytesIO()
        torch.save(
            {
                "training": self.training.state(),
                "wall_s": self.elapsed(),
                "peak_bytes": self.peak(),
                "resumes": self.environment["resumes"],
                "warnings": self.environment["warnings"],
                "torch": str(torch.__version__),
                "implementation": implementation(self.training.model),
            },
            buffer,
        )
        files.write(self.checkpoint, buffer.getvalue())

    def resumed(self) -> Training:
        """Return the training as the checkpoint has it, or a new one."""
        if self.checkpoint.is_file():
            try:
                saved = torch.load(self.checkpoint, weights_only=True, map_location="cpu")
                training = Training(self.trial)
                training.load(saved["training"])
                self.earlier_s, self.earlier_peak = float(saved["wall_s"]), int(saved["peak_bytes"])
                self.environment["resumes"] = int(saved["resumes"]) + 1
                warnings = [*saved["warnings"]]
                here = {"torch": str(torch.__version__), "implementation": implementation(training.model)}
                warnings += [
                    f"resumed under {name} {now} from {saved[name]}."
                    for name, now in here.items()
                    if saved[name] != now
                ]
                self.environment["warnings"] = warnings
                self.first_step = training.done
                return training
            except Exception as problem:  # whatever a damaged file makes of itself
                aside = self.checkpoint.with_name(self.checkpoint.name + ".unreadable")
                self.checkpoint.replace(aside)
                self.environment["warnings"].append(
                    f"the checkpoint could not be read ({type(problem).__name__}); it is now {aside.name}, "
                    "and the trial started again."
                )
        return Training(self.trial)


@contextmanager
def _deferred(caught: list[int]) -> Iterator[None]:
    """Keep SIGINT and SIGTERM in `caught` until the block ends, then pass them on; a second comes at once."""
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def keep(number: int, _frame: object) -> None:
        if caught:
            restore()
            signal.raise_signal(number)
        caught.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            old = signal.getsignal(number)
            if old is not None and old is not signal.SIG_IGN:
                signal.signal(number, keep)
                before[number] = old
        except ValueError:  # not the main thread: signals go elsewhere
            break
    try:
        yield
    finally:
        restore()
        if caught:
            signal.raise_signal(caught[0])
            raise KeyboardInterrupt  # nobody acted on it
