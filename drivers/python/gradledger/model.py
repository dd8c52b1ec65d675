"""A model whose gradients are given: the loss is the sum of weight times gradient, so that a real backward deposits what the scenario says."""
from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import torch
from torch.utils.checkpoint import checkpoint

from .driver import Backward, Configuration, Forward, Refused, local
from .streams.autograd import current_stream, node_on, side_stream


class Graph:
    """What one forward is called with: gradients by parameter, and in which order they shall become ready. No dataclass: wrappers take those apart."""

    def __init__(self, uses: Sequence[int], gradients: Mapping[int, torch.Tensor], phases: int = 1) -> None:
        self.uses, self.gradients, self.phases = tuple(uses), gradients, phases
        self.spread: Mapping[int, Callable[[torch.Tensor], torch.Tensor]] = {}  # by parameter: of what this rank has of a gradient, the tensor that ranks have together
        self.raises_after: int | None = None  # set before the backward
        self.begin: torch.Tensor | None = None  # what the first use takes whose input requires no gradient
        self.inside: Callable[[torch.Tensor | tuple[torch.Tensor, ...]], None] | None = None  # called with the outputs, before the forward returns them

    def before(self, event: Backward) -> None:
        """Another backward of the same graph is another contribution: it has gradients of its own, in the order of the graph."""
        if set(event.uses) != set(self.uses):
            raise Refused("a later backward of the same forward uses other parameters than the forward did, whose graph autograd goes through")
        if tuple(event.uses) != self.uses:
            raise Refused("a later backward of the same forward has another order than the forward's graph, which autograd goes through")
        self.raises_after = event.raises_after
        self.gradients = event.gradients or self.gradients

    @staticmethod
    def of(event: Forward, sums_losses: bool = False) -> Graph:
        phases = event.phases if isinstance(event, Backward) else 1
        if isinstance(event, Backward) and event.summed != 1 and not sums_losses:
            raise Refused("a backward of the sum of several losses, which this driver does not run; expected sum_of 1")
        return Graph(event.uses, event.gradients, phases)


class Term(NamedTuple):
    """One use of one parameter in a forward."""
    place: int  # in the order in which gradients become ready
    parameter: int
    share: float  # of the gradient of its weight


class Layer(torch.nn.Module):
    """One use of one parameter: a module of its own, so that wrappers can treat each differently."""

    def __init__(self, weight: torch.nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, loss: torch.Tensor, *use: Any) -> torch.Tensor:
        return used(self.weight, loss, *use) if use else loss


def used(weight: torch.Tensor, loss: torch.Tensor, given: torch.Tensor, share: float, graph: Graph, place: int, owner: int) -> torch.Tensor:
    if not loss.requires_grad and graph.begin is not None:
        loss = graph.begin
    return _Term.apply(loss, weight, given.view(local(weight).shape), share, graph, place, owner)


class LinearModel(torch.nn.Module):
    """Its layers form a chain, as those of a network do: what is used first in the forward has its gradient last."""

    def __init__(self, configuration: Configuration, device: torch.device | str = "cpu") -> None:
        super().__init__()
        self.weights: dict[int, torch.nn.Parameter] = {}  # by number, without tied ones
        for p, parameter in enumerate(configuration.parameters):
            if parameter.tied_to is None and parameter.held:
                first = parameter.weights.to(device=device, dtype=configuration.model_dtype, copy=True).view(self.shape(configuration, p))
                self.weights[p] = torch.nn.Parameter(self.placed(p, first), requires_grad=parameter.trainable)
        self.owners = [p if parameter.tied_to is None else parameter.tied_to for p, parameter in enumerate(configuration.parameters)]
        self.layers = torch.nn.ModuleList(Layer(self.weights[owner]) if owner in self.weights else torch.nn.Identity() for owner in self.owners)
        self.device = torch.device(device)
        self.beside = [parameter.on_side_stream for parameter in configuration.parameters]
        self.passes = [parameter.hooked_outputs for parameter in configuration.parameters]

    def placed(self, p: int, weights: torch.Tensor) -> torch.Tensor:
        """What this rank has of a parameter, as the tensor that the wrapper is given."""
        return weights

    def shape(self, configuration: Configuration, p: int) -> tuple[int, ...]:
        return (configuration.parameters[p].numel,)

    def forward(self, graph: Graph, start: torch.Tensor | None = None) -> torch.Tensor | tuple[torch.Tensor, ...]:
        outputs = self.outputs(graph, start)
        if graph.inside is not None:
            graph.inside(outputs)
        return outputs

    def outputs(self, graph: Graph, start: torch.Tensor | None = None) -> torch.Tensor | tuple[torch.Tensor, ...]:
        if any(outputs != 1 for outputs in self.passes):
            return self.several_outputs(graph)
        loss, terms = self.begin(graph, start), self.terms(graph)
        per_phase = math.ceil(len(terms) / graph.phases) or 1
        for phase in reversed([terms[i:i + per_phase] for i in range(0, len(terms), per_phase)]):
            loss = checkpoint(self.chain, loss, phase, graph, use_reentrant=True) if graph.phases > 1 else self.chain(loss, phase, graph)
        return loss

    def several_outputs(self, graph: Graph) -> tuple[torch.Tensor, ...]:
        """Each output is made from the next one and from terms of its own. Terms are made in the order of one chain, as autograd goes by that."""
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

    def begin(self, graph: Graph, start: torch.Tensor | None = None) -> torch.Tensor:
        return _Start.apply(torch.zeros((), device=self.device, requires_grad=True) if start is None else start, graph)

    def terms(self, graph: Graph) -> list[Term]:
        """In the order in which their gradients become ready."""
        order = self.places(graph.uses)
        owners = [self.owners[p] for p in order]
        left = {owner: shares(owners.count(owner)) for owner in owners}
        return [Term(place, p, left[owner].pop()) for place, (p, owner) in enumerate(zip(order, owners))]

    def chain(self, loss: torch.Tensor, terms: Sequence[Term], graph: Graph) -> torch.Tensor:
        for place, p, share in reversed(terms):
            given = graph.gradients.get(self.owners[p])
            if given is None:
                raise Refused(f"parameter {p} is used and has no gradient in the message")
            with side_stream() if self.beside[p] else nullcontext():
                loss = self.layers[p](loss, given.to(self.device), share, graph, place, self.owners[p])
        return loss

    def places(self, uses: Sequence[int]) -> list[int]:
        """Tied uses that are not named come first, since the gradient is ready with the last of all."""
        named, used = set(uses), {self.owners[p] for p in uses}
        return [p for p in reversed(range(len(self.owners))) if p not in named and self.owners[p] != p and self.owners[p] in used] + list(uses)


class _Start(torch.autograd.Function):
    """The last node of the backward: where an exception comes from that comes after all gradients."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, graph: Graph) -> torch.Tensor:
        ctx.graph, ctx.stream = graph, current_stream()
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        with node_on(ctx.stream, is_last=True):
            if ctx.graph.raises_after is not None:
                raise_in_backward()
            return gradient, None


class _Term(torch.autograd.Function):
    """loss + sum(weight * given), whose gradient is computed in fp64 and rounded once."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, weight: torch.Tensor, given: torch.Tensor, share: float, graph: Graph, place: int, owner: int) -> torch.Tensor:
        ctx.owner, ctx.share, ctx.graph, ctx.place, ctx.stream = owner, share, graph, place, current_stream()
        mine = local(weight)
        ctx.dtype, ctx.shape = weight.dtype, mine.shape
        return loss + (mine.float() * given).sum() * share

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        with node_on(ctx.stream):
            if ctx.graph.raises_after == ctx.place:
                raise_in_backward()
            if not ctx.needs_input_grad[1]:
                return (gradient, *[None] * 6)
            given = ctx.graph.gradients[ctx.owner].to(gradient.device).view(ctx.shape)
            mine = rounded_once(given.double() * (gradient.double() * ctx.share), ctx.dtype)
            return gradient, ctx.graph.spread[ctx.owner](mine) if ctx.owner in ctx.graph.spread else mine, *[None] * 5


def raise_in_backward() -> None:
    raise RuntimeError("raised by the script in a backward")


def shares(uses: int) -> list[float]:
    """Parts of a gradient that several uses have: powers of two, as equal as these can be, so that their sum is the gradient itself."""
    size = 1 << (uses - 1).bit_length()
    return [2 / size] * (size - uses) + [1 / size] * (2 * uses - size)


def rounded_once(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """From fp64, to the nearest and ties to even. torch goes to 16 bits by way of fp32 and so rounds twice: fp32 is rounded to odd here, which loses no tie."""
    near = exact.float()
    if dtype in (torch.float32, torch.float64):
        return exact.to(dtype)
    back = near.double()
    inexact = (back != exact) & ~exact.isnan()  # whether any is is not asked: a device's host would wait for the answer
    bits = near.view(torch.int32)
    truncated = bits - (back.abs() > exact.abs()).int()
    return torch.where(inexact, truncated | 1, bits).view(torch.float32).to(dtype)
