"""FLOPs, bytes and times of whole rollouts: against derivations by hand and against real runs."""

import json

import pytest
import torch

from reference.algorithms.segments import leaves
from reference.measure import rollout_memory
from reference.measure.inference_speed import inference_speed
from reference.measure.live_bytes import LiveBytes, bytes_of
from reference.measure.model_flops import forward_flops, sequence_flops
from reference.measure.rollout_memory import inference_bytes, process_peak, training_bytes
from reference.measure.segment_models import build, filled_memory, full_memory, shapes, tokens

D, F, L = 16, 32, 8  # width (2 heads of 8), feed-forward, segment
SHAPE = {"width": D, "heads": 2, "head_width": 8, "feed_forward": F, "segment": L}
MEMFORMER = {**SHAPE, "encoder_layers": 1, "decoder_layers": 2, "memory_size": 6, "decoder_reads": "encoder"}
NOTHING = {"generator": torch.Generator(), "device": "cpu"}


def test_decoder_flops_by_hand():
    """Per layer: four projections, scores and mix over all N × N, feed-forward."""
    found = sequence_flops(
        **NOTHING, model="decoder", arguments={**SHAPE, "layers": 2}, lengths=(8, 24), whole=True
    )
    by_hand = [2 * 2 * (4 * n * D * D + 2 * n * n * D + 2 * n * D * F) for n in (8, 24)]
    assert found["flops"] == by_hand
    assert found["flops_24"] == by_hand[1] and found["billions"] == by_hand[1] / 1e9


def test_transformer_xl_flops_by_hand():
    """Queries and outputs of L, keys, values and positions of S states, two scores, mix, feed-forward."""
    found = sequence_flops(
        **NOTHING,
        model="transformer_xl",
        arguments={**SHAPE, "layers": 3, "memory_size": 12},
        lengths=(8, 16, 24, 80),
        paper=1.0,
    )

    def step(states):
        attention = 2 * L * D * D + 2 * states * D * D + states * D * D + 3 * L * states * D
        return 2 * 3 * (attention + 2 * L * D * F)

    steps = [step(L), step(2 * L), *[step(12 + L)] * 8]
    assert found["flops"] == [sum(steps[:n]) for n in (1, 2, 3, 10)]
    assert found["miss_percent"] == pytest.approx(100 * (sum(steps) / 1e9 - 1))


def test_memformer_flops_by_hand():
    """The first step encodes one start token and four classification tokens; later ones L and four."""
    K, C = MEMFORMER["memory_size"], 4
    found = sequence_flops(**NOTHING, model="memformer", arguments=MEMFORMER, lengths=(8, 16, 32))

    def step(before, decodes=1):
        n = before + C  # encoder states
        own = 4 * n * D * D + 2 * n * n * D
        reads = 2 * n * D * D + 2 * K * D * D + 2 * n * K * D
        write = 2 * K * D * D + 2 * n * D * D + 2 * K * n * D  # query, key of slots; key, value; scores, mix
        decoder = (
            4 * L * D * D + 2 * L * L * D + 2 * L * D * D + 2 * n * D * D + 2 * L * n * D + 2 * L * D * F
        )
        return 2 * (own + reads + 2 * n * D * F + write + 2 * decodes * decoder)

    assert found["flops"] == [step(1), step(1) + step(L), step(1) + 3 * step(L)]
    assert found["billions_last_written"] == (found["flops_32"] + step(L, decodes=0)) / 1e9
    assert found["exponent"] > 1


def test_a_length_that_is_no_multiple():
    with pytest.raises(ValueError, match="whole segments"):
        sequence_flops(**NOTHING, model="memformer", arguments=MEMFORMER, lengths=(12,))


def test_counting_on_meta_equals_counting_a_real_run():
    arguments = {**MEMFORMER, "vocab": 5}
    real = build("memformer", arguments, "cpu")
    assert forward_flops(build("memformer", arguments), 32)[-1] == flops_for_real(real, 32)


def flops_for_real(model, length):
    from reference.measure.flops import counting

    memory = model.initial_memory(1)
    with counting() as counter, torch.no_grad():
        for segment in tokens(1, length, "cpu").split(L, 1):
            _, memory = model.step(segment, memory)
    return counter.get_total_flops()


def test_unknown_model_and_a_memory_that_never_ends():
    with pytest.raises(ValueError, match="memformer"):
        build("gru", {})

    class Growing(torch.nn.Linear):
        segment = 1

        def initial_memory(self, batch):
            return torch.zeros(batch, 0)

        def step(self, tokens_BL, memory):
            return None, torch.cat([memory, memory.new_zeros(len(memory), 1)], 1)

    with pytest.raises(RuntimeError, match="still grows"):
        full_memory(Growing(1, 1), 2)


def test_full_memory_has_the_shapes_of_a_long_run():
    arguments = {**SHAPE, "vocab": 5, "layers": 2, "memory_size": 20}
    model = build("transformer_xl", arguments, "cpu")
    memory = model.initial_memory(3)
    for _ in range(6):
        _, memory = model.step(tokens(3, L, "cpu"), memory)
    assert shapes(full_memory(build("transformer_xl", arguments), 3)) == shapes(memory)
    filled = filled_memory("transformer_xl", arguments, 3, "cpu", torch.Generator().manual_seed(0))
    assert shapes(filled) == shapes(memory) and leaves(filled)[0].std() > 0.5


@pytest.mark.parametrize("name", ["memformer", "transformer_xl"])
def test_inference_bytes_are_those_of_a_real_run(name):
    arguments = {**SHAPE, "vocab": 5, "layers": 2} if name == "transformer_xl" else {**MEMFORMER, "vocab": 5}
    found = inference_bytes(**NOTHING, model=name, arguments=arguments, sizes=(8, 16), batch=3)
    real = build(name, {**arguments, "memory_size": 16}, "cpu").eval()
    memory = filled_memory(name, {**arguments, "memory_size": 16}, 3, "cpu", torch.Generator())
    segment = tokens(3, L, "cpu")
    math = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with torch.no_grad(), math, LiveBytes(real, kept=(segment, *leaves(memory))) as count:
        real.step(segment, memory)
    assert found["peak"][1] == pytest.approx(count.peak, rel=0.02)
    states = {"memformer": 16 * D, "transformer_xl": 2 * 16 * D}[name]
    assert found["state_16"] == 3 * (4 * states + 8 * L)  # the last token is a view: its segment stays alive
    assert found["weights"] == bytes_of(real.parameters())
    assert 0.8 < found["state_exponent"] <= 1
    assert found["peak_8"] < found["peak_16"]


def test_training_bytes_by_algorithm():
    common = {**NOTHING, "model": "memformer", "arguments": {**MEMFORMER, "vocab": 5}, "batch": 4}
    kinds = ("bptt", "mrbp", "segment_checkpointing", "layer_checkpointing")
    short, long = ({k: training_bytes(**common, algorithm=k, segments=n) for k in kinds} for n in (3, 6))
    parameters = bytes_of(build("memformer", common["arguments"]).parameters())
    for kind in kinds:
        assert long[kind]["static"] == pytest.approx(4 * parameters, rel=0.02)  # and Adam's step counts
        assert long[kind]["peak"] <= long[kind]["static"] + long[kind]["activations"]
    # BPTT's graph doubles with the segments; replay's does not; layers in between.
    grown = {kind: long[kind]["activations"] / short[kind]["activations"] for kind in kinds}
    assert grown["bptt"] > 1.7 and grown["mrbp"] < 1.2
    assert long["mrbp"]["activations"] < long["layer_checkpointing"]["activations"]
    assert long["layer_checkpointing"]["activations"] < long["bptt"]["activations"]
    assert long["mrbp"]["of_allowance"] <= 1.1 < long["bptt"]["of_allowance"]


def test_training_bytes_are_those_of_a_real_run_and_the_miss_is_shown():
    arguments = {**MEMFORMER, "vocab": 5}
    found = training_bytes(
        **NOTHING, model="memformer", arguments=arguments, algorithm="bptt", batch=4, segments=5, paper_mb=1.0
    )
    real = build("memformer", arguments, "cpu")
    optimiser = torch.optim.Adam(real.parameters())
    how = rollout_memory.ALGORITHMS["bptt"]()
    math = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    how.backward(real, {"tokens": tokens(1, L, "cpu")})
    optimiser.step()
    optimiser.zero_grad()
    batch = tokens(4, 5 * L, "cpu")
    with math, LiveBytes(real, optimiser, (batch,)) as count:
        how.backward(real, {"tokens": batch})
    assert found["peak"] == pytest.approx(count.peak, rel=0.02)
    assert found["activations"] == pytest.approx(count.peak_activations, rel=0.02)
    assert found["miss_percent"] == pytest.approx(100 * (found["peak"] / 1e6 - 1))


def test_peaks_of_fresh_processes():
    """Big enough that states dominate: the measured ratio is the counted one."""
    wide = {**SHAPE, "width": 64, "head_width": 32, "feed_forward": 128, "memory_size": 256, "vocab": 8}
    found = process_peak(
        **NOTHING,
        model="memformer",
        arguments={**wide, "encoder_layers": 1, "decoder_layers": 1, "decoder_reads": "encoder"},
        rival="transformer_xl",
        rival_arguments={**wide, "layers": 6},
        batch=32,
        repeats=1,
    )
    assert len(found["ratio"]) == 1 and found["ratio"][0] > 1.5
    assert found["measured_over_counted"][0] == pytest.approx(1, abs=0.3)
    assert found["rival_bytes"][0] > 6 * 256 * 64 * 32 * 4  # the states alone


def test_a_process_that_fails_says_why():
    with pytest.raises(RuntimeError, match="gru"):
        rollout_memory._in_fresh_process("gru", {}, 1, "cpu")


def test_the_child_answers_in_json():
    asked = {"model": "memformer", "arguments": {**MEMFORMER, "vocab": 5}, "batch": 2, "device": "cpu"}
    assert set(rollout_memory._run_alone(**asked)) == {"peak", "reserved"}
    assert json.dumps(asked)


def test_inference_speed_is_a_ratio_in_turns():
    found = inference_speed(
        **NOTHING,
        model="memformer",
        arguments={**MEMFORMER, "vocab": 5},
        rival="transformer_xl",
        rival_arguments={**SHAPE, "vocab": 5, "layers": 2, "memory_size": 8},
        batch=1,
        repeats=3,
    )
    pairs = zip(found["rival_s"], found["model_s"], strict=True)
    assert found["speed_ratio"] == pytest.approx([b / a for b, a in pairs])
    assert len(found["speed_ratio"]) == 3 and min(found["model_s"]) > 0
    assert found["flops_ratio"] > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="compares with the CUDA allocator: needs a GPU")
def test_process_peak_on_a_gpu():
    wide = {**SHAPE, "width": 256, "head_width": 128, "memory_size": 2048, "vocab": 8}
    found = process_peak(
        generator=torch.Generator(),
        device="cuda",
        model="memformer",
        arguments={**wide, "encoder_layers": 1, "decoder_layers": 1},
        rival="transformer_xl",
        rival_arguments={**wide, "layers": 6},
        batch=16,
        repeats=1,
    )
    assert found["measured_over_counted"][0] == pytest.approx(1, abs=0.1)
