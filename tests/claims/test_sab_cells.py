"""The SAB claims, typed once more: what every cell trains, every band and control, every printed number."""

from dataclasses import astuple
from pathlib import Path

import pytest

from claims.sab import _copy, _study, adding
from repro import claim as claims_module
from repro.suite import FIRST_SEED
from repro.verdict import decide_claim
from tests.toys import made_up

FOLDER = Path(__file__).parents[2] / "claims" / "sab"
RUNS = {  # seeds, shown_seeds, seed_offset and, if there is one, delay: at the cpu and at the paper profile
    "copy_t300": [(8, 3, 300, 30), (3, 3, 0, 300)],
    "copy_table": [(8, 3, 300, None), (3, 3, 0, None)],
    "mental_updates": [(10, 5, 300, 10), (10, 5, 0, 100)],
    "sparsity": [(8, 3, 300, 30), (3, 3, 0, 100)],
    "attention_map": [(10, None, 600, 30), (10, None, 0, 300)],
    "adding": [(3, None, 0, None), (3, None, 0, None)],
    "released_code": [(8, 5, 300, 30), (3, 3, 0, 100)],
    "released_factors": [(16, None, 400, 30), (3, None, 0, 100)],
    "fragility": [(20, 10, 300, 30)],
    "transfer": [(5, 3, 300, 30), (3, 3, 0, 100)],
}
PROFILES = [(name, profile) for name, runs in RUNS.items() for profile in ("cpu", "paper")[: len(runs)]]
CLAIMS = {name: claims_module.load(FOLDER / f"{name}.py") for name in RUNS}
MULTIPLES = (1, 2, 3, 4, 20, 50)
every_profile = pytest.mark.parametrize(("name", "profile"), PROFILES)


def test_the_scales_are_these():
    """Scale: delay, symbols, hidden, steps, lr, k_trunc, tbptt, validate_every, sequences, multiples, batch.

    Size: length, hidden, steps, lr, k_trunc, tbptt, k_top, batch, sequences.
    """
    for found, typed in (
        (_copy.CPU, (30, 5, 128, 5000, 2e-3, 2, 2, 250, 256, MULTIPLES, 64)),
        (_copy.GPU, (300, 10, 128, 20_000, 1e-3, 5, 20, 500, 1024, (1,), 64)),
        (_study.SMALL, (30, 5, 128, 2000, 2e-3, 2, 2, 250, 256, (1,), 64)),
        (_study.SHORT, (10, 5, 128, 2000, 2e-3, 2, 2, 250, 256, (1,), 64)),
        (_study.LONG_PAPER, (300, 10, 128, 20_000, 1e-3, 5, 20, 500, 1024, (1,), 64)),
        (_study.SHORT_PAPER, (100, 10, 128, 20_000, 1e-3, 5, 20, 500, 1024, (1,), 64)),
        (adding.CPU, (40, 128, 2000, 2e-3, 2, 10, 10, 64, 1024)),
        (adding.GPU, (200, 128, 20_000, 1e-3, 10, 50, 10, 64, 1024)),
        (adding.FAR, (400, 128, 20_000, 1e-3, 10, 100, 10, 64, 1024)),
    ):
        assert astuple(found) == typed


@every_profile
def test_seeds_are_these(name, profile):
    protocol = CLAIMS[name].profiles[profile]
    found = (protocol.seeds, protocol.shown_seeds, protocol.seed_offset)
    assert found == RUNS[name][profile == "paper"][:3]


# What every cell trains: the leaves of its recipe, named without "args." and "stages.0.".
ABSENT = object()


def leaves(value, path=""):
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        value = {str(i): item for i, item in enumerate(value)}
    if not isinstance(value, dict):
        return {path.removeprefix(".").replace("args.", "").removeprefix("stages.0."): value}
    return {k: v for key, item in value.items() for k, v in leaves(item, f"{path}.{key}").items()}


def model(**args):
    return {f"model.{name}": value for name, value in args.items()}


def at(delay, multiples=(1,)):
    return {"task.delay": delay, "measures.0.delays": [delay * m for m in multiples]}


def truncated(k):
    return LSTM | {"algorithm.path": "reference.algorithms.truncation.TruncatedBptt", "algorithm.k": k}


SAB = (  # of the copy task, in all its claims
    {"task.path": "reference.tasks.copy.Copy", "model.path": "reference.models.sab.SAB"}
    | model(inputs=10, outputs=9, hidden=128, input="symbols", input_scale=10.0, recurrent_scale=0.5)
    | model(k_att=1, k_top=5)
    | {"algorithm.path": "reference.algorithms.bptt.Bptt", "batch": 64, "clip": 0.1}
    | {"optimiser": "adam", "betas": [0.9, 0.999], "weight_decay": 0.0, "keep_optimiser": False}
    | {"warmup": 0, "decay": "constant", "lr_end": 0.0}
    | {"stop.metric": "accuracy", "stop.at_least": 0.995, "stop.at_most": None, "stop.checks": 2}
    | {"validation.path": "reference.measure.accuracy.validation", "validation.sequences": 256}
    | {"measures.0.path": "reference.measure.accuracy.last_symbols"}
)
SIZES = {
    "cpu": model(k_trunc=2)
    | {"task.symbols": 5, "steps": 2000, "lr": 2e-3, "validate_every": 250, "measures.0.sequences": 256},
    "paper": model(k_trunc=5)
    | {"task.symbols": 10, "steps": 20_000, "lr": 1e-3, "validate_every": 500, "measures.0.sequences": 1024},
}
TRACE = "reference.measure.sab_trace"
TRACED = {"validation.path": f"{TRACE}.validation", "validation.traced": 64}
TRACED |= {"measures.1.path": f"{TRACE}.sab_trace", "measures.1.sequences": 64}
ON = {"stop": None} | {f"stop.{key}": ABSENT for key in ("metric", "at_least", "at_most", "checks")}
ADDING = (
    {"task.path": "reference.tasks.adding.Adding", "task.delay": ABSENT, "task.symbols": ABSENT}
    | model(inputs=2, outputs=1, input="real", input_scale=ABSENT, recurrent_scale=ABSENT, k_top=10)
    | {"algorithm.loss": "mse", "algorithm.last": 1, "clip": 1.0, **ON}
    | {"validation.path": "reference.measure.last_error.last_error"}
    | {"measures.0.path": "reference.measure.last_error.last_error"}
    | {"measures.0.delays": ABSENT, "measures.0.sequences": 1024}
)
LSTM = {"model.path": "reference.models.lstm.LSTM"} | model(k_att=ABSENT, k_top=ABSENT, k_trunc=ABSENT)
NONE, SHUFFLED = model(retrieval="none"), model(retrieval="shuffled")
OFF = {"no_retrieval": NONE, "shuffled": SHUFFLED}
ARMS = {"sab": {}, "bptt": LSTM, "attention": model(retrieval="dense", k_trunc=None)} | OFF
WITHOUT = model(mental_updates="none")
NAIVE = model(input_scale=1.0, recurrent_scale=1.0) | {"clip": 1.0}


def released(cpu):
    """Cell of sab.released_code → words that its row has, what it differs in."""
    code = NAIVE | model(scorer_std=0.01, threshold="released", few_memories="raw", first_memory="zero")
    code |= model(denominator=1e-7, input="scalar", outputs=10, k_att=2)
    tbptt = NAIVE | model(input="scalar", outputs=10) | truncated(2 if cpu else 5)
    bad, quiet = code | model(score="separable"), model(input_scale=10.0, recurrent_scale=0.5)
    symbols, ours = model(input="symbols"), model(score="additive")
    return {
        "written": ("as written", {}),
        "score": ("the query cannot change the ranking", model(score="separable")),
        "scorer_init": ("standard deviation 0.01", model(scorer_std=0.01)),
        "threshold": ("k_top-th score + 1e-7, so that k_top − 1", model(threshold="released")),
        "few_memories": ("raw scores as weights", model(few_memories="raw")),
        "first_memory": ("a zero state is the first memory", model(first_memory="zero")),
        "input": ("number as one float", model(input="scalar")),
        "ten_classes": ("10 classes instead of 9", model(outputs=10)),
        "denominator_1e7": ("1e-7 is added to the sum", model(denominator=1e-7)),
        "input_scale": ("input weights at uniform ±1/√hidden", model(input_scale=1.0)),
        "recurrent_scale": ("recurrent weights at uniform ±1/√hidden", model(recurrent_scale=1.0)),
        "k_att": ("every second state is stored", model(k_att=2)),
        "clip": ("clipped at 1.0 instead of 0.1", {"clip": 1.0}),
        "blank_unit": ("the blank has a unit", model(input="one_hot")),
        "last_loss": ("loss on the last symbols alone", {"algorithm.last": 5 if cpu else 10}),
        "no_stop": ("no stop once it has learned", ON),
        "clip_no_stop": ("no stop, gradient norm clipped at 1.0", ON | {"clip": 1.0}),
        "k_top": ("10 memories are read", model(k_top=10)),
        "k_top_4": ("4 memories are read", model(k_top=4)),
        "k_trunc": ("k_trunc at the code's default", model(k_trunc=3 if cpu else 10)),
        "released": ("all together, as released", bad),
        "released_but_score": ("as released, but ours: the score", code | ours),
        "released_but_scales": ("as released, but ours: both scales", bad | quiet),
        "released_but_input": ("as released, but ours: the input", bad | symbols),
        "released_but_scales_input": ("as released, but ours: scales and input", bad | quiet | symbols),
        "released_but_scales_input_score": ("but ours: scales, input, score", code | ours | quiet | symbols),
        "released_tbptt": ("TBPTT as released", tbptt),
        "no_retrieval": ("", NONE),
    }


def cells(name, profile):
    """Cell → what it differs in from SAB at the profile's size."""
    cpu, delay = profile == "cpu", RUNS[name][profile == "paper"][3]
    arms = ARMS | {"tbptt": truncated(2 if cpu else 20)}
    if name == "copy_t300":
        return {cell: own | at(delay) for cell, own in arms.items()}
    if name == "copy_table":
        delays = {100: 10, 300: 30} if cpu else {100: 100, 200: 200, 300: 300}
        table = {cell: arms[cell] for cell in ("bptt", "tbptt", "attention")}
        few, one = model(k_trunc=1), model(k_trunc=1, k_top=1)
        table |= {"sab_5_5": {}, "sab_1_5": few, "sab_1_1": one, "sab_1_no_retrieval": one | NONE}
        table |= {"sab_5_5_no_retrieval": NONE, "sab_5_5_shuffled": SHUFFLED}
        return {f"{cell}_{t}": own | at(d) for cell, own in table.items() for t, d in delays.items()}
    if name == "mental_updates":
        one, ten = model(k_trunc=1, k_top=1), model(k_trunc=2 if cpu else 10, k_top=10)
        found = {"no_retrieval": NONE, "shuffled_1_1": one | SHUFFLED}
        for size, own in (("1_1", one), ("5_5", {}), ("10_10", ten)):
            found |= {f"full_{size}": own, f"none_{size}": own | WITHOUT}
            found[f"own_{size}"] = own | model(mental_updates="own_step")
        return {cell: own | at(delay) for cell, own in found.items()}
    if name == "sparsity":
        rates = {"1e3": 1e-3, "3e4": 3e-4, "1e4": 1e-4, "1e5": 1e-5} | ({"2e3": 2e-3} if cpu else {})
        dense = {f"dense_{rate}": model(retrieval="dense") | {"lr": lr} for rate, lr in rates.items()}
        return {cell: own | at(delay) for cell, own in ({"sab": {}} | dense | OFF).items()}
    if name == "attention_map":
        epoch = TRACED | at(delay) | {"steps": 2000 if cpu else 10_000}
        found = {"untrained": {"steps": 1}, "no_retrieval": NONE, "shuffled": SHUFFLED}
        return {"sab": epoch} | {cell: epoch | own for cell, own in found.items()}
    if name == "adding":
        found = {}
        sizes = [(200, 40, 2000, 2, 10)]
        if not cpu:
            sizes = [(200, 200, 20_000, 10, 50), (400, 400, 20_000, 10, 100)]
        for t, length, steps, k_trunc, k in sizes:
            size = {"task.length": length, "steps": steps, "validate_every": steps // 10}
            size |= ADDING | model(k_trunc=k_trunc)
            rows = ARMS | {"tbptt": truncated(k), "no_updates": WITHOUT}
            found |= {f"{cell}_{t}": size | own for cell, own in rows.items()}
            if cpu:
                longer = {"steps": 8000, "validate_every": 800}
                found["sab_longer_200"] = size | longer
                found["tbptt_longer_200"] = size | truncated(k) | longer
                found["sab_few_200"] = size | model(k_top=2)
        return found
    if name in ("released_code", "released_factors"):
        found = released(cpu)
        if name == "released_factors":
            found = {c: found[c] for c in ("written", "input_scale", "score", "threshold")}
        return {cell: own | at(delay) for cell, (_, own) in found.items()}
    if name == "fragility":
        found = {"default": {}, "no_retrieval": NONE, "naive": NAIVE}
        found |= {"stored_output": NAIVE | model(memory="output")}
        found |= {"bounded_sum": NAIVE | model(denominator=1.0)}
        return {cell: TRACED | own | at(delay) for cell, own in found.items()}
    longer = at(delay, MULTIPLES) | {"steps": 5000 if cpu else 20_000}
    found = {cell: longer | own for cell, own in ARMS.items()}
    if cpu:
        dense, scales = longer | ARMS["attention"], model(input_scale=1.0, recurrent_scale=1.0)
        found |= {"attention_rate": dense | {"lr": 1e-3}, "attention_scales": dense | scales}
        found |= {"attention_far": dense | at(60, MULTIPLES), "sab_scales": longer | scales}
    return found


@every_profile
def test_every_cell_trains_this(name, profile):
    found = {c: leaves(recipe.to_plain()) for c, recipe in CLAIMS[name].profiles[profile].cells.items()}
    typed = {c: SAB | SIZES[profile] | own for c, own in cells(name, profile).items()}
    assert found.keys() == typed.keys()
    for cell, own in typed.items():
        keys = (own | found[cell]).keys()
        assert not [k for k in keys if own.get(k, ABSENT) != found[cell].get(k, ABSENT)], cell


def test_each_factor_of_the_released_code_is_shown_by_its_own_words():
    words = {cell: text for cell, (text, _) in released(True).items() if text}
    shown = CLAIMS["released_code"].profiles["cpu"].shown
    assert {s.cell for s in shown} == set(words)
    for s in shown:
        label = "gain over as released: " if s.rival == "released" else f"effect of {s.cell}"
        assert words[s.cell] in s.label if s.rival is None else s.label.startswith(label)


def test_each_factor_of_transfer_is_shown_at_its_own_delays():
    shown = [s for s in CLAIMS["transfer"].profiles["cpu"].shown if s.label.startswith("one factor: ")]
    for cell, words, delay in (
        ("attention_rate", "full self-attention at the paper's learning rate of 1e-3", 30),
        ("attention_scales", "full self-attention, input and recurrent weights at uniform ±1/√hidden", 30),
        ("attention_far", "full self-attention trained at twice the delay", 60),
        ("sab_scales", "SAB, input and recurrent weights at uniform ±1/√hidden", 30),
    ):
        assert [(s.metric, s.label) for s in shown if s.cell == cell] == [
            (f"accuracy@{delay * m}", f"one factor: {words}, {m} × the training delay") for m in MULTIPLES
        ]
    assert len(shown) == 4 * len(MULTIPLES)


# Every criterion: what it compares, its band and the paper's number, and the cells that its controls put in
# the place of its own. A band is half of a printed gain, or the root of a printed ratio (Table 2).
FIELDS = ("kind", "cell", "rival", "metric", "at_least", "sd_floor", "paper")
REST = {"at_most": None, "success": None, "ratio": False, "premise": False}
BOTH, NOTHING = ("no_retrieval", "shuffled"), ("no_retrieval",)
GAINS = {  # Table 1: T, arm, rival → band, printed gain
    (100, "sab_5_5", "tbptt"): (0.3475, 0.695),
    (100, "sab_1_1", "tbptt"): (0.137, 0.274),
    (100, "sab_1_5", "sab_1_1"): (0.2105, 0.421),
    (200, "sab_5_5", "tbptt"): (0.321, 0.642),
    (200, "sab_5_5", "bptt"): (0.22, 0.44),
    (300, "sab_5_5", "tbptt"): (0.371, 0.742),
    (300, "sab_1_1", "tbptt"): (0.087, 0.174),
    (300, "sab_1_5", "sab_1_1"): (0.23, 0.46),
    (300, "sab_5_5", "bptt"): (0.32, 0.64),
}


def row(cell, rival, metric, at_least, sd_floor, paper, controls=(), **rest):
    typed = zip(FIELDS, ("train", cell, rival, metric, at_least, sd_floor, paper), strict=True)
    return dict(typed) | REST | rest | {"controls": [{cell: other} for other in controls]}


def costs(cell, metric, at_least):
    """Its control puts a change that does not cost in the place of the one that does."""
    return row("written", cell, metric, at_least, 0.03, None) | {"controls": [{cell: "threshold"}]}


def criteria(name, profile):
    """Criterion → row."""
    cpu, delay = profile == "cpu", RUNS[name][profile == "paper"][3]
    a, learned = f"accuracy@{delay}", (0.65 if cpu else 0.9, 0.02)
    if name == "copy_t300":
        return {
            "sab_solves": row("sab", None, a, 0.65 if cpu else 0.95, 0.02, 0.999, BOTH, premise=cpu),
            "beats_tbptt": row("sab", "tbptt", a, 0.371 if cpu else 0.6, 0.03, 0.742, BOTH),
            "beats_bptt": row("sab", "bptt", a, 0.2 if cpu else 0.5, 0.03, 0.64, BOTH),
        }
    if name == "copy_table":
        found = {}
        columns = [(100, 10, 1.0), (300, 30, 0.999)]
        if not cpu:
            columns = [(100, 100, 1.0), (200, 200, 1.0), (300, 300, 0.999)]
        for t, d, paper in columns:
            own, off = f"sab_5_5_{t}", [f"sab_5_5_no_retrieval_{t}"]
            found[f"{own}_learned"] = row(own, None, f"accuracy@{d}", *learned, paper, off, premise=cpu)
            for (column, arm, rival), (band, gain) in GAINS.items():
                if column == t and (rival != "bptt" or not cpu):
                    five = arm == "sab_5_5"
                    off = [f"{arm}_{c}_{t}" for c in BOTH] if five else [f"sab_1_no_retrieval_{t}"]
                    cell = f"{arm}_{t}"
                    judged = row(cell, f"{rival}_{t}", f"accuracy@{d}", band, 0.03, gain, off)
                    found[f"{arm}_beats_{rival}_{t}"] = judged
        return found
    if name == "mental_updates":
        return {
            "full_5_5_learned": row("full_5_5", None, a, *learned, 1.0, NOTHING, premise=cpu),
            "updates_help_1_1": row("full_1_1", "none_1_1", a, 0.0445, 0.03, 0.089, ["shuffled_1_1"]),
            **(
                {"learns_without_10_10": row("none_10_10", None, a, 0.9, 0.02, 0.996, NOTHING)}
                if cpu
                else {"learns_without_5_5": row("none_5_5", None, a, 0.9, 0.02, 0.983, NOTHING)}
            ),
        }
    if name == "sparsity":
        dense = [f"dense_{rate}" for rate in (["2e3"] if cpu else ["1e3", "3e4", "1e4", "1e5"])]
        return {"sab_learned": row("sab", None, a, *learned, 1.0, NOTHING, premise=cpu)} | {
            f"beats_{cell}": row("sab", cell, a, 0.2975, 0.03, 0.595, BOTH) for cell in dense
        }
    if name == "attention_map":
        seen, moved = "the figure shows nearly all", "the figure shows a move from all over the sequence"
        return {
            "sab_learned": row("sab", None, a, *learned, None, NOTHING, premise=cpu),
            "reads_the_first_inputs": row(
                "sab", None, "early_weight", 0.4, 0.0, seen, ["untrained"], success=0.9
            ),
            "moves_there": row("sab", "untrained", "early_weight", 0.25, 0.05, moved),
            "for_what_they_hold": row("sab", "shuffled", "early_weight", 0.1, 0.05, None, ["untrained"]),
        }
    if name == "adding":
        found = {}
        for t, band, ratio in [(200, 0.082, 0.00667), (400, 0.121, 0.01472)][: 1 if cpu else 2]:
            cell, off, most = f"sab_{t}", [f"no_retrieval_{t}", f"shuffled_{t}"], 0.02 if cpu else 1e-3
            floor = 0.001 if cpu else 5e-5
            least = row(cell, None, "mse", None, floor, None, [] if cpu else off[:1], premise=cpu)
            found[f"sab_learned_{t}"] = least | {"at_most": most}
            ahead = row(cell, f"tbptt_{t}", "mse", None, 0.3, ratio, off, ratio=True, at_most=band)
            found[f"beats_tbptt_{t}"] = ahead
        return found
    if name == "released_code":
        return {
            "written_learned": row("written", None, a, *learned, 1.0, NOTHING, premise=cpu),
            "released_loses": costs("released", a, 0.19),
            "score_alone_loses": costs("score", a, 0.19),
        }
    if name == "released_factors":
        return {"written_learned": row("written", None, a, *learned, 1.0, premise=cpu)} | {
            f"{cell}_alone_loses": costs(cell, a, 0.095) for cell in ("input_scale", "score")
        }
    if name == "fragility":
        return {
            "default_learns": row("default", None, a, 0.5, 0.0, None, NOTHING, success=0.9),
            "naive_fails": row("naive", None, a, None, 0.0, None, success=0.9, at_most=0.8),
            "default_ahead": row("default", "naive", a, 0.05, 0.03, None, NOTHING),
        }
    rivals = {"attention": (1.0, (4, 0.275, 0.55), (20, 0.175, 0.35))}
    if not cpu:
        rivals["bptt"] = (0.99, (4, 0.27, 0.54), (20, 0.175, 0.35))
    found = {
        "sab_learned": row("sab", None, a, 0.65 if cpu else 0.95, 0.02, 0.99, premise=True),
        "keeps_4x": row("sab", None, f"accuracy@{4 * delay}", 0.375, 0.03, 0.75, BOTH),
        "keeps_20x": row("sab", None, f"accuracy@{20 * delay}", 0.235, 0.03, 0.47, BOTH),
    }
    for rival, (paper, *ahead) in rivals.items():
        found[f"{rival}_learned"] = found["sab_learned"] | {"cell": rival, "paper": paper}
        for m, band, gain in ahead:
            judged = row("sab", rival, f"accuracy@{m * delay}", band, 0.03, gain, BOTH)
            found[f"beats_{rival}_{m}x"] = judged
    return found


@every_profile
def test_every_criterion_judges_this(name, profile):
    protocol = CLAIMS[name].profiles[profile]
    found = {
        c.name: {field: getattr(c, field) for field in (*FIELDS, *REST)}
        | {"controls": [dict(k.swap) for k in protocol.controls if k.criterion == c.name]}
        for c in protocol.criteria
    }
    assert found == criteria(name, profile)


# What the paper prints (arXiv:1809.03702v1). Table 1: T → arm → accuracy. Table 2: T → arm → loss. Table 3:
# accuracy with and without mental updates, and reading all memories. Table 5: arm → accuracy at MULTIPLES.
ARMS_1 = ("bptt", "attention", "tbptt", "sab_1_1", "sab_1_5", "sab_5_5")
TABLE_1 = {
    100: (0.998, 1.0, 0.305, 0.579, 1.0, 1.0),
    200: (0.56, 1.0, 0.358, 0.399, "not reported", 1.0),
    300: (0.359, 1.0, 0.257, 0.431, 0.891, 0.999),
}
ARMS_2 = ("bptt", "attention", "tbptt", "sab", "no_updates")
TABLE_2 = {
    200: (4.59e-6, 5.541e-8, 3.0e-4, 2.0e-6, 2.171e-6),
    400: (1.554e-7, 4.972e-7, 6.8e-4, 1.001e-5, "not reported"),
}
TABLE_3 = {"1_1": (0.579, 0.49), "5_5": (1.0, 0.983), "10_10": (1.0, 0.996)}
TABLE_5 = {
    "sab": (0.99, 0.95, 0.83, 0.75, 0.47, 0.41),
    "bptt": (0.99, 0.34, 0.25, 0.21, 0.12, 0.12),
    "attention": (1.0, 0.52, 0.28, 0.2, 0.12, "out of memory"),
}


def printed(name, profile):
    """(cell, metric) → what is shown as the paper's."""
    cpu, delay = profile == "cpu", RUNS[name][profile == "paper"][3]
    rates = ("1e3", "3e4", "1e4", "1e5", *(["2e3"] if cpu else []))
    one = {
        "copy_t300": {"bptt": 0.359, "tbptt": 0.257, "attention": 1.0},
        "mental_updates": {f"full_{size}": value for size, (value, _) in TABLE_3.items()}
        | {f"{c}_{size}": value for c in ("none", "own") for size, (_, value) in TABLE_3.items()},
        "sparsity": {f"dense_{rate}": 0.405 for rate in rates},
        "released_code": {"written": 1.0},
    }
    found = {(cell, f"accuracy@{delay}"): value for cell, value in one.get(name, {}).items()}
    if name == "copy_table":
        for t, d in ({100: 10, 300: 30} if cpu else {100: 100, 200: 200, 300: 300}).items():
            found |= {(f"{c}_{t}", f"accuracy@{d}"): v for c, v in zip(ARMS_1, TABLE_1[t], strict=True)}
    if name == "adding":
        for t in (200,) if cpu else (200, 400):
            found |= {(f"{c}_{t}", "mse"): v for c, v in zip(ARMS_2, TABLE_2[t], strict=True)}
    if name == "transfer":
        for cell, values in TABLE_5.items():
            metrics = [f"accuracy@{delay * multiple}" for multiple in MULTIPLES]
            found |= {(cell, metric): v for metric, v in zip(metrics, values, strict=True)}
    return found


@every_profile
def test_the_papers_numbers_are_the_papers(name, profile):
    protocol = CLAIMS[name].profiles[profile]
    shown = {(s.cell, s.metric, s.rival): s.paper for s in protocol.shown if s.paper is not None}
    gains = {"1_1": 0.089, "5_5": 0.017, "10_10": 0.004} if name == "mental_updates" else {}
    metric = f"accuracy@{RUNS[name][profile == 'paper'][3]}"
    assert shown == {(*key, None): value for key, value in printed(name, profile).items()} | {
        (f"full_{size}", metric, f"none_{size}"): gain for size, gain in gains.items()
    }
    lines = {line.cell: line.paper for p in protocol.plots for line in p.lines if line.paper is not None}
    drawn = TABLE_5 | {"attention": (*TABLE_5["attention"][:5], None)}
    assert lines == (drawn if name == "transfer" else {})


# Outcomes of records that are made up: in every seed what the paper prints, but for what is given here by
# cell or by cell and metric; what has neither (a control) is at chance. At the cpu profile a premise is no
# verdict: the first three lines say what a claim does when SAB has not learned there.
MAP = ("sab", "early_weight")
MORE, LESS = (0.99,) * 15 + (0.4,) * 5, (0.99,) * 12 + (0.4,) * 8  # by seed
TABLE_LOW = {f"sab_{size}_{t}": 0.3 for size in ("5_5", "1_5", "1_1") for t in TABLE_1}
UPDATES_LOW = {f"{reading}_{size}": 0.3 for reading in ("full", "none", "own") for size in TABLE_3}


@pytest.mark.parametrize(
    ("name", "profile", "given", "verdict"),
    [
        ("copy_t300", "cpu", {"sab": 0.3}, "inconclusive"),
        ("transfer", "cpu", {"sab": 0.3}, "inconclusive"),
        ("adding", "cpu", {"sab_200": 0.15}, "inconclusive"),
        ("copy_t300", "cpu", {"sab": 0.999}, "reproduced"),
        ("copy_t300", "cpu", {"sab": 0.999, "bptt": 0.999}, "not reproduced"),
        ("copy_table", "cpu", {}, "reproduced"),
        ("copy_table", "cpu", {"sab_1_1_100": 0.305}, "not reproduced"),
        ("sparsity", "cpu", {"sab": 1.0}, "reproduced"),
        ("sparsity", "cpu", {"sab": 1.0, "dense_2e3": 1.0}, "not reproduced"),
        ("mental_updates", "cpu", {}, "reproduced"),
        ("mental_updates", "cpu", {"none_1_1": 0.579}, "not reproduced"),
        ("mental_updates", "cpu", {"shuffled_1_1": 0.579}, "a control is green"),
        ("attention_map", "cpu", {"sab": 1.0, MAP: 0.95}, "reproduced"),
        ("attention_map", "cpu", {"sab": 1.0, MAP: 0.1}, "not reproduced"),
        ("attention_map", "cpu", {"sab": 1.0, MAP: 0.95, "shuffled": 0.9}, "not reproduced"),
        ("attention_map", "cpu", {"sab": 1.0, MAP: 0.95, "untrained": 0.95}, "a control is green"),
        ("released_code", "cpu", {"score": 0.62, "released": 0.62}, "reproduced"),
        ("released_code", "cpu", {"score": 1.0, "released": 0.62}, "not reproduced"),
        ("released_code", "cpu", {"score": 0.62, "released": 0.62, "threshold": 0.62}, "a control is green"),
        ("released_factors", "cpu", {"written": 1.0, "score": 0.8, "input_scale": 0.6}, "reproduced"),
        ("released_factors", "cpu", {"written": 1.0, "score": 1.0, "input_scale": 0.6}, "not reproduced"),
        ("adding", "cpu", {}, "reproduced"),
        ("adding", "cpu", {"tbptt_200": 3.0e-6}, "not reproduced"),
        ("transfer", "cpu", {}, "reproduced"),
        ("transfer", "cpu", {("sab", "accuracy@600"): 0.15}, "not reproduced"),
        ("copy_t300", "paper", {"sab": 0.999}, "reproduced"),
        ("copy_t300", "paper", {"sab": 0.3}, "not reproduced"),
        ("copy_t300", "paper", {"sab": 0.999, "bptt": 0.999}, "not reproduced"),
        ("copy_table", "paper", {"sab_1_5_200": 1.0}, "reproduced"),
        ("copy_table", "paper", TABLE_LOW, "not reproduced"),
        ("sparsity", "paper", {"sab": 1.0}, "reproduced"),
        ("sparsity", "paper", {"sab": 0.3}, "not reproduced"),
        ("sparsity", "paper", {"sab": 1.0, "dense_1e3": 1.0}, "not reproduced"),
        ("mental_updates", "paper", {}, "reproduced"),
        ("mental_updates", "paper", UPDATES_LOW, "not reproduced"),
        ("mental_updates", "paper", {"none_1_1": 0.579}, "not reproduced"),
        ("attention_map", "paper", {"sab": 1.0, MAP: 0.95}, "reproduced"),
        ("attention_map", "paper", {"sab": 0.3}, "not reproduced"),
        ("attention_map", "paper", {"sab": 1.0, MAP: 0.1}, "not reproduced"),
        ("released_code", "paper", {"score": 0.62, "released": 0.62}, "reproduced"),
        ("released_code", "paper", {"written": 0.3, "released": 0.3, "score": 0.3}, "not reproduced"),
        ("released_code", "paper", {"score": 1.0, "released": 0.62}, "not reproduced"),
        ("released_factors", "paper", {"written": 1.0, "score": 0.8, "input_scale": 0.6}, "reproduced"),
        ("released_factors", "paper", {"written": 1.0, "score": 1.0, "input_scale": 0.6}, "not reproduced"),
        ("adding", "paper", {}, "reproduced"),
        ("adding", "paper", {"sab_200": 0.15, "sab_400": 0.15}, "not reproduced"),
        ("transfer", "paper", {}, "reproduced"),
        ("fragility", "cpu", {"default": 0.99, "naive": 0.3}, "reproduced"),
        ("fragility", "cpu", {"default": 0.3, "naive": 0.3}, "not reproduced"),
        ("fragility", "cpu", {"default": 0.99, "naive": 0.99}, "not reproduced"),
        ("fragility", "cpu", {"default": MORE, "naive": LESS}, "inconclusive"),  # both counts hold
    ],
)
def test_a_claim_can_end_either_way(name, profile, given, verdict):
    protocol = CLAIMS[name].profiles[profile]

    def value(cell, metric):
        if cell == "threshold" and cell not in given:  # a change that does not cost
            return value("written", metric)
        known = printed(name, profile).get((cell, metric), 0.125)
        return given.get((cell, metric), given.get(cell, known))

    def record(cell, seed):
        values = {c.metric: value(cell, c.metric) for c in protocol.criteria}
        return made_up(
            cell,
            protocol.cells[cell],
            FIRST_SEED + protocol.seed_offset + seed,
            {metric: v[seed] if isinstance(v, tuple) else v for metric, v in values.items()},
        )

    records = {cell: [record(cell, seed) for seed in range(protocol.seeds)] for cell in protocol.cells}
    decided = decide_claim(f"sab.{name}", protocol, records, profile)
    if verdict == "a control is green":
        assert decided.control_failed
    else:
        assert decided.verdict == verdict
        assert {c.verdict for c in decided.controls} == {"not reproduced"}
