"""Every test starts from the same state: one thread, deterministic kernels, a fixed seed."""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start, too

import pytest
import torch

torch.use_deterministic_algorithms(True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background runner hands down SIG_IGN


@pytest.fixture(autouse=True)
def same_start() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
