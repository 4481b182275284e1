"""How far a rollout on its own memories leaves the teacher (arXiv:2606.06479, Sec. 2.3, Fig. 12)."""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor

from reference.algorithms.smt import cross_entropy
from reference.models.smt import SMT, Decoder, decode, every_split


class Task(Protocol):
    """What the measures of SMT draw from."""

    def sample(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return inputs, targets and mask, each (size, length)."""


def drift(
    model: SMT,
    task: Task,
    generator: torch.Generator,
    size: int = 256,
    readout: str = "readout",
    start: str = "teacher",
) -> dict[str, float | list[float]]:
    """Compare rolled-out memories, and single steps from the teacher's memories, with the teacher's.

    The rollout starts from the teacher's memory at position 0, or from the learned one before it.

    Returns:
        drift, one_step: 1 − R² by rollout step: squared error over the spread of the teacher's memories at
            that step around their mean over the `size` sequences. 0: on the teacher; 1: as good as the mean.
        drift_mse, one_step_mse: the same errors as mean squares of one number of the memory.
        first_drift: of the first step. late_drift, late_mse: mean over the last quarter of the steps.
        late_rise: late_drift minus the mean over the quarter before; 0 on a plateau.
        one_step_mean, one_step_late: 1 − R² of single steps, over all steps and over the last quarter.
        growth: late_drift / one_step_late: how much more than one step's error the rollout collects;
            doublings: its log2, 0 where the rollout stays as close as one step.
        explained: squared correlation over the sequences of a sequence's mean one-step error with its late
            rollout error. It belongs to this one model; it says nothing about differently trained ones.
        loss, accuracy: of the readout on the rolled-out memories, over all answers at rolled positions.
        teacher_loss, teacher_accuracy: of the decoder on the teacher's memories, at the same answers.

    Raises:
        ValueError: an unknown `readout` (readout, decoder) or `start` (teacher, learned); fewer than 2
            sequences; fewer than 2 rolled steps.
    """
    if size < 2:
        raise ValueError(f"drift is relative to the spread over sequences and needs 2 or more, not {size}.")
    batch = on_device(model, task.sample(size, generator))
    if batch["inputs"].shape[1] < (least := 2 if start == "learned" else 3):
        raise ValueError(f"drift compares late steps with those before and needs {least} tokens or more.")
    with torch.no_grad():
        taught = model.teach(batch["inputs"])
        rolled, first = roll_from(model, taught[:, 0], batch["inputs"], start)
        single = model.updater(taught[:, :-1].flatten(0, 1), batch["inputs"][:, 1:].flatten())
        single = single.view_as(taught[:, 1:])
        target = taught[:, first:]
        spread = (target - target.mean(0)).square().mean((0, 2, 3))
        error, step = (rolled - target).square().mean((2, 3)), (single - taught[:, 1:]).square().mean((2, 3))
        loss, accuracy = answers(reader(model, readout), rolled, batch, first)
        teacher_loss, teacher_accuracy = answers(model.decoder, target, batch, first)
    late = -(len(spread) // -4)
    by_step, single_by_step = error.mean(0) / spread, step.mean(0) / spread[1 - first :]
    late_drift, late_step = by_step[-late:].mean().item(), single_by_step[-late:].mean().item()
    late_rise = late_drift - by_step[-2 * late : -late].mean().item()
    growth = max(late_drift, 1e-12) / max(late_step, 1e-12)
    pair = torch.stack((step.mean(1), error[:, -late:].mean(1)))
    return {
        "drift": by_step.tolist(),
        "drift_mse": error.mean(0).tolist(),
        "one_step": single_by_step.tolist(),
        "one_step_mse": step.mean(0).tolist(),
        "first_drift": by_step[0].item(),
        "late_drift": late_drift,
        "late_rise": late_rise,
        "late_mse": error.mean(0)[-late:].mean().item(),
        "one_step_mean": single_by_step.mean().item(),
        "one_step_late": late_step,
        "growth": growth,
        "doublings": math.log2(growth),
        "explained": torch.corrcoef(pair)[0, 1].square().item(),
        "loss": loss,
        "accuracy": accuracy,
        "teacher_loss": teacher_loss,
        "teacher_accuracy": teacher_accuracy,
    }


def lengths(
    model: SMT,
    task: Any,
    generator: torch.Generator,
    at: tuple[int, ...],
    size: int = 64,
    positions: int = 16,
    readout: str = "readout",
    start: str = "teacher",
) -> dict[str, float]:
    """Judge student and teacher on `task` at the lengths `at`.

    Both answer at the same `positions` places, drawn per length without replacement from all but place 0,
    since the teacher reads the whole past anew at every place.

    Returns:
        student_at_L, teacher_at_L: loss in nats at length L, for each L. gain_at_L: teacher_at_L −
            student_at_L. excess_at_L: student_at_L − the teacher's loss at the first of the lengths.
        guess_at_L: loss in nats of the best guess that does not look: the entropy of how often each answer
            is right among those judged. lead_at_L: min(teacher_at_L, guess_at_L) − student_at_L, since a
            teacher that has fallen apart is worth no more than a guess.

    Raises:
        ValueError: an unknown `readout` or `start`; a length without room for `positions` places, or without
            an answer at any of them.
    """
    found: dict[str, float] = {}
    for length in at:
        if length <= positions:
            raise ValueError(f"length {length} has no room for {positions} places after the first.")
        batch = on_device(model, type(task)(**{**vars(task), "length": length}).sample(size, generator))
        x = batch["inputs"]
        place = 1 + torch.randperm(length - 1, generator=generator)[:positions].sort().values.to(x.device)
        rows = torch.arange(size, device=x.device)
        pairs = rows.repeat_interleave(positions), place.repeat(size)
        with torch.no_grad():
            rolled, first = roll_from(model, model.encode(x, rows, torch.zeros_like(rows)), x, start)
            states = {
                "student": (reader(model, readout), rolled[:, place - first].flatten(0, 1)),
                "teacher": (model.decoder, model.encode(x, *pairs)),
            }
            for name, (decoder, memory) in states.items():
                logits, wanted = decode(decoder, memory, batch, *pairs, future=1)
                if not len(wanted):
                    raise ValueError(f"no answer is asked for at the places drawn at length {length}.")
                found[f"{name}_at_{length}"] = cross_entropy(logits, wanted).item()
        share = wanted.bincount().double() / len(wanted)
        guess = found[f"guess_at_{length}"] = -share.xlogy(share).sum().item()
        student, teacher = found[f"student_at_{length}"], found[f"teacher_at_{length}"]
        found[f"gain_at_{length}"] = teacher - student
        found[f"lead_at_{length}"] = min(teacher, guess) - student
        found[f"excess_at_{length}"] = student - found[f"teacher_at_{at[0]}"]
    return found


def on_device(model: SMT, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return `batch` where the model is."""
    return {name: tensor.to(model.start.device) for name, tensor in batch.items()}


def reader(model: SMT, readout: str) -> Decoder:
    """Return the model's `readout` or, before DMT has tuned one, its `decoder`.

    Raises:
        ValueError: another name.
    """
    if readout not in ("readout", "decoder"):
        raise ValueError(f"readout is {readout!r}; choose from readout, decoder.")
    return model.readout if readout == "readout" else model.decoder


def roll_from(model: SMT, teacher: Tensor, x: Tensor, start: str) -> tuple[Tensor, int]:
    """Return the rolled-out memories (B, S, K, M) along `x` (B, T) and the position of the first of them.

    Raises:
        ValueError: `start` is neither teacher (from `teacher`, the memory at position 0) nor learned.
    """
    if start == "teacher":
        return model.roll(teacher, x[:, 1:]), 1
    if start != "learned":
        raise ValueError(f"start is {start!r}; choose from teacher, learned.")
    return model.roll(model.first(len(x)), x), 0


def answers(decoder: Decoder, memory: Tensor, batch: dict[str, Tensor], first: int) -> tuple[float, float]:
    """Return loss (nats) and accuracy of y_t read from `memory` (B, S, K, M), from position `first` on."""
    rows, place = every_split(memory)
    logits, wanted = decode(decoder, memory.flatten(0, 1), batch, rows, place + first, future=1)
    return cross_entropy(logits, wanted).item(), (logits.argmax(1) == wanted).double().mean().item()
