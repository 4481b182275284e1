import doctest

import pytest
import torch

from reference.measure import mrbp_cost, timing
from reference.measure.mrbp_cost import rollout_cost, speed_bounds

SMALL = {
    "vocab": 16,
    "width": 32,
    "heads": 2,
    "head_width": 16,
    "feed_forward": 64,
    "segment": 16,
    "memory_size": 8,
}


def test_bounds_by_hand():
    assert speed_bounds(4, 8)["mrbp"] == pytest.approx(0.9)
    assert speed_bounds(4, 16)["mrbp"] == pytest.approx(3 / 3.2)
    assert speed_bounds(1, 1)["checkpointing"] == 0.75
    assert doctest.testmod(mrbp_cost) == (0, 1)


def test_bytes_and_times_of_a_rollout():
    found = rollout_cost(
        generator=torch.Generator().manual_seed(0),
        device="cpu",
        encoder_layers=2,
        decoder_layers=4,
        segments=6,
        arguments=SMALL,
        least=2,
        most=2,
    )
    assert found["mrbp_of_allowance"] <= 1.1
    assert found["mrbp_bytes"] < found["checkpointing_bytes"] < found["bptt_bytes"]
    assert found["bptt_bytes"] > 4 * found["segment_bytes"]
    slots, tokens = 2 * 8 * 32 * 4, 2 * 16 * 8
    assert found["memory_bytes"] == 6 * (slots + tokens)
    assert found["mrbp_bound"] == pytest.approx(0.9)
    for name in ("bptt_s", "mrbp_s", "checkpointing_s", "mrbp_speed", "checkpointing_speed"):
        assert len(found[name]) == 2
        assert min(found[name]) > 0
    for speed, part in zip(found["mrbp_speed"], found["mrbp_of_bound"], strict=True):
        assert part == pytest.approx(speed / 0.9)


def test_turns_stop_once_the_ratio_is_known_and_rotate(monkeypatch):
    clock = iter(range(10_000))
    monkeypatch.setattr(timing.time, "process_time", lambda: float(next(clock)))
    order = []
    runs = {name: lambda name=name: order.append(name) for name in mrbp_cost.ALGORITHMS}
    seconds = mrbp_cost._in_turns(runs, tolerance=0.02, least=3, most=9)
    assert seconds == {name: [1.0] * 3 for name in runs}  # equal times: the least number of turns
    assert [name[0] for name in order[3:]] == list("bcmcmbmbc")
    noise = iter([1.0, 3.0] * 100)
    monkeypatch.setattr(mrbp_cost, "busy_seconds", lambda run: next(noise))
    assert len(mrbp_cost._in_turns(runs, tolerance=0.02, least=3, most=9)["bptt"]) == 9
