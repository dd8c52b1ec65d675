"""Models as DeepSpeed asks for them: cut by tensor-parallel ranks, and with experts on some ranks."""
from __future__ import annotations

import sys
import types

import torch
import torch.distributed as dist

from ..driver import Configuration, Refused
from ..groups import Groups
from ..model import Graph, Layer, LinearModel
from . import deepspeed_setup as setup


class HeldModel(LinearModel):
    """Stage 3 numbers modules, and compares the numbers between ranks: what this rank has not got is no module here."""

    def __init__(self, configuration: Configuration, device: torch.device) -> None:
        self.of_matrices = setup.uses_muon(configuration)
        super().__init__(configuration, device)
        self.graph: Graph | None = None  # of a forward without an argument
        if any(parameter.expert is not None for parameter in configuration.parameters):
            self.mark_experts(configuration)
        if all(owner in self.weights for owner in self.owners):
            return
        layers = list(self.layers)
        del self.layers
        self.layers, self.held = layers, torch.nn.ModuleList(layer for layer in layers if isinstance(layer, Layer))

    def shape(self, configuration: Configuration, p: int) -> tuple[int, ...]:
        return (1, configuration.parameters[p].numel) if self.of_matrices else super().shape(configuration, p)

    def mark_experts(self, configuration: Configuration) -> None:
        experts = Experts(configuration)
        for p, weight in self.weights.items():
            if configuration.parameters[p].expert is not None:
                weight.allreduce, weight.group_name = False, experts.expert_group_name
        self.experts = experts

    def forward(self, graph: Graph | None = None) -> torch.Tensor | tuple[torch.Tensor, ...]:
        return super().forward(graph or self.graph)


class Experts(sys.modules["deepspeed.moe.layer"].MoE):
    """What DeepSpeed looks for in a model before it takes a parameter for an expert's. It makes the groups, and computes nothing."""

    def __init__(self, configuration: Configuration) -> None:
        torch.nn.Module.__init__(self)
        self.ep_size = configuration.engine.get("expert_parallel_size", 1)
        self.num_experts = 1 + max(parameter.expert for parameter in configuration.parameters if parameter.expert is not None)
        self.expert_group_name, self.enable_expert_tensor_parallelism = f"ep_size_{self.ep_size}", False
        self.deepspeed_moe = types.SimpleNamespace(_set_ep_group=lambda group: None)


class ModelParallelUnit:
    """What DeepSpeed asks of a model that is cut, as Megatron's mpu answers it."""

    def __init__(self, groups: Groups) -> None:
        for of, name in (("model", "tp"), ("data", "dp_cp")):
            members, group = groups.of(name), groups.process_group(name) or dist.group.WORLD
            if len(members) == 1:
                raise Refused(f"a group {name!r} of one rank; expected two or more {of}-parallel ranks")
            for question, answer in (("group", group), ("group_ranks", list(members)), ("rank", members.index(groups.rank)), ("world_size", len(members))):
                setattr(self, f"get_{of}_parallel_{question}", lambda answer=answer: answer)
