"""What the SMT claims share: the paper, its models and stages, and ours at reduced scale."""

from collections.abc import Mapping
from typing import Any

from repro.recipe import Part, Stage, part

PAPER = "Pretraining Recurrent Networks without Recurrence (SMT, DMT), arXiv:2606.06479v2"

PAPER_MODEL: Mapping[str, Any] = {
    "width": 256,
    "heads": 8,
    "memory": 16,
    "encoder_layers": 8,
    "decoder_layers": 4,
    "updater_layers": 8,
}
CPU_MODEL: Mapping[str, Any] = {
    "width": 64,
    "heads": 4,
    "memory": 4,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "updater_layers": 2,
}

SMOKE_MODEL: Mapping[str, Any] = {**CPU_MODEL, "width": 16, "encoder_layers": 1, "updater_layers": 1}

BETAS = (0.9, 0.95)
PAPER_SMT: Mapping[str, Any] = {"steps": 20_000, "batch": 32, "lr": 3e-4, "warmup": 200}
PAPER_DMT: Mapping[str, Any] = {"steps": 1_500, "batch": 32, "lr": 3e-5, "warmup": 15, "decay": "cosine"}
CPU_DMT: Mapping[str, Any] = {"steps": 200, "batch": 32, "lr": 3e-4, "warmup": 10, "decay": "cosine"}
CPU_LR = 1e-3  # of SMT
CPU_WORDS = (
    "width 64 for 256, 4 heads for 8, 4 memory tokens for 16, layers 2/1/2/1 for 8/4/8/4; learning rates "
    f"{CPU_LR:g} for {PAPER_SMT['lr']:g} in SMT and {CPU_DMT['lr']:g} for {PAPER_DMT['lr']:g} in DMT"
)
SMOKE_SMT: Mapping[str, Any] = {"steps": 6, "batch": 2, "lr": 1e-3, "warmup": 2}
SMOKE_DMT: Mapping[str, Any] = {"steps": 4, "batch": 2, "lr": 2e-4, "warmup": 2, "decay": "cosine"}


def model(arguments: Mapping[str, Any], vocabulary: int) -> Part:
    """Return the model part of a recipe."""
    return part("reference.models.smt.SMT", vocabulary=vocabulary, **arguments)


def smt(schedule: Mapping[str, Any], **options: Any) -> Stage:
    """Return a stage of supervised memory training."""
    return _stage("reference.algorithms.smt.SupervisedMemory", schedule, options)


def dmt(schedule: Mapping[str, Any], **options: Any) -> Stage:
    """Return a stage of DAgger memory training, or of its comparison arms."""
    return _stage("reference.algorithms.dmt.DaggerMemory", schedule, options)


def _stage(path: str, schedule: Mapping[str, Any], options: Mapping[str, Any]) -> Stage:
    return Stage(
        algorithm=part(path, **options),
        optimiser="adamw",
        betas=BETAS,
        weight_decay=0.01,
        clip=1.0,
        **schedule,
    )


CHOICES = (
    "Optimiser, from the authors' released code where the paper is silent: AdamW, betas (0.9, 0.95), weight "
    "decay 0.01, gradient norm clipped at 1, a short warm-up; DMT at a smaller learning rate with a cosine "
    "decay, weights 10 for the memory error and 1 for the readout. SMT weighs decoding by 1, dynamics by "
    "0.1 and uniformity by 0.001, which the paper calls best.",
    "The state is detached at each step of the rollout (what the released code does with its README's "
    "setting); the variant through time exists as an option.",
    "The rollout starts from the teacher's first memory, as in the released code; training and judgement "
    "alike.",
    "An answer window of T_f holds the answers y_t to y_(t+T_f−1), so T_f = 1 is the present answer alone.",
    "Decoding loss: mean over all answers of all windows of a batch; uniformity over at most 512 memory "
    "tokens.",
    "Synthetic tasks: the training code was not released; all splits at once (paper) where nothing else is "
    "listed as reduced, steps are ours: {steps}.",
)


def choices(steps: str) -> tuple[str, ...]:
    """Return the choices where the paper is silent, with the number of steps in words."""
    return (*CHOICES[:-1], CHOICES[-1].format(steps=steps))
