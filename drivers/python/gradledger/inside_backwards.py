"""Optimizers that run inside backwards, one for each parameter, as loops have them to save the memory of gradients."""
from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

import torch

from . import optimizers
from .driver import Buffer, Configuration


class InsideBackwards:
    """What they are given, and how many ran since the last call of `take`."""

    def __init__(self, of: Mapping[torch.Tensor, torch.optim.Optimizer], names: Mapping[torch.Tensor, str], pieces: optimizers.Pieces) -> None:
        self.of, self.names, self.pieces = of, names, pieces
        self.applied = [optimizers.Applied(optimizer, pieces, name=f"{names[parameter]}.grad in its hook") for parameter, optimizer in of.items()]

    @property
    def steps(self) -> int:
        return sum(applied.steps for applied in self.applied)

    def take(self) -> tuple[int, list[Buffer]]:
        return self.steps, [buffer for applied in self.applied for buffer in applied.take()[1]]

    def moments(self) -> Iterator[Buffer]:
        for optimizer in self.of.values():
            yield from optimizers.moments(optimizer, self.names, self.pieces)

    def state_dict(self) -> list[dict[str, Any]]:
        return [optimizer.state_dict() for optimizer in self.of.values()]

    def load_state_dict(self, state: Sequence[dict[str, Any]]) -> None:
        for optimizer, saved in zip(self.of.values(), state, strict=True):
            optimizer.load_state_dict(saved)


def in_hooks(configuration: Configuration, trained: Mapping[int, torch.Tensor], names: Mapping[torch.Tensor, str], pieces: optimizers.Pieces) -> InsideBackwards:
    """torchtune's way: as soon as a parameter has its gradient a hook steps it, and the gradient is gone."""
    of = {parameter: optimizers.make(configuration, {p: parameter}) for p, parameter in trained.items()}

    def step(parameter: torch.Tensor) -> None:
        of[parameter].step()
        of[parameter].zero_grad()

    for parameter in of:
        parameter.register_post_accumulate_grad_hook(step)
    return InsideBackwards(of, names, pieces)
