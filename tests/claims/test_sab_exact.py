"""The SAB claims that are not trained, typed once more: cells, bands, controls; and the words of all arms."""

from pathlib import Path

import pytest

from claims.sab import complexity, gradient_paths
from repro.claim import discover

ROUNDING = 1e-9
LINEAR, SQUARE = (0.75, 1.25), (1.85, 2.15)

# Criterion: cell, metric, at least, at most, the paper's number; cells that controls put in its place.
COMPLEXITY = {
    "time-in-t": ("written", "operations_in_t", *SQUARE, 2.0, ["no_retrieval"]),
    "time-in-n": ("written", "operations_in_n", *SQUARE, 2.0, ["cached"]),
    "cached-time-in-n": ("cached", "operations_in_n", 0.9, 1.6, None, ["written"]),
    "cached-time-in-t": ("cached", "operations_in_t", 1.25, 2.05, None, ["no_retrieval"]),
    "state-in-t": ("cached", "state_in_t", *LINEAR, 1.0, ["no_memories"]),
    "state-in-n": ("cached", "state_in_n", *LINEAR, 1.0, []),
    "inference-in-t": ("streamed", "peak_in_t", *LINEAR, 1.0, ["attention"]),
    "training-in-t": ("training", "peak_in_t", *LINEAR, 1.0, ["attention"]),
    "attention-in-t": ("attention", "peak_in_t", *SQUARE, None, ["training"]),
    "attention-at-5000": ("attention", "gb_at", 48, None, "out of memory", ["training"]),
    "streamed-at-5000": ("streamed", "gb_at", None, 0.02048, None, ["unstreamed"]),
}
GRADIENTS = {
    "direct-path": ("direct_error", ROUNDING, ["dense", "released"]),
    "unread": ("unread_gradient", 0.0, ["dense"]),
    "nothing-else": ("total_error", ROUNDING, ["released"]),
    "any-distance": ("reach_error", 0.0, ["no_updates_reach"]),
    "local-path-stops": ("local_reach_error", 0.0, ["untruncated"]),
    "updates-full": ("wrong_steps_full", 0.0, ["no_updates_steps"]),
    "updates-none": ("wrong_steps_none", 0.0, ["full_updates_steps"]),
    "updates-own-step": ("wrong_steps_own_step", 0.0, ["full_updates_steps"]),
    "gradients-full": ("error_full", ROUNDING, ["no_updates_twin"]),
    "gradients-none": ("error_none", ROUNDING, ["full_updates_twin"]),
    "gradients-own-step": ("error_own_step", ROUNDING, ["full_updates_twin"]),
}
FORWARD = {"lengths": (300, 600, 1200), "widths": (64,), "width": 128}
TRAINING = {"width": 128, "at": (5000, 64)}
COUNTED = {
    "written": FORWARD | {"cached": False},
    "cached": FORWARD | {"cached": True},
    "training": TRAINING | {"lengths": (150, 300, 600), "batch": 8, "engine": "fast"},
    "streamed": FORWARD | {"lengths": (1000, 5000), "widths": ()},
    "attention": TRAINING | {"lengths": (75, 150, 300), "engine": "autograd"},
    "unstreamed": FORWARD | {"lengths": (1000, 5000), "widths": (), "chunk": 5000},
    "no_retrieval": FORWARD | {"options": {"retrieval": "none"}},
    "no_memories": FORWARD | {"options": {"k_att": 10**6}},
}
FAR = {"distances": (2, 4, 10, 30, 100, 300)}
MEASURED = {
    "sab": {"direct_path": FAR, "reach": FAR, "wrong_steps": {}, "twin_gradients": {}},
    "dense": {"direct_path": FAR | {"fast": {"retrieval": "dense"}}},
    "released": {"direct_path": FAR | {"fast": {"threshold": "released"}}},
    "untruncated": {"reach": FAR | {"fast": {"k_trunc": None}}},
    "no_updates_reach": {"reach": FAR | {"fast": {"mental_updates": "none"}}},
    "no_updates_steps": {"wrong_steps": {"fast": {"mental_updates": "none"}}},
    "full_updates_steps": {"wrong_steps": {"fast": {"mental_updates": "full"}}},
    "no_updates_twin": {"twin_gradients": {"fast": {"mental_updates": "none"}}},
    "full_updates_twin": {"twin_gradients": {"fast": {"mental_updates": "full"}}},
}


def judged(protocol):
    """Criterion → cell, metric, limits, the paper's number, cells of its controls."""
    found = {}
    for c in protocol.criteria:
        controls = [control.swap for control in protocol.controls if control.criterion == c.name]
        assert all(set(swap) == {c.cell} for swap in controls)
        others = [other for swap in controls for other in swap.values()]
        found[c.name] = (c.cell, c.metric, c.at_least, c.at_most, c.paper, others)
    return found


def tuples(value):
    return tuple(value) if isinstance(value, list) else value


def measured(protocol):
    """Cell → measure → arguments."""
    return {
        cell: {
            m.path.rpartition(".")[2]: {name: tuples(value) for name, value in m.args.items()}
            for m in recipe.measures
        }
        for cell, recipe in protocol.cells.items()
    }


def test_complexity_judges_and_counts_this():
    (protocol,) = complexity.claim.profiles.values()
    assert judged(protocol) == COMPLEXITY
    count = {True: "training_bytes", False: "forward_cost"}
    assert measured(protocol) == {cell: {count["at" in own]: own} for cell, own in COUNTED.items()}
    assert (protocol.seeds, {c.kind for c in protocol.criteria}) == (1, {"count"})


def test_gradient_paths_judges_and_measures_this():
    (protocol,) = gradient_paths.claim.profiles.values()
    typed = {name: ("sab", m, None, most, None, off) for name, (m, most, off) in GRADIENTS.items()}
    typed["readings-differ"] = ("sab", "least_difference", 1e-3, None, None, [])
    assert judged(protocol) == typed
    assert measured(protocol) == MEASURED
    assert (protocol.seeds, {c.kind for c in protocol.criteria}) == (1, {"identity"})


WORDS = {  # how a cell's name begins → what its label says
    "sab_5_5": "(5, 5)",
    "sab_1_5": "(1, 5)",
    "sab_1_1": "(1, 1)",
    "bptt": "full BPTT",
    "tbptt": "TBPTT",
    "attention": "full self-attention",
    "no_updates": "without mental updates",
    "sab_longer": "SAB, four times the steps",
    "tbptt_longer": "TBPTT, four times the steps",
    "sab_few": "SAB, k_top reduced",
    "dense_2e3": "0.002",
    "dense_1e3": "0.001",
    "dense_3e4": "0.0003",
    "dense_1e4": "0.0001",
    "dense_1e5": "1e-05",
    "default": "our choices",
    "naive": "naive",
    "stored_output": "ĥ stored",
    "bounded_sum": "Σ + 1",
    "full": "full",
    "none": "none",
    "own": "own step",
    "untrained": "one step",
    "written": "as written",
    "input_scale": "input",
    "score": "score",
    "threshold": "threshold",
}
METRICS = {  # a shown or drawn number → what is said where it stands
    "accuracy": "ccuracy",
    "hidden_norm_last": "‖h‖ at the last step",
    "gate_saturation_mean": "gates saturated",
    "tanh_saturation_mean": "tanh saturated",
    "early_weight": "eight",
    "early_gradient": "gradient along reads that goes there",
    "mse": "ean squared error",
    "map": "Weights of the output steps",
    "hidden_norm": "‖h‖ along a sequence",
    "gate_saturation": "Gates saturated",
    "tanh_saturation": "tanh saturated",
    "memory_gradient": "Gradient that arrives along read edges",
}
TRAINED = {
    claim.id: claim
    for claim in discover(Path(__file__).parents[2] / "claims").values()
    if claim.id.startswith("sab.") and "train" in claim.kinds
}


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        (n, p)
        for n in sorted(set(TRAINED) - {"sab.released_code"})
        for p in TRAINED[n].profiles
        if p != "smoke"
    ],
)
def test_a_label_says_what_its_cell_is(name, profile):
    """The cells of sab.released_code are typed with their words in test_sab_cells."""
    protocol = TRAINED[name].protocol(profile)
    labelled = [(s.cell, s.label) for s in protocol.shown if s.rival is None]
    labelled += [(line.cell, f"{plot.title} {line.label}") for plot in protocol.plots for line in plot.lines]
    for cell, label in labelled:
        known = [prefix for prefix in WORDS if cell.startswith(prefix)]
        if known:
            assert WORDS[max(known, key=len)] in label, (cell, label)
        else:
            assert cell == "sab" or cell.startswith("sab_") or cell == "shuffled", cell


@pytest.mark.parametrize("name", sorted(TRAINED))
def test_what_is_shown_or_drawn_is_what_it_is_called(name):
    for profile in TRAINED[name].profiles:
        protocol = TRAINED[name].protocol(profile)
        judged = {c.metric for c in protocol.criteria if c.metric.startswith("accuracy@")}
        for s in protocol.shown:
            plain = s.metric in judged or name == "sab.transfer"  # accuracy needs no word of its own
            assert plain or METRICS[s.metric.partition("@")[0]] in s.label, s
        for plot in protocol.plots:
            for line in plot.lines:
                axes = [plot.x_label, plot.y_label] if plot.kind == "scatter" else [plot.title + plot.y_label]
                first = [m.partition("@")[0] for m in line.metrics][: len(axes)]
                assert all(METRICS[m] in words for m, words in zip(first, axes, strict=True)), (
                    plot.name,
                    line,
                )


def test_transfer_is_drawn_over_the_multiples_it_was_measured_at():
    for profile, delay in (("cpu", 30), ("paper", 100)):
        (plot,) = TRAINED["sab.transfer"].protocol(profile).plots
        assert plot.x == (1, 2, 3, 4, 20, 50)
        for line in plot.lines:
            assert line.metrics == tuple(f"accuracy@{delay * m}" for m in (1, 2, 3, 4, 20, 50))


def test_counts_and_paths_are_shown_and_drawn_under_their_names():
    (counts,) = complexity.claim.profiles.values()
    assert [(s.cell, s.metric, s.label) for s in counts.shown] == [
        ("written", "operations_longest", "operations at t = 1200, as written"),
        ("cached", "operations_longest", "the same, W1·m cached"),
        ("no_retrieval", "operations_longest", "the same, no retrieval (LSTM)"),
        ("training", "gb_at", "SAB training, t = 5000, batch 64, 10⁹ bytes"),
        ("no_retrieval", "operations_in_n", "exponent of n, no retrieval"),
    ]
    drawn = [(line.cell, line.metrics, line.label) for line in counts.plots[0].lines]
    assert drawn == [
        ("written", ("operations",), "as written"),
        ("cached", ("operations",), "W1·m cached"),
        ("no_retrieval", ("operations",), "no retrieval (LSTM)"),
    ]
    assert counts.plots[0].x == (300, 600, 1200)
    (paths,) = gradient_paths.claim.profiles.values()
    assert [(line.metrics, line.label) for line in paths.plots[0].lines] == [
        (("direct_norm",), "through a read (sum over memories)"),
        (("recurrent_norm",), "through the LSTM, no truncation"),
    ]
    assert paths.plots[0].x == FAR["distances"]
