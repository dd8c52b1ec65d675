"""An optimizer wrapper as many projects have one: the gradients of a window's micro-batches are averaged, and then those of the ranks."""
from __future__ import annotations

from typing import Iterable

import torch
import torch.distributed as dist


class AveragingOptimizer:
    """The loop calls backward() for each micro-batch, and step() after the last one of the window.

    Sums are kept in fp32 beside the model, so that param.grad is free again after each backward.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], optimizer: torch.optim.Optimizer, micro_batches: int) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.optimizer = optimizer
        self.micro_batches = micro_batches
        self.seen = 0  # micro-batches of the window
        self.averaged = False  # over the ranks
        self.sums: dict[torch.nn.Parameter, torch.Tensor] = {}

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()
        self.seen += 1
        self.add_up()
        if self.at_boundary():
            self.average_over_ranks()

    def at_boundary(self) -> bool:
        return self.seen == self.micro_batches

    def add_up(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is None:
                continue
            if parameter not in self.sums:
                self.sums[parameter] = torch.zeros_like(parameter, dtype=torch.float32)
            self.sums[parameter].add_(parameter.grad.float(), alpha=1 / self.micro_batches)
            parameter.grad = None

    def average_over_ranks(self) -> None:
        for total in self.sums.values():
            dist.all_reduce(total)
            total.div_(dist.get_world_size())
        self.averaged = True

    def step(self) -> None:
        for parameter, total in self.sums.items():
            parameter.grad = total.to(parameter.dtype)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.sums.clear()
        self.seen, self.averaged = 0, False
