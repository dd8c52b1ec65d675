"""What Megatron-Core is given as a model: one stage of it, or one chunk of a stage, whose gradients are given."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Iterable, Sequence

import torch

from ..driver import Configuration, Refused
from ..model import Graph, Layer, LinearModel, Term, rounded_once

Later = Callable[[], Any]  # what the script says of a micro-batch, once it comes to its backward
HIDDEN = 8  # of what a stage sends to the next one: the first element is the sum so far, and the others are zeros


def attributes_of(configuration: Configuration, p: int) -> set[str]:
    return set((configuration.config.get("parameters") or {}).get(configuration.parameters[p].name, []))


class Stage(LinearModel):
    """What Megatron asks of a model."""
    model_type = None

    def __init__(self, configuration: Configuration, device: torch.device, ends: tuple[bool, bool] = (True, True), chunk: Iterable[str] | None = None) -> None:
        super().__init__(of_chunk(configuration, chunk), device)
        self.pre_process, self.post_process = ends
        of = {p: attributes_of(configuration, p) for p in self.weights}
        self.fused = {p for p in of if "gradient_accumulation_fusion" in of[p]}
        self.twice = {p for p in of if "used_twice" in of[p]}
        self.embeddings = [self.weights[p] for p in of if "shared_embedding" in of[p]]
        self.share_embeddings_and_output_weights = bool(self.embeddings)
        for p in self.fused:
            self.layers[p] = FusedLayer(self.weights[p])
        self.received: torch.Tensor | None = None

    def shape(self, configuration: Configuration, p: int) -> tuple[int, ...]:
        return (1, configuration.parameters[p].numel)  # one dimension would make it a bias, whose weight does not decay

    def shared_embedding_or_output_weight(self) -> torch.Tensor:
        return self.embeddings[0]

    def set_input_tensor(self, tensors: Sequence[torch.Tensor | None] | torch.Tensor) -> None:
        self.received = tensors if isinstance(tensors, torch.Tensor) else tensors[0]

    def forward(self, graph: Graph | Later) -> torch.Tensor:
        """A stage runs forwards of micro-batches whose backwards come later: these run the forward again, as activations that are recomputed do."""
        start = torch.zeros((), requires_grad=True) if self.received is None else self.received.view(-1)[0]
        loss = self.computed(graph, start) if isinstance(graph, Graph) else _ComputedLater.apply(start, self, graph)
        return loss if self.post_process else torch.nn.functional.pad(loss.view(1), (0, HIDDEN - 1)).view(1, 1, HIDDEN)

    def computed(self, graph: Graph, start: torch.Tensor) -> torch.Tensor:
        if any(self.owners[p] not in self.weights for p in graph.uses):
            raise Refused("a backward uses parameters of another chunk than the schedule has come to")
        return super().forward(graph, start)

    def terms(self, graph: Graph) -> list[Term]:
        """Of two uses in one forward each has half of the gradient."""
        return [half for term in super().terms(graph) for half in ([term._replace(share=term.share / 2)] * 2 if term.parameter in self.twice else [term])]


def of_chunk(configuration: Configuration, names: Iterable[str] | None) -> Configuration:
    if names is None:
        return configuration
    return replace(configuration, parameters=tuple(replace(parameter, held=parameter.held and parameter.name in names) for parameter in configuration.parameters))


class _ComputedLater(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, stage: Stage, later: Later) -> torch.Tensor:
        ctx.stage, ctx.later, ctx.start = stage, later, start.detach()
        loss = start.clone()
        for layer in stage.layers:  # hooks of a forward wait for its weights
            loss = layer(loss)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        ready, start = ctx.later(), ctx.start.requires_grad_()
        with torch.enable_grad():
            loss = ctx.stage.computed(ready.graph, start)
            torch.autograd.backward(loss, gradient * ready.factor if ctx.stage.post_process else gradient)
        return start.grad, None, None


class FusedLayer(Layer):
    """A linear layer whose kernel adds to main_grad itself; what autograd is given is not looked at."""

    def forward(self, loss: torch.Tensor, *use: Any) -> torch.Tensor:
        return _FusedTerm.apply(loss, self.weight, *use) if use else loss


class _FusedTerm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, weight: torch.Tensor, given: torch.Tensor, share: float, graph: Graph, place: int, owner: int) -> torch.Tensor:
        ctx.weight, ctx.share, ctx.graph, ctx.owner = weight, share, graph, owner
        return loss + (weight.float() * given.view(weight.shape)).sum() * share

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        weight, given = ctx.weight, ctx.graph.gradients[ctx.owner].to(ctx.weight.device).double().view(ctx.weight.shape)
        weight.main_grad.add_(rounded_once(given * (gradient.double() * ctx.share), weight.main_grad.dtype))
        weight.grad_added_to_main_grad = True
        return gradient, torch.zeros_like(weight), *[None] * 5
