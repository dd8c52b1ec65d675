"""A model that tensor-parallel ranks have cut: its parameters are DTensors, as those of a module that parallelize_module went over."""
from __future__ import annotations

from functools import partial
from typing import Callable

import torch
from torch.distributed.device_mesh import DeviceMesh

from .driver import Configuration
from .model import Graph, LinearModel

try:
    from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
except ImportError:  # PyTorch 2.4 has it here alone
    from torch.distributed._tensor import DTensor, Partial, Placement, Replicate, Shard


def spread_gradients(configuration: Configuration, mesh: DeviceMesh) -> dict[int, Callable[[torch.Tensor], torch.Tensor]]:
    """By parameter, what autograd of a parallelized module hands on: a part that this rank has alone, a term of a sum, or the same as the others."""
    def of(placement: Placement, gradient: torch.Tensor) -> torch.Tensor:
        return DTensor.from_local(gradient, mesh, [placement], run_check=False)
    plain = configuration.config.get("plain") or []
    return {p: partial(of, Shard(0) if parameter.part else Partial() if parameter.summed_over else Replicate())
            for p, parameter in enumerate(configuration.parameters) if parameter.name not in plain}


class ParallelizedModel(LinearModel):
    def __init__(self, configuration: Configuration, device: torch.device | str, tensor_parallel: DeviceMesh | None = None) -> None:
        self.tensor_parallel = tensor_parallel
        self.spread = {} if tensor_parallel is None else spread_gradients(configuration, tensor_parallel)
        self.placements = {p: Shard(0) if configuration.parameters[p].part else Replicate() for p in self.spread}
        super().__init__(configuration, device)

    def placed(self, p: int, weights: torch.Tensor) -> torch.Tensor:
        return DTensor.from_local(weights, self.tensor_parallel, [self.placements[p]], run_check=False) if p in self.placements else weights

    def forward(self, graph: Graph) -> torch.Tensor:
        graph.spread = self.spread
        return super().forward(graph)
