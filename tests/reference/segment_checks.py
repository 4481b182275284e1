"""What the tests of segment models share: leaks, errors and gradients."""

import itertools

import torch
from torch import nn

SHAPE = {"vocab": 7, "width": 12, "heads": 3, "head_width": 4, "feed_forward": 10, "segment": 5}


def run(model, tokens, segments=None):
    """Logits of every segment in a row, and the memory after the last one."""
    memory = model.initial_memory(len(tokens))
    logits = []
    for segment in tokens.split(model.segment, dim=1)[:segments]:
        out, memory = model.step(segment, memory)
        logits.append(out)
    return torch.cat(logits, dim=1), memory


def leaks(model, length=13):
    """Positions n whose logits change when a token at or after n changes; must be empty."""
    model.eval()
    tokens = torch.randint(7, (2, length))
    with torch.no_grad():
        before = run(model, tokens)[0]
        found = []
        for n in range(length):
            changed = tokens.clone()
            changed[:, n:] = (changed[:, n:] + 1 + torch.randint(6, changed[:, n:].shape)) % 7
            if not torch.equal(run(model, changed)[0][:, : n + 1], before[:, : n + 1]):
                found.append(n)
    return found


def error(one, other):
    """RMS of the difference over RMS of the second."""
    return ((one - other).norm() / other.norm().clamp_min(1e-300)).item()


def gradients(model: nn.Module, loss=None):
    """Gradients by name; zeros where there is none."""
    if loss is not None:
        model.zero_grad()
        loss.backward()
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


def worst(one, other):
    """The name and size of the largest error between two mappings of tensors."""
    assert one.keys() == other.keys()
    return max(((error(one[n], other[n]), n) for n in one if one[n].numel()), default=(0.0, ""))


def scalar(tensors):
    """A scalar that weighs every entry of every tensor differently."""
    total = 0.0
    for k, tensor in enumerate(itertools.chain(tensors)):
        if tensor.is_floating_point():
            weights = torch.linspace(0.5, 1.5, tensor.numel(), dtype=tensor.dtype).view(tensor.shape)
            total = total + (k + 1) * (tensor * weights).sin().sum()
    return total
