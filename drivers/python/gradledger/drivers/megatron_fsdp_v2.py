"""Megatron-FSDP, the second version: megatron_fsdp.experimental of the package megatron-fsdp, from 0.6.0 on."""
from __future__ import annotations

from typing import Any, Iterator, Mapping

import torch
from megatron_fsdp import MixedPrecisionPolicy, experimental

from .. import optimizers
from ..driver import Buffer, Driver, Piece, Refused, local
from ..model import Graph
from .fsdp2_model import ShardedModel
from .megatron_fsdp_loop import OfMegatronFsdp, dtypes_of
from .megatron_fsdp_setup import parameters_of, second_mesh


class MegatronFsdpV2(OfMegatronFsdp):
    """Modules are sharded one by one. A module that lacks a gradient is not reduced, and what it has waits in its gathered parameters."""

    name = "megatron-fsdp-v2"
    frameworks = ("megatron-fsdp-v2",)
    config_keys = frozenset({"mixed_precision", "wrap", "units", "mesh", "calls_unused_units"})
    save, restore = Driver.save, Driver.restore  # are not offered: the model knows no checkpoint of it

    def wrap(self, model: ShardedModel) -> torch.nn.Module:
        mesh, placements = second_mesh(self.shape, self.world_size, self.device.type)
        policy = MixedPrecisionPolicy(**dtypes_of(self.configuration))
        for module in [*model.sharded(), model]:
            experimental.fully_shard(module, mesh, placements, policy)
        numbers = {weight: p for p, weight in model.weights.items()}
        self.places: dict[int, tuple[Any, int, torch.Tensor, torch.Tensor]] = {}  # group, place in it, sharded and gathered
        self.said_last: dict[Any, bool] = {}  # of a group that was reduced: whether the last time was behind a micro-batch that is the last
        self.is_applied = False
        for module in model.modules():
            for group in getattr(module, "parameter_groups", ()):
                for place, (_, sharded, gathered) in enumerate(zip(*parameters_of(group))):
                    self.places[numbers[gathered]] = (group, place, sharded, gathered)
                self.note_reductions(group)
        return model

    def note_reductions(self, group: Any) -> None:
        reduce = group.reduce_partial_gradients

        def reduce_and_note(*arguments: Any, **options: Any) -> None:
            reduce(*arguments, **options)
            self.said_last[group] = not self.blocks
        group.reduce_partial_gradients = reduce_and_note

    def trained(self) -> Mapping[int, torch.Tensor]:
        return {p: self.places[p][2] for p in self.configuration.trainable}

    def make_optimizer(self) -> torch.optim.Optimizer:
        out = super().make_optimizer()
        experimental.fully_shard_optimizer(out)
        return out

    def make_applied(self) -> optimizers.Applied:
        return optimizers.Applied(self.optimizer, self.pieces, of=averaged)

    def piece(self, number: int, tensor: torch.Tensor) -> Piece:
        group, place, _, _ = self.places[number]
        owned = group.model_weight._get_owned_range(place)
        return (number, owned.tensor_relative_offset if owned is not None else 0, local(tensor).numel())

    # ---- events

    def loss(self, graph: Graph) -> torch.Tensor:
        loss = self.module(graph)
        return loss if loss.requires_grad else graph.begin

    def enter_no_sync(self) -> None:
        if self.blocks:
            raise Refused("no_sync stands for microbatch(model, is_last=False), and one inside another says the same")
        self.enter_block(experimental.microbatch(self.module, is_last=False))

    def exit_no_sync(self, raising: bool = False) -> None:
        self.exit_block(raising)

    def step(self, past_scaler: bool = False) -> None:
        super().step(past_scaler)
        self.is_applied = True

    def zero_grad(self, of: str = "optimizer", set_to_none: bool = True) -> None:
        super().zero_grad(of, set_to_none)
        self.is_applied = False

    # ---- what the rank holds

    def accumulated(self) -> Iterator[Buffer]:
        """main_grad is whatever the memory held until its first reduction."""
        members: dict[Any, list[int]] = {}
        for p in self.configuration.trainable:
            group, _, sharded, gathered = self.places[p]
            members.setdefault(group, []).append(p)
            name = self.configuration.parameters[p].name
            if sharded.grad is not None:
                yield Buffer(f"{name}.grad", "scratch", sharded.grad, self.pieces(sharded))
            if gathered.grad is not None:
                yield Buffer(f"{name}.unsharded.grad", "scratch", gathered.grad, [(p, 0, gathered.grad.numel())])
        for group, numbers in members.items():
            if group in self.said_last:
                numbers.sort(key=lambda p: self.places[p][1])
                yield Buffer(f"main_grad[{self.configuration.parameters[numbers[0]].name}]", self.role(group, numbers),
                             [group.main_grad.get_local_tensor(self.places[p][1]) for p in numbers], [self.pieces(self.places[p][2])[0] for p in numbers])

    def role(self, group: Any, numbers: list[int]) -> str:
        """It is the average of the window so far, but for what waits in gathered parameters."""
        installed = any(self.places[p][2].grad is not None for p in numbers)
        waits = any(self.places[p][3].grad is not None for p in numbers)
        return "reduced" if installed and self.said_last[group] and not waits and not self.is_applied else "scratch"

    def weights_of_rank(self) -> Iterator[Buffer]:
        for sharded, name in self.names.items():
            p = self.pieces(sharded)[0][0]
            group, place, _, _ = self.places[p]
            yield Buffer(name, "parameter", group.model_weight.get_local_tensor(place), self.pieces(sharded))
            if group.main_weight is not group.model_weight:
                yield Buffer(f"{name}.main_weight", "master parameter", sharded, self.pieces(sharded))


def averaged(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient that replicas have not averaged is averaged in the optimizer's arithmetic, by DTensor: here a copy of it is."""
    placements = getattr(gradient, "placements", ())
    if any(placement.is_partial() for placement in placements):
        from torch.distributed.tensor import Replicate
        gradient = gradient.redistribute(placements=[Replicate() if placement.is_partial() else placement for placement in placements])
    return local(gradient)
