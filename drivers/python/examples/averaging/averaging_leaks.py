"""The same wrapper with a mistake that nothing else shows: the loss still falls."""
from __future__ import annotations

import torch
from averaging import AveragingOptimizer
from averaging_driver import AveragingDriver


class LeakingOptimizer(AveragingOptimizer):
    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()
        self.seen += 1
        if self.at_boundary():
            self.average_over_ranks()  # too early: the last micro-batch is not in the sums yet, and stays on its rank
        self.add_up()


class LeakingDriver(AveragingDriver):
    wrapper = LeakingOptimizer
