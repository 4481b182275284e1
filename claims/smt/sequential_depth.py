"""Table 1: how depth, memory, work and credit paths of BPTT, SMT and DMT grow with T."""

from claims.smt._shared import PAPER, PAPER_MODEL
from repro.claim import Claim, Control, Criterion, Line, Plot, Protocol, Shown
from repro.recipe import Recipe, part

LENGTHS = (8, 10, 12, 14)


def counted(**sabotage: object) -> Recipe:
    """Return the recipe that counts every algorithm at the paper's model size."""
    return Recipe(
        measures=(
            part(
                "reference.measure.sequential_depth.sequential_depth",
                **PAPER_MODEL,
                lengths=LENGTHS,
                **sabotage,
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
            cells={"counted": counted(), "a-group-a-prefix": counted(group_per_prefix=True)},
            criteria=(
                grows("depth_bptt", 1, "Sequential operations of a BPTT step"),
                grows("depth_smt", 0, "Sequential operations of an SMT step, one split"),
                grows("depth_smt_all", 0, "Sequential operations of an SMT step, all splits"),
                grows("depth_dmt", 1, "Sequential operations of a DMT step"),
                grows("saved_bptt", 1, "Bytes that BPTT keeps for the backward pass"),
                grows("saved_smt", 1, "Bytes that SMT keeps, one split, context T"),
                grows("flops_bptt", 1, "FLOPs of a BPTT step"),
                grows("flops_smt", 2, "FLOPs of an SMT step, one split, context T"),
                grows(
                    "credit_bptt", 1, "Operations from the last answer's loss back to the first memory, BPTT"
                ),
                grows("credit_smt", 0, "The same through SMT's decoder"),
                grows(
                    "credit_dmt", 0, "Operations from a DMT memory's own error back to the memory before it"
                ),
                Criterion(
                    name="state",
                    kind="count",
                    statement="Numbers of the state at inference: K·d, whatever T",
                    cell="counted",
                    metric="state",
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
                Control(
                    name="one encoder call a prefix",
                    criterion="depth-smt-all",
                    swap={"counted": "a-group-a-prefix"},
                ),
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
        "DMT's O(1) credit path is that of its direct supervision; through time its graph still has an O(T) "
        "path.",
    ),
    notes=(
        "Depth is neither work nor seconds. SMT's parallel stage does not make the whole pipeline O(1): DMT "
        "unrolls.",
    ),
)
