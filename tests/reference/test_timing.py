import time

import pytest
import torch

from reference.measure import sab_speed
from reference.measure.timing import busy_seconds, time_ratio


def test_ratio_of_sleeps() -> None:
    ratio = time_ratio(lambda: time.sleep(0.01), lambda: time.sleep(0.002), most=10)
    assert ratio.low <= ratio.mean <= ratio.high
    assert 2.0 < ratio.mean < 6.0
    assert 5 <= ratio.pairs <= 10
    assert ratio.seconds[0] > ratio.seconds[1]


def test_busy_seconds_count_work_and_no_waiting() -> None:
    def work() -> None:
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass

    assert busy_seconds(lambda: time.sleep(0.2)) < 0.1
    assert busy_seconds(work) >= 0.02


def test_impossible_values() -> None:
    with pytest.raises(ValueError, match="pairs"):
        time_ratio(lambda: None, lambda: None, pairs=1)


def test_sab_speed_times_autograd_over_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """`times` gives the plain step first, whose time is divided by the fast one's."""
    ran: list[str] = []
    monkeypatch.setattr(sab_speed, "sab_autograd", lambda model, x: ran.append("autograd") or model(x))
    monkeypatch.setattr(
        sab_speed, "time_ratio", lambda slow, fast, most: (slow(), ran.append("then"), fast(), most)
    )
    assert sab_speed.times(4, 8, 2, 1)[-1] == 12
    assert ran == ["autograd", "then"]


def test_a_peak_is_what_a_step_adds_at_its_fullest(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 64 * 2**20

    def step(engine: str, *given: object) -> None:
        torch.ones(size, dtype=torch.uint8)  # gone when the step is over

    monkeypatch.setattr(sab_speed, "train_step", step)
    assert 0.9 * size < sab_speed.peak("fast", 4, 8, 2, 1) < 1.5 * size


def test_sab_speed_counts_and_compares() -> None:
    assert sab_speed.times(4, 8, 2, 1).mean > 0
    assert sab_speed.peak("fast", 4, 8, 2, 1) >= 0
    bound = sab_speed.arithmetic(delay=1, hidden=8, batch=2, k_att=2)
    # 21 steps, 10 memories; memories before each step: 0 0 1 1 2 2 ... 9 9 10
    assert bound["flops"] == 6 * 2 * 64 * (5 * 21 + 10)
    assert bound["pairs"] == 2 * 8 * (2 * 45 + 10)
    assert bound["seconds"] > 0
