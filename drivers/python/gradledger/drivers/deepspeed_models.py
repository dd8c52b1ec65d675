"""Models as DeepSpeed asks for them: cut by tensor-parallel ranks, with experts on some ranks, and with several outputs."""
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
        self.passes = [parameter.hooked_outputs for parameter in configuration.parameters]
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

    # ---- several outputs

    def forward(self, graph: Graph | None = None) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Each output is made from the next one and from terms of its own. Terms are made in the order of one chain, as autograd goes by that."""
        graph = graph or self.graph
        if all(outputs == 1 for outputs in self.passes):
            return super().forward(graph)
        if graph.phases > 1:
            raise Refused("phases of a backward beside hooked_outputs")
        chains = {number: self.begin(graph) for number in range(1, max(1, *self.passes) + 1)}
        for term in reversed(self.terms(graph)):
            if number := self.passes[term.parameter]:
                chains[number] = self.chain(chains[number], [term], graph)
        outputs: list[torch.Tensor] = []
        for number in reversed(chains):
            outputs.append(chains[number] + outputs[-1] if outputs else chains[number])
        return tuple(reversed(outputs))

    def loss_of(self, outputs: torch.Tensor | tuple[torch.Tensor, ...], graph: Graph) -> torch.Tensor:
        """With the terms that go around the outputs, which a loop adds behind the forward."""
        if not isinstance(outputs, tuple):
            return outputs
        terms = self.terms(graph)
        around = [term for term in terms if self.passes[term.parameter] == 0]
        if around != terms[:len(around)]:
            raise Refused("a term around the outputs is made behind the forward, and its gradient is ready before those of the others; the script has another order")
        if not around:
            return outputs[0]
        return self.chain(outputs[0] if len(around) < len(terms) else self.begin(graph), around, graph)


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
