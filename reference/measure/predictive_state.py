"""Who sees what in SMT, on a small random model in float64 (arXiv:2606.06479, Sec. 2.2, App. E)."""

from __future__ import annotations

import torch
from torch import Tensor

from reference.algorithms.dmt import DaggerMemory
from reference.algorithms.smt import SupervisedMemory
from reference.algorithms.unrolled import Unrolled
from reference.models.smt import SMT, decode, every_split

_VOCABULARY = 7


def predictive_state(
    generator: torch.Generator,
    device: str,
    size: int = 3,
    length: int = 11,
    early: int = 0,
    timestamps: bool = True,
) -> dict[str, float]:
    """Change what must not matter and return the largest change of what it must not reach.

    Args:
        early: tokens that are changed too early: 1 also changes the last token that may be seen, which a
            check that can fail must notice.
        timestamps: the tokens of a permuted context take their timestamps along.

    Returns:
        encoder_change: of m_t, at every t, when all x after t change.
        decoder_change: of the logits for y_τ, at every τ of every window, when all x after τ change.
        order_change: of m_t when the context is permuted.
    """
    model = small_model(generator, device)
    x = torch.randint(_VOCABULARY, (size, length), generator=generator).to(device)
    shift = torch.randint(1, _VOCABULARY, (size, length), generator=generator).to(device)
    other = (x + shift) % _VOCABULARY  # differs from x everywhere
    place = torch.arange(length, device=device)
    with torch.no_grad():
        memory = model.teach(x)
        after = place[None, :] > place[:, None] - early  # (t, position)
        changed = torch.where(after, other[:, None], x[:, None]).flatten(0, 1)
        rows = torch.arange(size * length, device=device)
        encoder_change = model.encode(changed, rows, place.repeat(size)) - memory.flatten(0, 1)

        # Each sequence once a position c, after which it changes; the target tells whether τ ≤ c.
        kept = (place[None, :] <= place[:, None]).long().repeat(size, 1)
        asked = {"targets": kept, "mask": torch.ones_like(kept, dtype=torch.bool)}
        known = memory.repeat_interleave(length, 0).flatten(0, 1)

        def decoded(tokens: Tensor) -> tuple[Tensor, Tensor]:
            batch = {"inputs": tokens, **asked}
            return decode(model.decoder, known, batch, *every_split(tokens), future=None)

        logits, unchanged = decoded(x.repeat_interleave(length, 0))
        decoder_change = (decoded(changed)[0] - logits)[unchanged.bool()]

        ages = torch.arange(length - 1, -1, -1, device=device)
        order = torch.rand(size, length, generator=generator).argsort(1).to(device)
        permuted = model.encoder(x.gather(1, order), ages[order] if timestamps else ages)
        order_change = permuted - model.encoder(x, ages)
    return {
        "encoder_change": _largest(encoder_change),
        "decoder_change": _largest(decoder_change),
        "order_change": _largest(order_change),
    }


def isolation(
    generator: torch.Generator,
    device: str,
    training: str = "dmt",
    joint: bool = False,
    steps: int = 3,
    readout: float = 1.0,
) -> dict[str, float]:
    """Train a small model for a few steps and return what reached parts that it must not reach.

    Args:
        training: dmt, or unrolled in its place: the rollout begins at the same memory, but nothing is frozen
            and nothing detached, so the readout's loss flows back through all steps into updater and encoder.
            A check that can fail must notice both.
        joint: of the SMT step whose dynamics gradient is looked at.
        readout: weight of the readout's loss; with 0 nothing can come from it.

    Returns:
        updater_from_readout: largest gradient in the updater from the readout's loss alone, in `training`.
        teacher_moved: numbers of encoder and decoder that AdamW with weight decay changed in `steps` steps
            of `training`.
        encoder_from_dynamics: largest gradient in the encoder from SMT's dynamics loss alone.

    Raises:
        ValueError: an unknown `training`.
    """
    if training not in ("dmt", "unrolled"):
        raise ValueError(f"training is {training!r}; choose from dmt, unrolled.")
    model = small_model(generator, device)
    x = torch.randint(_VOCABULARY, (4, 9), generator=generator).to(device)
    batch = {"inputs": x, "targets": x.roll(-1, 1), "mask": torch.ones_like(x, dtype=torch.bool)}
    unrolled = Unrolled(readout=readout, start="teacher")
    training_step = DaggerMemory(readout=readout) if training == "dmt" else unrolled

    alone = DaggerMemory(dynamics=0, readout=readout) if training == "dmt" else unrolled
    alone.begin(model)
    alone.backward(model, batch)
    updater = _largest_gradient(model.updater)

    model.zero_grad()
    training_step.begin(model)
    before = [p.clone() for p in (*model.encoder.parameters(), *model.decoder.parameters())]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        training_step.backward(model, batch)
        optimiser.step()
    after = (*model.encoder.parameters(), *model.decoder.parameters())
    moved = sum(int((a != b).sum()) for a, b in zip(after, before, strict=True))

    dynamics = SupervisedMemory(decoding=0, dynamics=1, uniform=0, joint=joint)
    optimiser.zero_grad()
    dynamics.begin(model)
    dynamics.backward(model, batch)
    return {
        "updater_from_readout": updater,
        "teacher_moved": float(moved),
        "encoder_from_dynamics": _largest_gradient(model.encoder),
    }


def small_model(generator: torch.Generator, device: str) -> SMT:
    """Return a float64 SMT of width 16 with weights from `generator`; leave torch's own."""
    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        model = SMT(
            _VOCABULARY, width=16, heads=2, memory=3, encoder_layers=2, decoder_layers=2, updater_layers=2
        )
    return model.double().to(device)


def _largest(change: Tensor) -> float:
    return change.abs().max().item()


def _largest_gradient(module: torch.nn.Module) -> float:
    return max((_largest(p.grad) for p in module.parameters() if p.grad is not None), default=0.0)
