"""Fig. 13: beyond the training length the recurrent student passes its teacher."""

import math
from dataclasses import replace

from claims.smt._shared import CPU_WORDS, PAPER, choices, smt
from claims.smt.drift import LEARNED, SCALES, SEEDS, SYMBOLS, TIMES, cells
from repro.claim import Claim, Control, Criterion, Line, Plot, Protocol, Shown

# The paper's gain at 8 times the training length is 0.39 − 0.16 = 0.23 nats; ours has to be at least 0.05.
# A teacher that falls apart counts as a guess (ln 4 = 1.39), and passing it is not enough: at that length the
# student may be at most 0.2 nats worse than its teacher was inside the training length. Inside, the teacher
# may not be the worse one by more than 0.02.
GAIN, HOLDS, INSIDE = 0.05, 0.2, 0.02


def protocol(scale: str, words: str) -> Protocol:
    """Return the protocol of one profile."""
    at = SCALES[scale]
    lengths = tuple(at["length"] * k for k in TIMES)
    trained = {name: cells(scale)[name] for name in ("smt", "dmt", "shuffled")}
    untaught = replace(trained["smt"], stages=(smt(at["smt"], splits=at["splits"], dynamics=0.0),))
    return Protocol(
        cells={**trained, "untaught": untaught},
        criteria=(
            Criterion(
                name="teacher-learned",
                kind="train",
                statement="The teacher's accuracy at the training length",
                cell="dmt",
                metric="teacher_accuracy",
                at_least=LEARNED,
                sd_floor=0.02,
                premise=True,
            ),
            Criterion(
                name="student-passes-teacher",
                kind="train",
                statement="Loss of the teacher, or of a guess if that is less, minus the student's, at "
                f"{TIMES[-1]} times the training length",
                cell="dmt",
                metric=f"lead_at_{lengths[-1]}",
                at_least=GAIN,
                sd_floor=0.02,
                paper="0.23 over the teacher",
            ),
            Criterion(
                name="student-holds",
                kind="train",
                statement=f"Student's loss at {TIMES[-1]} times the training length minus teacher's inside",
                cell="dmt",
                metric=f"excess_at_{lengths[-1]}",
                at_most=HOLDS,
                sd_floor=0.02,
            ),
            Criterion(
                name="teacher-better-inside",
                kind="train",
                statement="Teacher's loss minus student's at the training length",
                cell="dmt",
                metric=f"gain_at_{lengths[0]}",
                at_most=INSIDE,
                sd_floor=0.01,
                paper="teacher better",
            ),
        ),
        controls=tuple(
            Control(name=f"nothing taught the updater, {name}", criterion=name, swap={"dmt": "untaught"})
            for name in ("student-passes-teacher", "student-holds")
        ),
        shown=(
            Shown(
                cell="dmt",
                metric=f"teacher_at_{lengths[-1]}",
                label="Teacher at the longest",
                paper="about 0.39",
            ),
            Shown(
                cell="dmt",
                metric=f"student_at_{lengths[-1]}",
                label="Student at the longest",
                paper="about 0.16",
            ),
            Shown(
                cell="smt",
                metric=f"student_at_{lengths[-1]}",
                label="Student before DMT at the longest",
            ),
            Shown(
                cell="smt",
                metric=f"excess_at_{lengths[-1]}",
                label="Student before DMT at the longest minus teacher inside",
            ),
            Shown(cell="dmt", metric=f"guess_at_{lengths[-1]}", label="A guess at the longest"),
            Shown(
                cell="shuffled",
                metric=f"student_at_{lengths[-1]}",
                label="Student taught another sequence's memories, at the longest",
            ),
        ),
        plots=(
            Plot(
                name="length",
                title="Loss by test length (Fig. 13)",
                x_label="test length",
                y_label="loss (nats)",
                x=lengths,
                log_x=True,
                level=math.log(SYMBOLS),
                level_label="a guess",
                lines=tuple(
                    Line(cell="dmt", metrics=tuple(f"{who}_at_{n}" for n in lengths), label=label)
                    for who, label in (("student", "student RNN"), ("teacher", "teacher"))
                ),
            ),
        ),
        scale=words,
        **SEEDS[scale],
    )


claim = Claim(
    id="smt.length_extrapolation",
    paper=PAPER,
    title="The student passes its teacher on longer sequences",
    source="Fig. 13, p. 9",
    statement=(
        "Stack task, trained at length 64, tested to 512: teacher loss about 0.39, student RNN about 0.16. "
        "Inside the training length the teacher is better."
    ),
    profiles={
        "smoke": protocol("smoke", "mechanics only: 6 SMT and 4 DMT steps"),
        "cpu": protocol(
            "cpu",
            f"Trained at T=48 for 64, tested to 384 for 512 (8 times, as in the paper); {CPU_WORDS}; 400 "
            "SMT steps of one random split of each of 96 sequences (for all splits of 32), 200 DMT steps of "
            "32, every 4th rolled state judged.",
        ),
        "paper": protocol("paper", ""),
    },
    choices=(
        *choices("20,000 for SMT at paper scale, 1,500 for DMT as in the released code"),
        "The loss at a length is over the answers at 16 places drawn over the whole sequence, the same for "
        "both; the teacher reads the whole past at each. Stack depth stays 4 at every length.",
        "Positions are rotary, so teacher and student accept longer sequences as they are.",
    ),
    notes=(
        "The teacher falls apart beyond its training length, so the lead is one over a guess. SMT alone, "
        "and DMT towards another sequence's memories, pass both on every seed too: that the student passes "
        "its teacher is not DMT's doing. The control lacks the dynamics loss, DMT and the tuned readout; "
        "'teacher-better-inside' has none.",
        "An earlier run at the cpu profile (T=24, 1,000 SMT steps, seeds 1000 to 1002) was inconclusive. The "
        "student passed its teacher by 2.8 to 5.2 nats at 192; its control then, a student taught another "
        "sequence's memories, was 0.20, 0.31 and 0.42 nats behind the teacher inside: 200 such steps don't "
        "undo what SMT taught the updater, so it is shown now and the control is SMT without the dynamics "
        "loss, which leaves the updater as it began. Trials are shared with smt.drift, which tells why T, "
        "steps and seeds changed. In its runs the student was 0.09, 0.08, 0.00, 0.05, -0.01 behind at 384 "
        "after 1,000 steps, 0.00, 0.03, 0.12, 0.16, 0.04, 0.12 after 400 (seeds from 1200 on) and 0.04 "
        "in the mean of ten (from 1300 on). No band of a criterion was changed; that of the teacher's "
        "accuracy, a premise, was 0.8.",
        "A second run (seeds 1400 to 1405, T=48) was judged twice. With the control that it was "
        "registered with, the student before DMT, it was inconclusive: 0.26 [0.17, 0.35] behind the "
        "teacher inside, not clearly outside 0.2, so SMT alone nearly holds at 8 times the length (in "
        "the earlier seeds 1100 to 1104 it was 0.83, 0.39, 0.27, 0.22, 0.08 behind). With the one that "
        "is used since, SMT without the dynamics loss, which that run had trained too, it was "
        "reproduced; but the control had been exchanged after the run.",
        "That run also showed that the criterion could hardly fail: beyond 96 tokens the teacher is "
        "worse than a guess (3.0 to 4.4 nats at 384), so that even an updater that nothing had taught "
        "passed it in four of six seeds. A teacher counts as a guess at worst now, and the control has "
        "to fail this too. Seeds are fresh; the other bands are unchanged. The run (seeds 1500 to 1505) "
        "gave a lead of 0.90 [0.85, 0.94] and 0.080 [0.018, 0.143] behind the teacher inside; four of "
        "its seeds are shown, as smt.drift tells.",
    ),
)
