"""The model that fully_shard is given: modules of several parameters, parameters of the root, weights of more than one dimension."""
from __future__ import annotations

from itertools import accumulate, groupby
from typing import Any, Callable, Sequence

import torch
from torch.distributed.device_mesh import DeviceMesh

from ..driver import Configuration, Refused
from ..model import Graph, Layer, Term, used
from ..parallelized import ParallelizedModel

ROOT = -1


class Unit(torch.nn.Module):
    """Parameters that are sharded together: a module that uses them one after the other."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, loss: torch.Tensor, chain: Callable[..., torch.Tensor] | None = None, *what: Any) -> torch.Tensor:
        return loss if chain is None else chain(loss, *what)


class OfTheRoot:
    """In place of a layer: a parameter that the root has itself, in no module below it."""

    def __init__(self, root: torch.nn.Module, name: str) -> None:
        self.root, self.name = root, name

    @property
    def weight(self) -> torch.nn.Parameter:
        return getattr(self.root, self.name)

    def __call__(self, loss: torch.Tensor, *use: Any) -> torch.Tensor:
        return used(self.weight, loss, *use)


class ShardedModel(ParallelizedModel):
    """Modules run by the numbers of their parameters. What begins the graph is no input of a module, so that the input of the first ones requires no gradient, as
    that of a network's first ones does not."""

    def __init__(self, configuration: Configuration, device: torch.device | str, tensor_parallel: DeviceMesh | None = None) -> None:
        self.config = configuration.config
        super().__init__(configuration, device, tensor_parallel)
        self.unit_of = self.units_of(configuration)
        parts = [0 if parameter.part is None else parameter.part.number for parameter in configuration.parameters]
        held = [p if parameter.held else None for p, parameter in enumerate(configuration.parameters)]
        # By the number of a unit. Of a parameter in parts, the rank calls its own.
        self.called: list[torch.nn.Module] = [self.layers[next((p for p in held[first:first + (given.part.count if given.part else 1)] if p is not None), first)]
                                              for first, given in enumerate(configuration.parameters) if parts[first] == 0]
        if self.config.get("units") is not None:
            self.divide(configuration)

    def shape(self, configuration: Configuration, p: int) -> tuple[int, ...]:
        numel, rows = configuration.parameters[p].numel, (configuration.config.get("rows") or {}).get(configuration.parameters[p].name)
        return (numel,) if rows is None else (rows, numel // rows)

    def units_of(self, configuration: Configuration) -> list[int]:
        """Of each parameter. A weight that two layers have can be in no unit of one of them."""
        parameters = configuration.parameters
        entry = list(accumulate(0 if parameter.part and parameter.part.number else 1 for parameter in parameters))
        tied = {number for p, parameter in enumerate(parameters) if parameter.tied_to is not None for number in (p, parameter.tied_to)}
        if (units := self.config.get("units")) is None:
            return [ROOT if p in tied or self.config.get("wrap", "layers") == "root" else entry[p] - 1 for p in range(len(parameters))]
        if tied:
            raise Refused("engine.config.units beside tied parameters; expected engine.config.wrap")
        number = {name: unit for unit, names in enumerate(units) for name in names}
        return [number.get(parameter.name, ROOT) for parameter in parameters]

    def divide(self, configuration: Configuration) -> None:
        """What is nested stays in a module below the root, which PyTorch lists before the root's own parameters."""
        layers, nested = list(self.layers), self.config.get("nested") or []
        del self.layers
        self.called = [Unit([layers[p] for p, unit in enumerate(self.unit_of) if unit == number]) for number in range(len(self.config["units"]))]
        self.units = torch.nn.ModuleList(self.called)
        of_the_root = [p for p, unit in enumerate(self.unit_of) if unit == ROOT]
        self.nested = torch.nn.ModuleList(layers[p] for p in of_the_root if configuration.parameters[p].name in nested)
        for p in of_the_root:
            if configuration.parameters[p].name not in nested and configuration.parameters[p].held:
                self.register_parameter(f"weight{p}", layers[p].weight)
                layers[p] = OfTheRoot(self, f"weight{p}")
        self.layers = layers

    def sharded(self) -> list[torch.nn.Module]:
        """What fully_shard is called with before the root."""
        return [module for number, module in enumerate(self.called) if number in self.unit_of]

    def forward(self, graph: Graph, start: torch.Tensor | None = None) -> torch.Tensor:
        if graph.phases > 1:
            raise Refused("phases of a backward; expected 1")
        loss = self.run(graph, start)
        return loss if loss.requires_grad else graph.begin

    def run(self, graph: Graph, start: torch.Tensor | None = None) -> torch.Tensor:
        """The modules one after the other. Where none is used the loss requires no gradient."""
        graph.spread = self.spread
        graph.begin = self.begin(graph, start)
        loss = torch.zeros((), device=self.device) if start is None else graph.begin
        terms = {term.parameter: term for term in reversed(self.terms(graph))}
        for unit, parameters in self.order(list(terms)):
            loss = self.call(unit, loss, [terms[p] for p in reversed(parameters) if p in terms], graph)
        return loss

    def call(self, unit: int, loss: torch.Tensor, terms: Sequence[Term], graph: Graph) -> torch.Tensor:
        module = None if unit == ROOT else self.called[unit]
        if terms:
            return module(loss, self.chain, terms, graph) if module is not None and self.config.get("units") is not None else self.chain(loss, terms, graph)
        return module(loss) if module is not None and self.config.get("calls_unused_units") else loss

    def order(self, uses: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Neighbours of one module are used in one call of it. A forward in another order than that of the parameters calls what it uses alone."""
        in_order = all(before < after for before, after in zip(uses, uses[1:]))
        out = [(unit, list(parameters)) for unit, parameters in groupby(range(len(self.unit_of)) if in_order else uses, lambda p: self.unit_of[p])]
        if self.config.get("root_parameters_last") and out and out[0][0] == ROOT:
            out.append(out.pop(0))
        return out
