"""What gradledger has to know of AveragingOptimizer: how it is made, what its calls are, and what it holds."""
from __future__ import annotations

from typing import Iterable

from averaging import AveragingOptimizer
from gradledger import optimizers
from gradledger.driver import Backward, Buffer, Configuration, Driver
from gradledger.model import Graph, LinearModel


class AveragingDriver(Driver):
    name = "averaging"
    frameworks = ("external",)  # what scenarios have as engine.framework
    applied_gradients = True  # buffers() shows what each step applies,
    accumulators = True  # the sums before that,
    weights = True  # and the weights after it
    wrapper = AveragingOptimizer

    def configure(self, configuration: Configuration) -> list[str]:
        """A new engine. The model computes nothing of use: its gradients are those that the scenario gives each backward."""
        self.model = LinearModel(configuration, self.device)
        self.numbers = {self.model.weights[p]: p for p in configuration.trainable}
        self.names = {self.model.weights[p]: configuration.parameters[p].name for p in configuration.trainable}
        base = optimizers.make(configuration, {p: self.model.weights[p] for p in configuration.trainable})
        self.wrapped = self.wrapper(self.model.parameters(), base, configuration.config["micro_batches"])
        self.applied = optimizers.Applied(base, self.pieces)  # looks at the gradients when the base optimizer begins its step
        return []

    def backward(self, event: Backward) -> None:
        self.wrapped.backward(self.model(Graph.of(event)))

    def step(self, past_scaler: bool = False) -> None:
        self.wrapped.step()

    def facts(self) -> dict[str, object]:
        """Of the last step."""
        return {"updated": 1}

    def pieces(self, weight) -> list[tuple[int, int, int]]:
        """Which elements a tensor holds: number of the parameter, the first element, how many."""
        return [(self.numbers[weight], 0, weight.numel())]

    def buffers(self, after: str) -> Iterable[Buffer]:
        role = "reduced" if self.wrapped.averaged else "local"
        for weight, total in self.wrapped.sums.items():
            yield Buffer(f"sums[{self.names[weight]}]", role, total, self.pieces(weight))
        _, applied = self.applied.take()
        yield from applied
        if after == "step":
            for weight, name in self.names.items():
                yield Buffer(name, "parameter", weight, self.pieces(weight))
