"""Training loops as people write them, whole and broken, and the state of a training as bytes: what tests of `observe` have in common."""
from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import numpy
import torch

MICRO_BATCHES = 2
CRITERION = torch.nn.CrossEntropyLoss()


def network(seed: int = 0) -> torch.nn.Sequential:
    """Every random state is the same after it."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 8))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Drawn from the random state, as an augmentation is."""
    return torch.randn(4, 16), torch.randint(0, 8, (4,))


def window(model: Any, optimizer: Any, block: Callable[[int], Any] = lambda i: contextlib.nullcontext(), count: int = MICRO_BATCHES,
           between: Callable[[int], None] = lambda i: None) -> None:
    """`between` is called behind each micro-batch."""
    for i in range(count):
        inputs, labels = batch()
        with block(i):
            (CRITERION(model(inputs), labels) / count).backward()
        between(i)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def contributions(ledger: Any) -> dict[tuple[int, int], tuple[float, float]]:
    """What is wrong: weights expected and observed, by rank and micro-batch, of the first finding."""
    return {(c.rank, c.micro_batch): (c.expected, c.observed) for c in ledger.findings[0].contributions} if ledger.findings else {}


def state_of(*things: Any) -> Any:
    """Of state_dicts, gradients, and every random state, in a form that is equal only if all bits are."""
    return as_bytes([[thing.state_dict() for thing in things], [p.grad for thing in things if isinstance(thing, torch.nn.Module) for p in thing.parameters()],
                     torch.get_rng_state(), random.getstate(), [str(part) for part in numpy.random.get_state()]])


def as_bytes(thing: Any) -> Any:
    if isinstance(thing, torch.Tensor):
        own = thing.to_local() if hasattr(thing, "to_local") else thing
        return str(own.dtype), tuple(own.shape), own.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    if isinstance(thing, dict):
        return tuple((str(key), as_bytes(value)) for key, value in thing.items())
    if isinstance(thing, (list, tuple)):
        return tuple(as_bytes(each) for each in thing)
    return repr(thing) if isinstance(thing, (int, float, str, bool, type(None))) else type(thing).__name__
