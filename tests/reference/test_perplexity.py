"""Perplexity against a sum written out, and models whose answer is known."""

import math

import pytest
import torch
from torch import nn

from reference.measure.perplexity import perplexity


class Known(nn.Module):
    """Segment model of four tokens that predicts the token carried in its memory, `sure` of it."""

    segment = 3

    def __init__(self, sure: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(sure))
        self.modes = []

    def initial_memory(self, batch):
        return torch.zeros(batch, dtype=torch.int64)

    def step(self, tokens_BL, memory):
        self.modes.append((self.training, torch.is_grad_enabled()))
        guess = torch.cat([memory[:, None], tokens_BL[:, :-1]], dim=1)
        return self.scale * nn.functional.one_hot(guess, 4).float(), tokens_BL[:, -1]


class Task:
    def __init__(self, tokens):
        self.tokens = {"test": tokens, "validation": tokens[:1]}

    def split(self, name):
        return self.tokens[name]


def judge(model, task, **more):
    return perplexity(model=model, task=task, generator=torch.Generator(), **more)


def test_no_knowledge_is_the_size_of_the_vocabulary():
    tokens = torch.randint(4, (7, 8), generator=torch.Generator().manual_seed(0))
    found = judge(Known(0.0), Task(tokens))
    assert found["perplexity"] == pytest.approx(4.0)
    assert found["nats_by_segment"] == pytest.approx([math.log(4)] * 3)


def test_memory_crosses_segments_and_batches_do_not_matter():
    tokens = torch.tensor([[0, 0, 0, 0, 0, 0, 0, 2], [1, 1, 1, 1, 1, 1, 1, 1]])
    model = Known(3.0)
    hit, miss = (math.log(math.exp(3) + 3) - x for x in (3.0, 0.0))
    found = judge(model, Task(tokens))
    # The first sequence misses at its last token, the second at its first, nothing else: memory was carried.
    assert found["nats"] == pytest.approx((14 * hit + 2 * miss) / 16)
    assert found["perplexity"] == pytest.approx(math.exp((14 * hit + 2 * miss) / 16))
    by_segment = [(5 * hit + miss) / 6, hit, (3 * hit + miss) / 4]
    assert found["nats_by_segment"] == pytest.approx(by_segment)
    one_by_one = judge(model, Task(tokens), batch=1)
    assert one_by_one["nats"] == pytest.approx(found["nats"])
    assert one_by_one["nats_by_segment"] == pytest.approx(by_segment)
    for first in ({"split": "validation"}, {"limit": 1}):
        assert judge(model, Task(tokens), **first)["nats"] == pytest.approx((7 * hit + miss) / 8)


def test_evaluation_mode_without_gradient_and_back():
    model = Known(1.0).train()
    judge(model, Task(torch.zeros(1, 4, dtype=torch.int64)))
    assert set(model.modes) == {(False, False)} and model.training
