"""Table 1: how depth, memory, work and credit paths of BPTT, SMT and DMT grow with T."""

from claims.smt._shared import PAPER, PAPER_MODEL
from repro.claim import Claim, Control, Criterion, Line, Plot, Protocol, Shown
from repro.recipe import Recipe, part

LENGTHS = (8, 12, 16, 20)  # twice or more the four groups in which all splits are encoded: all are alike
# What makes each count small, taken away, in one cell since a count costs half a minute: each control reads a
# number that one of these alone changes.
OTHER_WAYS = {
    "group_per_prefix": True,
    "through_time": True,
    "fused": False,
    "inference": "teacher",
    "dmt_steps": 0,
}


def counted(**other: object) -> Recipe:
    """Return the recipe that counts every algorithm at the paper's model size, or other ways to do it."""
    return Recipe(
        measures=(
            part(
                "reference.measure.sequential_depth.sequential_depth",
                **PAPER_MODEL,
                lengths=LENGTHS,
                **other,
            ),
        )
    )


def grows(name: str, power: int, what: str) -> Criterion:
    """Return the criterion that a count is a polynomial in T of exactly this degree."""
    return Criterion(
        name=name.replace("_", "-"),
        kind="count",
        statement=f"{what}: degree of the count in T",
        cell="counted",
        metric=f"degree_{name}",
        at_least=power,
        at_most=power,
        paper=power,
    )


def instead(name: str, criterion: str) -> Control:
    """Return the control that judges another way to do it."""
    return Control(name=name, criterion=criterion, swap={"counted": "other-ways"})


claim = Claim(
    id="smt.sequential_depth",
    paper=PAPER,
    title="Sequential operations and other costs by T",
    source="Table 1, p. 5; App. A, p. 20",
    statement=(
        "Sequential operations of a training step: BPTT and DMT O(T), SMT O(1). Training memory: BPTT O(MT), "
        "SMT O(M + T_c) for one split. Compute: BPTT O(T), SMT O(T_c²). Credit path: O(T), O(1), O(1). State "
        "at inference O(M)."
    ),
    profiles={
        "every": Protocol(
            cells={"counted": counted(), "other-ways": counted(**OTHER_WAYS)},
            criteria=(
                grows("depth_bptt", 1, "Sequential operations of a BPTT step"),
                grows("depth_smt", 0, "Sequential operations of an SMT step, one split"),
                grows("depth_smt_all", 0, "Sequential operations of an SMT step, all splits"),
                grows("depth_dmt", 1, "Sequential operations of a DMT step"),
                grows("saved_bptt", 1, "Bytes that BPTT keeps for the backward pass"),
                grows("saved_smt", 1, "Bytes that SMT keeps, one split, context T"),
                Criterion(
                    name="saved-smt-is-a-sum",
                    kind="count",
                    statement="Bytes that SMT keeps: by how many more they grow with T at twice the M",
                    cell="counted",
                    metric="product_smt",
                    at_least=0,
                    at_most=0,
                    paper="O(M + T_c)",
                ),
                Criterion(
                    name="saved-bptt-is-a-product",
                    kind="count",
                    statement="Bytes that BPTT keeps: by how many more they grow with T at twice the M",
                    cell="counted",
                    metric="product_bptt",
                    at_least=1,
                    paper="O(MT)",
                ),
                grows("flops_bptt", 1, "FLOPs of a BPTT step"),
                grows("flops_smt", 2, "FLOPs of an SMT step, one split, context T"),
                grows("credit_bptt", 1, "Operations from BPTT's loss to the furthest weight"),
                grows("credit_smt", 0, "Operations from SMT's loss to the furthest weight, all splits"),
                grows("credit_dmt", 0, "Operations from DMT's loss to the furthest weight"),
                grows("state", 0, "Numbers that the rolled-out updater carries"),
                Criterion(
                    name="state-size",
                    kind="count",
                    statement="Numbers that the rolled-out updater carries, largest of all T: K·d",
                    cell="counted",
                    metric="largest_state",
                    at_least=4096,
                    at_most=4096,
                    paper=4096,
                ),
                Criterion(
                    name="pipeline-is-not-constant",
                    kind="count",
                    statement="Depth of the whole SMT → DMT run, 512 steps of T over 256: above 1, below 2",
                    cell="counted",
                    metric="run_growth",
                    at_least=1.01,
                    at_most=1.99,
                ),
            ),
            controls=(
                instead("one encoder call a prefix", "depth-smt-all"),
                instead("error through time", "credit-dmt"),
                instead("attention that keeps its matrix", "saved-smt"),
                instead("attention that keeps its matrix, by M", "saved-smt-is-a-sum"),
                instead("the teacher answers", "state"),
                instead("the teacher answers: tokens, not K·d numbers", "state-size"),
                instead("no DMT", "pipeline-is-not-constant"),
            ),
            shown=(
                Shown(cell="counted", metric="run_smt", label="Depth of 150,000 SMT steps, T_c = 256"),
                Shown(cell="counted", metric="run_dmt", label="Depth of 1,500 DMT steps, 256 rolled"),
                Shown(cell="counted", metric="run_bptt", label="Depth of 151,500 BPTT steps, T = 256"),
                Shown(cell="counted", metric="run_ratio", label="SMT and DMT together over BPTT"),
            ),
            plots=(
                Plot(
                    name="depth",
                    title="Sequential operations of one training step",
                    x_label="T",
                    y_label="operations that wait for one another",
                    x=LENGTHS,
                    log_y=True,
                    lines=(
                        Line(cell="counted", metrics=("depth_bptt",), label="BPTT"),
                        Line(cell="counted", metrics=("depth_dmt",), label="DMT"),
                        Line(cell="counted", metrics=("depth_smt_all",), label="SMT, all splits"),
                        Line(cell="counted", metrics=("depth_smt",), label="SMT, one split"),
                    ),
                ),
            ),
        )
    },
    choices=(
        "Counted: the longest chain of tensor operations that wait for one another, forward and backward, by "
        "following every operation of a real step; views are free, the optimiser is left out. The paper "
        "counts Linear, LayerNorm and the like as units; degrees in T do not depend on that.",
        "Degrees are read off exact differences at evenly spaced T, so small T decide; whole runs are "
        "carried on in a straight line to T = 256.",
        "SMT's per-split columns: one split with context T and a window of 8 answers; bytes with fused "
        "attention, which keeps no T × T matrix.",
        "Bytes by M times T: what a step of T adds, at K = 32 memory tokens minus at K = 16; exactly 0 if M "
        "and T come in separate parts.",
        "Credit paths are the longest way through the autograd graph from each algorithm's own loss to any "
        "weight it trains. DMT's is O(1) since it detaches its states; through time, the other way, it is "
        "O(T).",
        "State: what goes into a step beside its token. The other way is the teacher, which has to keep the "
        "tokens themselves.",
    ),
    notes=(
        "Depth is neither work nor seconds. SMT's parallel stage does not make the whole pipeline O(1): DMT "
        "unrolls.",
    ),
)
