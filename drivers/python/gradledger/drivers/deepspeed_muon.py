"""Muon as far as gradients go: what its momentum takes in is shown, and the gradient stands where the orthogonalized update would."""
from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch

from ..driver import Buffer, Piece, Refused

MODULES = ("muon.original_muon", "muon.muon_optimizer", "stage_1_and_2", "stage3")  # that have its functions by name, in some release
AT_STAGE_3 = ("_apply_distributed_muon_update", "_muon_update_sub_group")
current: Momentum | None = None


class Momentum:
    """Of one engine. Its function is replaced as long as the process lives: only engines with Muon call it."""

    def __init__(self, engine: Any, layout: Any) -> None:
        global current
        current = self
        self.wrapper, self.layout = engine.optimizer, layout
        self.by_group = hasattr(self.wrapper, "params_in_partition")  # stages 1 and 2, whose ranks have whole matrices
        if not self.by_group and not hasattr(self.wrapper, "sub_groups_using_muon"):
            raise Refused(f"Muon in {type(self.wrapper).__name__}; expected stage 1, 2 or 3 with gradients in the model's dtype")
        self.taken: dict[int, list[torch.Tensor]] = {}  # by group, of all its matrices
        self.taking: list[torch.Tensor] | None = None
        self.taken_scale = self.kept_scale = 1.0
        self.waits = hasattr(self.wrapper, "_commit_muon_momentum")  # for a step that updates
        self.wrapper._muon_update_lacks_loss_scale = lambda group: False  # what stands for the update has it
        if self.by_group:
            self.wrapper.get_flat_partition = functools.partial(self.of_group, self.wrapper.get_flat_partition)
        for name in AT_STAGE_3:
            if hasattr(self.wrapper, name):
                setattr(self.wrapper, name, functools.partial(self.of_parts, getattr(self.wrapper, name)))
        replace()

    def of_group(self, own: Any, tensors: list[torch.Tensor], *more: Any, **named: Any) -> Any:
        group = next((g for g, parts in enumerate(self.wrapper.params_in_partition) if parts is tensors), None)
        self.taking = self.taken[group] = []
        self.takes()
        try:
            return own(tensors, *more, **named)
        finally:
            self.taking = None

    def of_parts(self, own: Any, *more: Any, **named: Any) -> Any:
        self.takes()
        return own(*more, **named)

    def takes(self) -> None:
        self.taken_scale = float(self.wrapper.loss_scale)
        if not self.waits:
            self.kept_scale = self.taken_scale

    def commit(self) -> None:
        self.kept_scale = self.taken_scale

    def took(self, gradient: torch.Tensor) -> None:
        if self.taking is not None:
            self.taking.append(gradient.detach().clone())

    # ---- what the rank holds

    def matrices(self, group: int) -> list[Piece]:
        return [piece for parameter in self.wrapper.params_in_partition[group] for piece in self.layout.whole(self.layout.number[id(parameter)])]

    def applied(self) -> Iterator[Buffer]:
        if not self.by_group:  # what went in, whatever scale the step divides by behind it
            scale = self.taken_scale / float(self.wrapper.loss_scale)
            yield from (dataclasses.replace(buffer, scale=scale) for buffer in self.layout.applied())
            return
        for group, gradients in self.taken.items():
            if gradients:
                yield Buffer(f"muon_update[{group}].grad", "applied", gradients, self.matrices(group), at_end=False, scale=self.taken_scale)

    def state(self) -> Iterator[Buffer]:
        for group, (_, tensors, pieces) in enumerate(self.layout.masters):
            for tensor in tensors:
                if (held := self.layout.base.state.get(tensor, {}).get("momentum_buffer")) is not None:
                    yield Buffer(f"momentum_buffer[{group}]", "first moment", held, self.matrices(group) if self.by_group else pieces, scale=self.kept_scale)


def replace() -> None:
    """Once for the process. Newton and Schulz's iteration is no linear map, so no gradient could be told from another behind it."""
    modules = [module for name in MODULES if (module := sys.modules.get(f"deepspeed.runtime.zero.{name}")) is not None]
    original = modules[0]
    if getattr(original.muon_update, "of_gradledger", False):
        return
    own = getattr(original.muon_update, "_torchdynamo_orig_callable", original.muon_update)  # as it is before it is compiled
    for name in vars(original):
        if name.startswith("zeropower_via"):
            setattr(original, name, lambda gradient, *_, **__: gradient)

    def momentum_alone(grad: torch.Tensor, momentum: torch.Tensor, *more: Any, **named: Any) -> torch.Tensor:
        current.took(grad)
        own(grad.clone(), momentum, *more, **named)
        return grad.clone()

    momentum_alone.of_gradledger = True
    for module in modules:
        if hasattr(module, "muon_update"):
            module.muon_update = momentum_alone
