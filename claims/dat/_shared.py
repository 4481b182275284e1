"""Delayed attention: one task, one schedule and one set of measures, so that claims share what they train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from repro.claim import Control, Criterion, Line, Plot, Protocol, Shown
from repro.recipe import Part, Recipe, Stage, Stop, part

PAPER = (
    "Delayed Attention Training Improves Length Generalization in Transformer-RNN Hybrids, arXiv:2510.00258v1"
)

# architecture → (class, name in the paper, ordinary and DAT joint accuracy at L = 25, 50, 75, 100: Fig. 1)
HYBRIDS: Mapping[str, tuple[str, str, tuple[float, ...], tuple[float, ...]]] = {
    "parallel": ("Parallel", "Parallel", (1.00, 0.16, 0.12, 0.08), (1.00, 0.99, 0.95, 0.85)),
    "lstm_on_attn": ("LstmOnAttn", "LSTM∘Attn", (0.99, 0.09, 0.05, 0.04), (1.00, 0.99, 0.93, 0.88)),
    "attn_on_lstm": ("AttnOnLstm", "Attn∘LSTM", (0.99, 0.09, 0.07, 0.05), (1.00, 0.99, 0.80, 0.56)),
    "hybrid_block": ("HybridBlock", "Hybrid Block", (1.00, 0.10, 0.09, 0.08), (1.00, 0.99, 0.93, 0.85)),
    "sandwich": ("Sandwich", "Sandwich", (1.00, 0.07, 0.06, 0.06), (1.00, 0.99, 0.91, 0.80)),
}
ALONE: Mapping[str, tuple[str, str]] = {
    "transformer": ("TransformerOnly", "Transformer only"),
    "lstm": ("LstmOnly", "LSTM only"),
}
MULTIPLES = (1, 2, 3, 4)  # of the longest training length: the paper's L = 25, 50, 75, 100
BOTH = ("modulo", "recall")
PAPER_MODULUS = 10
SHOWN_SEEDS = 3  # of what is only shown beside what is judged
LEARNED = 0.85  # joint accuracy inside the training lengths; the paper prints 0.99 to 1.00 for all hybrids
JUDGED = ("parallel",)  # of the hybrids, where the scale is reduced: see NOT_JUDGED
TWO = ("parallel", "hybrid_block")  # the experiments of ours at paper scale, and what attention looks at


@dataclass(frozen=True)
class Scale:
    """What a profile trains.

    Attributes:
        lr: learning rate of every module in every arm, until the last steps.
        delay: steps of phase 1, in which attention sleeps; at the cpu profile twice what may follow (the
            paper's is three times): after 10,000 steps at its rate a pilot's Parallel had 0.98 of the sums at
            three times the lengths, Hybrid Block 0.66.
        steps: steps with everything at the first learning rate: ordinary training, and phase 2.
        until: joint accuracy in validation, at the longest training length, that ends those `steps` before
            their number; None: never. A reduced budget is too small for a fixed number: what has not learned
            has nothing to extrapolate.
        last: what follows at a tenth of the learning rate.
        seeds, seed_offset: of what is counted.
    """

    modulus: int
    keys: int
    longest: int
    width: int
    blocks: int
    feed_forward: int
    batch: int
    lr: float
    delay: int
    steps: int
    last: int
    sequences: int
    heads: int
    until: float | None = None
    seeds: int = 3
    seed_offset: int = 0

    def pairs(self, multiple: float) -> int:
        """Return the number of pairs at a multiple of the longest training length."""
        return round(self.longest * multiple)

    def metric(self, name: str, multiple: float) -> str:
        """Return the name of an accuracy at a multiple of the longest training length."""
        return f"{name}@{self.pairs(multiple)}"

    @property
    def room(self) -> float:
        """Share of the paper's room above chance that this modulus leaves: (1 − 1/modulus) / (1 − 1/10)."""
        return (1 - 1 / self.modulus) / (1 - 1 / PAPER_MODULUS)

    def recipe(self, kind: str, stages: Sequence[Stage], questions: Sequence[str] = BOTH) -> Recipe:
        """Return a recipe; which measures it has depends only on what it trains."""
        judged = {"sequences": self.sequences}
        measures = [
            part(
                "reference.measure.answer_accuracy.by_length",
                inside=(self.longest,),
                beyond=tuple(self.pairs(m) for m in (1.2, *MULTIPLES[1:])),
                **judged,
            )
        ]
        if kind != ALONE["lstm"][0] and "recall" in questions:
            lengths = tuple(self.pairs(m) for m in MULTIPLES)
            measures.append(
                part("reference.measure.attention_dilution.attention_dilution", lengths=lengths, **judged)
            )
        return Recipe(
            task=part(
                "reference.tasks.modulo_recall.ModuloRecall",
                modulus=self.modulus,
                keys=self.keys,
                longest=self.longest,
                questions=tuple(questions),
            ),
            model=part(
                f"reference.models.hybrids.{kind}",
                vocabulary=3 + self.modulus + self.keys,
                width=self.width,
                heads=self.heads,
                blocks=self.blocks,
                feed_forward=self.feed_forward,
            ),
            stages=tuple(stages),
            validation=part(
                "reference.measure.answer_accuracy.validation", sequences=min(256, self.sequences)
            ),
            measures=tuple(measures),
        )

    def stages(self, *before: Stage, stop: bool = True) -> tuple[Stage, ...]:
        """Return phase 1 if there is one, the steps with everything, and the last ones."""
        until = self.until if stop else None
        return (*before, self._stage(self.steps, keep=bool(before), until=until), self._last())

    def _last(self, **options: Any) -> Stage:
        return self._stage(self.last, keep=True, share=0.1, **options)

    def _stage(
        self,
        steps: int,
        *,
        keep: bool = False,
        until: float | None = None,
        share: float = 1.0,
        warmup: int = 0,
        **options: Any,
    ) -> Stage:
        return Stage(
            algorithm=Part(path="reference.algorithms.delayed_attention.Participation", args=options),
            steps=steps,
            batch=self.batch,
            lr=self.lr * share,
            warmup=warmup,
            keep_optimiser=keep,
            validate_every=max(1, steps // (10 if until is None else 40)),
            stop=None if until is None else Stop(metric="joint", at_least=until),
        )

    def ordinary(self, kind: str, questions: Sequence[str] = BOTH, stop: bool = True) -> Recipe:
        """Return ordinary training of a model class: everything takes part from the start.

        Without `stop` it goes on when it has learned.
        """
        return self.recipe(kind, self.stages(stop=stop), questions)

    def mistaught(self, kind: str, questions: Sequence[str]) -> Recipe:
        """Return training on another sequence's answers: there is nothing to learn, a quarter has to do."""
        steps = self._stage(max(1, self.steps // 4), answers="shuffled")
        return self.recipe(kind, (steps, self._last(answers="shuffled")), questions)

    def phase_1(self, kind: str) -> Recipe:
        """Return the first phase of delayed attention training alone; judgement adds attention untrained."""
        return self.recipe(kind, (self._stage(self.delay, sleeping=("attention",)),))

    def dat(self, kind: str, stop: bool = True) -> Recipe:
        """Return delayed attention training; without `stop` it goes on when it has learned."""
        return self.recipe(kind, self.stages(*self.phase_1(kind).stages, stop=stop))

    def frozen(self, kind: str) -> Recipe:
        """Return the schedule of DAT with attention frozen instead of left out: its output takes part."""
        return self.recipe(kind, self.stages(self._stage(self.delay, frozen=("attention",))))

    def untaught(self, kind: str) -> Recipe:
        """Return the schedule of DAT with a phase 1 that teaches every sequence another one's answers."""
        phase_1 = self._stage(self.delay, sleeping=("attention",), answers="shuffled")
        return self.recipe(kind, self.stages(phase_1))

    def equal_budget(self, kind: str) -> Recipe:
        """Return ordinary training for as many samples as delayed attention can have."""
        return self.recipe(kind, (self._stage(self.delay + self.steps), self._last()))

    def faster(self, kind: str) -> Recipe:
        """Return ordinary training at three times the learning rate, after a seventh of warm-up to it."""
        warmup = max(1, self.steps // 7)
        steps = self._stage(self.steps, share=3.0, warmup=warmup, until=self.until)
        return self.recipe(kind, (steps, self._last()))


SMOKE = Scale(
    modulus=3,
    keys=12,
    longest=3,
    width=8,
    heads=2,
    blocks=1,
    feed_forward=8,
    batch=4,
    lr=1e-3,
    delay=6,
    steps=2,
    until=0.97,
    last=1,
    sequences=8,
)
CPU = Scale(
    modulus=5,
    keys=32,
    longest=8,
    width=64,
    heads=2,
    blocks=2,
    feed_forward=128,
    batch=128,
    lr=1e-3,
    delay=14_000,
    steps=7000,
    until=0.97,
    last=500,
    sequences=1024,
    seeds=8,
    seed_offset=800,  # eight runs came before, with seeds 1000 to 1707: see EARLIER
)
GPU = Scale(  # an epoch of 2^14 samples is 64 steps of 256
    modulus=10,
    keys=128,
    longest=25,
    width=256,
    heads=8,
    blocks=4,
    feed_forward=1024,
    batch=256,
    lr=1e-4,
    delay=1500 * 64,
    steps=500 * 64,
    last=100 * 64,
    sequences=4096,
    seeds=9,
)
SCALES: Mapping[str, Scale] = {"smoke": SMOKE, "cpu": CPU, "paper": GPU}

SIZES = (
    f"Modulus {CPU.modulus} for 10 (chance 1/{CPU.modulus} for 1/10); trained on 1 to {CPU.longest} pairs "
    "for 1 to 25, tested at the same multiples (1, 2, 3, 4: "
    f"{', '.join(str(CPU.pairs(m)) for m in MULTIPLES)} pairs for 25, 50, 75, 100); {CPU.keys} keys for "
    f"128; width {CPU.width} for 256, {CPU.blocks} Transformer blocks for 4, MLPs twice as wide as the "
    f"model for four times; the learning rate is {CPU.lr:g} for {GPU.lr:g}; batches of {CPU.batch} for 256."
)
PHASE_1 = f"{CPU.delay:,} steps in phase 1 for 96,000."
STEPS = (
    f"With everything until the joint accuracy at {CPU.longest} pairs is {CPU.until:g} in validation, at "
    f"most {CPU.steps:,} steps, for 32,000; {CPU.last} at a tenth of the learning rate for 6,400."
)
REDUCED = (
    "Of the five hybrids Parallel is judged and a verdict speaks of it alone: it was chosen since DAT held "
    "there in an earlier run, at a learning rate at which its ordinary training mostly falls. Hybrid Block "
    "with DAT held on 5 of 12 seeds of the last two runs, the other three learn too slowly. "
    f"{SIZES} {PHASE_1} {STEPS} What follows phase 1 is a third of it in the paper; here it may be a tenth "
    "or less. Samples of the DAT arm: "
    f"{(CPU.delay + CPU.steps + CPU.last) * CPU.batch / 1e6:.2f} million at most for 34.4 million."
)
MECHANICS = "mechanics only: a few steps of 4 sequences"
WORDS = {"smoke": MECHANICS, "cpu": REDUCED, "paper": ""}
# For models of one question, which have no phase 1.
ONE_TASK = {"smoke": MECHANICS, "cpu": f"{SIZES} {STEPS}", "paper": ""}

CHOICES = (
    "L is the number of key-value pairs (the paper does not say what its length counts); training "
    "lengths are drawn uniformly from 1 up, one a batch, so that nothing is padded.",
    "Keys are drawn without repetition from as many as the longest test or more; values are 0 … modulus "
    "− 1 and share their tokens with m. Vocabularies are not in the paper.",
    "The loss is the mean cross-entropy of the two answers m and vj alone. m is shown to the model after "
    "it was asked for, in judgement too: vj does not depend on it.",
    "The loss does not change between the phases. Adam; the moments of what was awake are kept, "
    "attention joins with fresh ones at its first step and without having been decayed.",
    "While attention sleeps, a module in series passes its input on, a branch is dropped; its LayerNorms "
    "and MLPs sleep with it. The Hybrid Block keeps the LayerNorm of its LSTM update.",
    "The LSTM has one layer of the model's width; post-norm blocks with GELU; heads 32 wide; no dropout.",
    "At the paper profile the steps at a tenth of the learning rate are 100 epochs (the paper does not say "
    "how many) and a batch has 256 sequences.",
    "The Hybrid Block's LSTM update stands once, before all blocks of Attn. Weights start as PyTorch draws "
    "them.",
    "Validation judges the model as it trains at that moment, so in phase 1 without attention; it stops "
    "nothing but the steps with everything of a reduced scale. Judgement always has the whole model.",
)
PILOTS = (
    "Pilots (modulus 5, 1 to 8 pairs; joint accuracy at three times the lengths; learning rate, seed). "
    "Ordinary training of Parallel: 0.18 (1e-3, 5), 0.16 (1e-3 with a warm-up, 6), 0.71 and 0.13 "
    "(1.25e-3, 5 and 6), 0.89 (1.5e-3, 5), 0.78 (2e-3 clipped, 5), 0.26 (2e-3 with a warm-up, 5), 0.86 "
    "(3e-3 with a warm-up, 5), 0.83 (1e-3 but 3e-3 in the LSTM, 5): where it is high, it divides the "
    "work by itself, in 1,250 to 2,750 steps. Of Hybrid Block: 0.21 and 0.19 (1.5e-3, 5 and 6), 0.25 "
    "(1e-3 with a warm-up, 5), 0.37 and rising when broken off (1.5e-3 with a warm-up, 5). Of LSTM∘Attn: "
    "0.15 (1.5e-3, 5), 0.19 (1e-3 but 3e-3 in the LSTM, 5). Of Attn∘LSTM: 0.18 (1e-3 with a warm-up, 5). "
    "Of Sandwich: 0.19 (1.5e-3, 5). Told before without their rates (5): ordinary Sandwich 0.36, DAT of "
    "LSTM∘Attn 0.77, of Attn∘LSTM 0.65, of Sandwich 0.57. DAT: Parallel 0.79 (1.5e-3, phase 1 of 6,000 "
    "steps, 5), LSTM∘Attn 0.86 (the same), Hybrid Block 0.70 (the same) and 0.58 (1e-3, 10,000 steps, "
    "5). The sum of an LSTM by itself at three times the lengths: 0.65 (1.5e-3, 8,000 steps, 5), 0.37 "
    "(1e-3 clipped, 6,000 steps, 5); asked for the sum alone 1.00 (1.5e-3, 1,250 steps, 5)."
)
# No seed from 1800 on had been looked at when scale, bands, controls and hybrids were chosen.
EARLIER = (
    "Eight earlier runs of dat.joint_l75 at the cpu profile decided nothing. Joint accuracy at three "
    "times the lengths by seed, DAT / ordinary. First (modulus 4, 1 to 5 pairs, seeds 1000 to 1002): "
    "Parallel 0.77, 0.64, 0.60 / 0.24, 0.35, 0.21; Attn∘LSTM had not learned inside the lengths with "
    "DAT; a phase 1 that teaches every sequence another one's answers gave Parallel 0.22, 0.95, 0.35, so "
    "that a phase 1 without the task can lead to the same division of work: it is now an arm of "
    "dat.frozen_is_not_dat. Second (modulus 4, 1 to 6 pairs, seeds 1100 to 1103): Parallel 0.84, 0.86, "
    "0.90, 0.83 / 0.25, 0.78, 0.20, 0.58, Hybrid Block 0.92, 0.41, 0.65, 0.88 / 0.19, 0.24, 0.25, 0.23. "
    "Third (modulus 4, 1 to 8 pairs, seeds 1200 to 1202): Hybrid Block 0.57, 0.76, 0.94 / 0.20, 0.37, "
    "0.21, LSTM∘Attn 0.69, 0.89, 0.36 / 0.10, 0.22, 0.21, but ordinary training, and LSTM∘Attn with DAT "
    "on one seed, had not learned inside the lengths. Fourth (modulus 3, 1 to 8 pairs, until learned, "
    "seeds 1300 to 1302): Attn∘LSTM 0.71, 0.66, 0.70 / 0.25, 0.29, 0.25, Parallel 0.77, 0.71, 0.64 / "
    "0.32, 0.81, 0.26: on one seed of three ordinary training had found a sum that extrapolates. Fifth "
    "(modulus 5, 1 to 8 pairs, an LSTM trained at 3e-3 where attention slept and everything at 1e-3 "
    "else, seeds 1400 to 1402): Parallel 0.82, 0.86, 0.62 / 0.15, 0.15, 0.15, LSTM∘Attn 0.83, 0.83, 0.68 "
    "/ 0.16, 0.05, 0.24, but on one seed ordinary training had not learned inside the lengths. Sixth "
    "(modulus 5, one learning rate of 1.5e-3 without a warm-up, broken off after seed 1500): LSTM∘Attn "
    "0.89 / 0.05, Hybrid Block 0.74 / 0.19; ordinary LSTM∘Attn had not learned recall in 6,000 steps.",
    "Seventh (one learning rate of 1e-3, phase 1 of 14,000 steps, seeds 1600 to 1603): Parallel 0.76, "
    "0.81, 0.70, 0.64 / 0.15, 0.20, 0.17, 0.76, Hybrid Block 0.86, 0.56, 0.71, 0.17 / 0.20, 0.18, 0.21, "
    "0.15, all learned inside. Seeds spread from chance to nearly all in either arm, and a mean of four "
    "says little: so seeds are counted now, with the exact binomial test (each arm's accuracy was judged "
    "by its mean, and DAT's by its gain over ordinary training, with an LSTM alone as control). Eighth "
    "(Hybrid Block alone at 1.5e-3, phase 1 of 10,000 steps, seeds 1700 to 1707): 0.87, 0.45, 0.86, "
    "0.24, 0.13, 0.42, 0.15, 0.73 / 0.16 to 0.23, all learned inside: ordinary training always fell, DAT "
    "held on three of eight. The three that took longest to learn recall after the delay are among the "
    "five that fell; four of these five lost recall too (0.42 to 0.63).",
    "**What seemed to decide it: whether attention finds its shortcut to the sum before the LSTM has "
    "learned it** (dat.frozen_is_not_dat speaks against it: a phase 1 with attention frozen, and one "
    "without the task, did as well). At modulus 4 half of the sum is to know whether it is even, and at "
    "modulus 3 the LSTM is about as fast as attention, so that chance decides how ordinary training ends. "
    "The learning rate decides it too, and in the fifth run it was not the same in both arms. " + PILOTS,
    "Changed before fresh seeds, besides: a fixed small number of steps with everything, which catches "
    "some seeds before they have learned, became 'until learned'; the premise of having learned is 0.85 "
    "(it was 0.9); in dat.softmax_dilution the relation to errors is within a length (it was pooled) and "
    "there are two more premises; dat.frozen_is_not_dat and dat.equal_budget judge as dat.joint_l75 "
    "does. After the eighth run: the controls are cells that no criterion looks at (each arm was the "
    "other's control, so that a claim whose DAT fails, or whose rival holds, could only be "
    "inconclusive); what the other arm may reach lies half way from chance to what DAT is to reach (it "
    "was the same); dat.equal_budget has DAT without a stop; dat.length_curve judges twice the lengths "
    "too; dat.modulo_only judges means and gains again. After the first run the band of DAT's own "
    "accuracy had become half way from chance (1 / modulus) to the printed one, for half of the printed "
    "one.",
)
FRESH = "Seeds at the cpu profile start at 1800: dat.joint_l75 tells of eight runs before and of the rate."
NOT_JUDGED = (
    "The cpu profile judges one of the five hybrids, Parallel. In the seventh run, which had this very "
    "recipe, DAT held on four of four of its seeds and ordinary training fell on three. **Hybrid Block with "
    "DAT reached its 0.565 on two of four seeds in the seventh run and on three of eight in the eighth** "
    "(1.5e-3, phase 1 of 10,000 steps), where ordinary training fell on all; before, on other tasks and "
    "rates, on seven of eight. So the choice of Parallel is one by outcome: a verdict speaks of it alone. "
    "After a phase 1 the three in which LSTM and attention stand in series are slow to learn recall: "
    "LSTM∘Attn (seed 6), Attn∘LSTM (seeds 5 and 6) and Sandwich (seed 5) took 5,600 to 8,400 steps, or had "
    "not in 6,000, and ordinary LSTM∘Attn had not learned it on seeds 6, 1401 and 1500. All five are "
    "trained and shown in dat.length_curve; at the paper's scale dat.joint_l75 and dat.length_curve judge "
    "all five."
)
SHARED = (
    "dat.joint_l75, dat.length_curve and dat.frozen_is_not_dat rest on the same trainings of DAT: three "
    "verdicts, not three confirmations."
)
GOES_ON = (
    "At the cpu profile training with everything ends when the training lengths are learned, with DAT often "
    "soon after the delay. **The stop may favour DAT twice: what it learned in phase 1 has little time to be "
    "lost, and ordinary training none to mend** (at modulus 3 a pilot of Parallel, seed 7, that went on had "
    "0.27 after 2,500 steps and 0.78 to 0.88 after 5,500). dat.equal_budget trains both arms without it, and "
    "shows ordinary training for no longer than here without it."
)
RATE = (
    f"A verdict at the cpu profile holds at its learning rate of {CPU.lr:g} (the paper's is {GPU.lr:g} at "
    "four times the width). **How ordinary training of Parallel ends depends on it**: at 1e-3 it fell on "
    "three of four seeds in the seventh run, at 1.25e-3 on one of two, and pilots of one seed at 1.5e-3 "
    "and above mostly divide the work without any delay (dat.joint_l75; 'three times the learning rate' "
    "in dat.equal_budget). The rate was chosen where ordinary training mostly falls: a verdict tells "
    "whether a delay mends it there, not that a delay is the only way."
)
NO_SEEDS = "The paper reports no seeds and no spread."
NOTES = (
    RATE,
    GOES_ON,
    SHARED,
    "The abstract's 'over 90 % at three times the length' fails for Attn∘LSTM in the paper's own figure: "
    "0.80 at L = 75. It holds for the other four (0.91 to 0.95).",
    "The text speaks of four hybrids; figure and appendix show five.",
    "In the paper DAT gets 24.6 million samples more than ordinary training, and there is no control "
    "with an equal budget; whether DAT still wins then is decided by dat.equal_budget.",
    NO_SEEDS,
)


def half(printed: float) -> float:
    """Return half of what the paper prints."""
    return round(printed / 2, 3)


def band_of_gain(scale: Scale, printed: float) -> float:
    """Return the least gain: half of the printed one times the room; at paper scale 80 % of it."""
    return round(0.8 * printed, 3) if scale is GPU else half(printed * scale.room)


def learned(
    scale: Scale, cell: str, label: str, name: str = "joint", paper: float | None = None
) -> Criterion:
    """Return the premise that a cell has learned the task inside the training lengths."""
    return Criterion(
        name=f"{cell}_learned",
        kind="train",
        statement=f"{label}: {name} accuracy at the longest training length",
        cell=cell,
        metric=scale.metric(name, 1),
        at_least=LEARNED,
        sd_floor=0.01,
        paper=paper,
        premise=True,
    )


def kept(scale: Scale, printed: float) -> float:
    """Return the accuracy that DAT is to reach: half way from chance at the sum to the printed one.

    At paper scale all of the printed one but 0.1.
    """
    return round(printed - 0.1, 3) if scale is GPU else half(printed + 1 / scale.modulus)


def keeps(
    scale: Scale, arch: str, multiple: int, arm: str = "dat", words: str = "DAT"
) -> tuple[Criterion, Control]:
    """Return the criterion that DAT keeps both abilities on most seeds, and its control: phase 1 alone."""
    printed = HYBRIDS[arch][3][MULTIPLES.index(multiple)]
    criterion = _count(
        scale, arch, multiple, arm, "keeps", words, reach=kept(scale, printed), paper=printed, at_least=0.5
    )
    return criterion, Control(
        name=f"phase 1 alone, attention joins untrained, {criterion.name}",
        criterion=criterion.name,
        swap={criterion.cell: f"{arch}_phase_1"},
    )


def collapses(
    scale: Scale, arch: str, multiple: int, arm: str = "ordinary", words: str = "ordinary"
) -> tuple[Criterion, Control]:
    """Return the criterion that another arm loses an ability on most seeds, and its control.

    What it may reach on few seeds lies half way from chance at the sum to what DAT is to reach; at paper
    scale half way between the two printed accuracies. The control extrapolates: an LSTM taught the sum alone,
    whose joint accuracy is that of its one answer.
    """
    _, _, ordinary, dat = HYBRIDS[arch]
    at = MULTIPLES.index(multiple)
    reach = half(ordinary[at] + dat[at]) if scale is GPU else half(kept(scale, dat[at]) + 1 / scale.modulus)
    criterion = _count(
        scale, arch, multiple, arm, "collapses", words, reach=reach, paper=ordinary[at], at_most=0.5
    )
    return criterion, Control(
        name=f"an LSTM that knows the sum alone, {criterion.name}",
        criterion=criterion.name,
        swap={criterion.cell: "lstm_sum"},
    )


def _count(
    scale: Scale,
    arch: str,
    multiple: int,
    arm: str,
    name: str,
    words: str,
    *,
    reach: float,
    paper: float,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Criterion:
    """Return a criterion on the share of seeds that reach an accuracy, by the exact binomial test.

    Counted, since the seeds of either arm spread from chance to nearly all and a mean of few says little.
    """
    return Criterion(
        name=f"{arch}_{arm}_{name}_{multiple}x",
        kind="train",
        statement=f"{HYBRIDS[arch][1]}, {words}: share of seeds with joint accuracy ≥ {reach:g} at "
        f"{multiple} times the training lengths",
        cell=f"{arch}_{arm}",
        metric=scale.metric("joint", multiple),
        success=reach,
        at_least=at_least,
        at_most=at_most,
        paper=f"joint {paper:.2f}",
    )


def control_cells(scale: Scale, some: Sequence[str]) -> dict[str, Recipe]:
    """Return what stands in for DAT and for the arm it is judged against in the controls."""
    return {
        **{f"{a}_phase_1": scale.phase_1(HYBRIDS[a][0]) for a in some},
        "lstm_sum": scale.ordinary(ALONE["lstm"][0], ["modulo"]),
    }


def gain(scale: Scale, arch: str, multiple: int, arm: str = "dat", other: str = "ordinary") -> Shown:
    """Return the mean difference between two arms of a hybrid, paired by seed."""
    return Shown(
        cell=f"{arch}_{arm}",
        rival=f"{arch}_{other}",
        metric=scale.metric("joint", multiple),
        label=f"{HYBRIDS[arch][1]}: gain of DAT, joint at {multiple}×",
    )


def both_arms(scale: Scale, arch: str) -> dict[str, Recipe]:
    """Return the cells of one hybrid: ordinary training and DAT."""
    kind = HYBRIDS[arch][0]
    return {f"{arch}_ordinary": scale.ordinary(kind), f"{arch}_dat": scale.dat(kind)}


def judged_hybrids(scale: Scale, paper: Sequence[str] = tuple(HYBRIDS)) -> tuple[str, ...]:
    """Return the hybrids that are judged at this scale; `paper` are those at the paper's."""
    return tuple(paper) if scale is GPU else JUDGED


def arms_learned(scale: Scale, arch: str) -> tuple[Criterion, ...]:
    """Return the premises of one hybrid: both arms have learned."""
    _, label, ordinary, dat = HYBRIDS[arch]
    return (
        learned(scale, f"{arch}_ordinary", f"{label}, ordinary", paper=ordinary[0]),
        learned(scale, f"{arch}_dat", f"{label}, DAT", paper=dat[0]),
    )


def curve(scale: Scale, arch: str) -> Plot:
    """Return one hybrid's panel of Fig. 1, paper values beside ours."""
    _, label, ordinary, dat = HYBRIDS[arch]
    metrics = tuple(scale.metric("joint", m) for m in MULTIPLES)
    return Plot(
        name=f"{arch}-joint",
        title=f"{label}: both answers right (Fig. 1)",
        x_label="pairs / longest training length",
        y_label="joint accuracy",
        x=tuple(float(m) for m in MULTIPLES),
        lines=(
            Line(cell=f"{arch}_ordinary", metrics=metrics, label="ordinary", paper=ordinary),
            Line(cell=f"{arch}_dat", metrics=metrics, label="DAT", paper=dat),
        ),
        level=1 / scale.modulus,
        level_label="modulo at chance",
    )


def parts_plot(scale: Scale, arch: str, cells: Mapping[str, str]) -> Plot:
    """Return the plot that shows which ability broke: both sub-accuracies of `cells` (cell → label)."""
    return Plot(
        name=f"{arch}-parts",
        title=f"{HYBRIDS[arch][1]}: each answer by itself",
        x_label="pairs / longest training length",
        y_label="accuracy",
        x=tuple(float(m) for m in MULTIPLES),
        lines=tuple(
            Line(cell=cell, metrics=tuple(scale.metric(q, m) for m in MULTIPLES), label=f"{label}, {q}")
            for cell, label in cells.items()
            for q in BOTH
        ),
        level=1 / scale.modulus,
        level_label="chance",
    )


def parts_shown(scale: Scale, arch: str, cells: Mapping[str, str], multiple: int = 3) -> tuple[Shown, ...]:
    """Return joint accuracy and both sub-accuracies of `cells` at a multiple of the training lengths."""
    _, label, ordinary, dat = HYBRIDS[arch]
    column = MULTIPLES.index(multiple)
    printed = {f"{arch}_ordinary": ordinary[column], f"{arch}_dat": dat[column]}
    return tuple(
        Shown(
            cell=cell,
            metric=scale.metric(name, multiple),
            label=f"{label}, {arm}: {name} at {multiple}×",
            paper=printed.get(cell) if name == "joint" else None,
        )
        for cell, arm in cells.items()
        for name in ("joint", *BOTH)
    )


def table(
    scale: Scale,
    question: str,
    title: str,
    models: Mapping[str, tuple[str, str, tuple[float, ...]]],
    multiples: Sequence[float],
) -> tuple[tuple[Shown, ...], Plot]:
    """Return every number of a printed table of one question beside ours, and its plot."""
    times = {m: scale.pairs(m) / scale.longest for m in multiples}  # 1.2 is a whole number of pairs
    shown = tuple(
        Shown(cell=cell, metric=scale.metric(question, m), label=f"{label} at {times[m]:.3g}×", paper=value)
        for cell, (_, label, values) in models.items()
        for m, value in zip(multiples, values, strict=True)
    )
    plot = Plot(
        name=question,
        title=title,
        x_label="pairs / longest training length",
        y_label=f"{question} accuracy",
        x=tuple(times.values()),
        lines=tuple(
            Line(
                cell=cell,
                metrics=tuple(scale.metric(question, m) for m in multiples),
                label=label,
                paper=values,
            )
            for cell, (_, label, values) in models.items()
        ),
        level=1 / scale.modulus,
        level_label="chance",
    )
    return shown, plot


def dat_against(profile: str, arms: Mapping[str, str], multiple: int, stop: bool = True) -> Protocol:
    """Return the protocol of an experiment of ours: DAT judged against another arm of the same hybrid.

    The paper has no such experiment, so nothing here carries a printed number. One hybrid is judged where the
    scale is reduced, two at the paper's.

    Args:
        arms: arm → its words; the first is the one that DAT is judged against, the others are shown.
        stop: whether DAT stops when it has learned, as in dat.joint_l75.
    """
    scale = SCALES[profile]
    some = judged_hybrids(scale, TWO)
    ways: Mapping[str, Callable[[str], Recipe]] = {
        "equal": scale.equal_budget,
        "on": partial(scale.ordinary, stop=False),
        "faster": scale.faster,
        "frozen": scale.frozen,
        "untaught": scale.untaught,
    }
    delayed, words = ("dat", "DAT") if stop else ("dat_on", "DAT without a stop")
    other = next(iter(arms))
    cells: dict[str, Recipe] = {}
    premises: list[Criterion] = []
    pairs: list[tuple[Criterion, Control]] = []
    for a in some:
        kind, label, _, _ = HYBRIDS[a]
        cells |= {
            f"{a}_{delayed}": scale.dat(kind, stop),
            **{f"{a}_{arm}": ways[arm](kind) for arm in arms},
            f"{a}_ordinary": scale.ordinary(kind),
        }
        premises += [
            learned(scale, f"{a}_{delayed}", f"{label}, {words}"),
            learned(scale, f"{a}_{other}", f"{label}, {arms[other]}"),
        ]
        pairs += [
            keeps(scale, a, multiple, delayed, words),
            collapses(scale, a, multiple, other, arms[other]),
        ]
    shown = {**arms, "ordinary": "ordinary", delayed: words}
    lines = {a: {f"{a}_{arm}": said for arm, said in shown.items()} for a in some}
    return Protocol(
        cells=cells | control_cells(scale, some),
        criteria=(*premises, *(replace(criterion, paper=None) for criterion, _ in pairs)),
        controls=tuple(control for _, control in pairs),
        shown=(
            *(gain(scale, a, multiple, delayed, other) for a in some),
            *(replace(s, paper=None) for a in some for s in parts_shown(scale, a, lines[a], multiple)),
            *(
                Shown(
                    cell=f"{a}_{arm}",
                    metric=scale.metric("joint", 1),
                    label=f"{HYBRIDS[a][1]}, {said}: joint at 1× (no premise)",
                )
                for a in some
                for arm, said in shown.items()
                if arm not in (other, delayed)
            ),
        ),
        plots=tuple(parts_plot(scale, a, lines[a]) for a in some),
        scale=WORDS[profile],
        seeds=scale.seeds,
        shown_seeds=SHOWN_SEEDS,
        seed_offset=scale.seed_offset,
    )
