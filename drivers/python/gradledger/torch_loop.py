"""A PyTorch training loop, event by event: what the drivers of torch's own wrappers have in common."""
from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Iterable, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist

from . import optimizers
from .driver import Backward, Buffer, Configuration, Driver, Forward, Parameter, Piece, Refused
from .groups import Groups
from .inside_backwards import InsideBackwards
from .model import Graph, LinearModel

SCALER_KEYS = frozenset({"init_scale", "growth_factor", "backoff_factor", "growth_interval"})


class TorchLoop(Driver):
    """The loop owns forward, backward, step, zero_grad and a GradScaler. A wrapper overrides `wrap` and says where its gradients are."""

    applied_gradients = True
    accumulators = True
    weights = True
    sums_losses = True
    preload: tuple[str, ...] = ("torch._dynamo",)  # any optimizer imports it
    config_keys: frozenset[str] = frozenset()  # of engine.config, besides grad_scaler
    lays_out_ranks = False  # it knows tensor-parallel ranks
    scaler_class: type[torch.amp.GradScaler] = torch.amp.GradScaler

    def configure(self, configuration: Configuration) -> list[str]:
        self.close()
        self.check(configuration)
        self.groups = Groups(configuration.groups, self.rank, self.world_size)
        self.configuration = replace(configuration, parameters=tuple(replace(parameter, held=self.holds(parameter)) for parameter in configuration.parameters))
        self.saved: dict[str, Any] | None = None
        self.start()
        return self.notes

    def holds(self, parameter: Parameter) -> bool:
        return parameter.part is None or self.groups.of(parameter.part.over).index(self.rank) == parameter.part.number

    def start(self) -> None:
        """What a process makes anew, whether it trains from the beginning or from a checkpoint."""
        self.notes: list[str] = []
        self.model = self.make_model()
        self.module = self.wrap(self.model)
        self.pieces_of: dict[torch.Tensor, list[Piece]] = {}
        self.names: dict[torch.Tensor, str] = {}
        self.optimizer = self.make_optimizer()
        self.scaler = self.make_scaler()
        self.unscaled = False  # by the scaler, since its last update
        self.gradient_scale = self.backward_scale = 1.0  # of param.grad, and of what unscaling does not reach
        self.applied = self.make_applied()
        self.inside = self.make_inside()
        self.losses: dict[int, tuple[Graph, torch.Tensor]] = {}
        self.blocks: list[AbstractContextManager[Any]] = []
        self.known: dict[str, Any] = {}
        self.norm: float | None = None

    def check(self, configuration: Configuration) -> None:
        """An unknown key is refused, never passed over."""
        if not self.lays_out_ranks and any(parameter.part or parameter.summed_over for parameter in configuration.parameters):
            raise Refused("parameters over ranks of one model; expected each of them whole, with its own gradient")
        known = self.config_keys | {"grad_scaler", "optimizer"}
        if unknown := sorted(configuration.config.keys() - known):
            raise Refused(f"engine.config has {', '.join(unknown)}; the driver {self.name} knows {', '.join(sorted(known))}")

    def make_model(self) -> LinearModel:
        return LinearModel(self.configuration, self.device)

    def wrap(self, model: LinearModel) -> torch.nn.Module:
        return model

    def trained(self) -> Mapping[int, torch.Tensor]:
        """What the optimizer is given, by the number of the parameter."""
        return {p: self.model.layers[p].weight for p in self.configuration.trainable}

    def make_optimizer(self) -> torch.optim.Optimizer:
        trained = self.trained()
        self.name_trained(trained)
        return optimizers.make(self.configuration, trained)

    def make_applied(self) -> optimizers.Applied:
        return optimizers.Applied(self.optimizer, self.pieces, lambda: self.gradient_scale)

    def make_inside(self) -> InsideBackwards | None:
        """Optimizers that run inside backwards, where the configuration has them: then no step is called."""
        return None

    @property
    def steps_inside(self) -> bool:
        return self.inside is not None

    def name_trained(self, trained: Mapping[int, torch.Tensor]) -> None:
        for p, tensor in trained.items():
            self.names[tensor] = self.configuration.parameters[p].name
            self.pieces_of[tensor] = [self.piece(p, tensor)]

    def piece(self, number: int, tensor: torch.Tensor) -> Piece:
        return (number, 0, tensor.numel())

    def pieces(self, tensor: torch.Tensor) -> Sequence[Piece]:
        return self.pieces_of[tensor]

    def held(self, weights: torch.Tensor) -> torch.Tensor:
        """What the rank holds of them, whatever state an exception has left them in."""
        return weights

    def make_scaler(self) -> torch.amp.GradScaler | None:
        given = self.configuration.config.get("grad_scaler")
        if given is None:
            return None
        if unknown := sorted(given.keys() - SCALER_KEYS):
            raise Refused(f"engine.config.grad_scaler has {', '.join(unknown)}; expected {', '.join(sorted(SCALER_KEYS))}")
        return self.scaler_class(self.device.type, **given)

    def close(self) -> None:
        for name in ("losses", "blocks", "applied", "inside", "optimizer", "scaler", "module", "model"):
            self.__dict__.pop(name, None)

    # ---- forward and backward

    def forward(self, event: Forward) -> None:
        graph = Graph.of(event)
        self.losses[event.number] = (graph, self.loss(graph))

    def loss(self, graph: Graph) -> torch.Tensor:
        return self.module(graph)

    def backward(self, event: Backward) -> None:
        graph, loss = self.loss_of(event)
        graph.before(event)
        self.backward_of(event, loss)

    def backward_of(self, event: Backward, loss: torch.Tensor) -> None:
        if not event.scale_wrt_gas:
            raise Refused("scale_wrt_gas is an argument of DeepSpeed's")
        self.norm = None  # that of a clip before it is of other gradients than a step behind it applies
        if event.loss_factor != 1.0:
            loss = loss * event.loss_factor
        scaled = self.scaler is not None and not event.past_scaler
        self.gradient_scale = self.backward_scale = self.scaler.get_scale() if scaled else 1.0
        if scaled:
            loss = self.scaler.scale(loss)
        try:
            loss.backward()
        finally:  # some may have stepped before another raised
            if self.inside is not None:
                self.known = {"updated": 1} if self.inside.steps else {}

    def loss_of(self, event: Backward) -> tuple[Graph, torch.Tensor]:
        if event.of is None:
            graph = Graph.of(event, sums_losses=True)
            return graph, self.sum_of(event, self.loss(graph))
        if event.of not in self.losses:
            raise Refused(f"a backward of event {event.of}, which was no forward of this rank")
        if event.phases != 1:
            raise Refused("phases belong to the forward, which was run before")
        return self.losses[event.of]

    def sum_of(self, event: Backward, first: torch.Tensor) -> torch.Tensor:
        """Of the losses of several micro-batches, each with a forward of its own."""
        if event.further and (event.phases != 1 or event.raises_after is not None):
            raise Refused("phases, or an exception, in a backward of the sum of several losses; expected sum_of 1")
        return sum((self.loss(Graph.of(one)) for one in event.further), first)

    # ---- blocks

    def enter_block(self, block: AbstractContextManager[Any]) -> None:
        block.__enter__()
        self.blocks.append(block)

    def exit_block(self, raising: bool) -> None:
        """Blocks that an exception has left before have nothing to do any more."""
        if not self.blocks:
            if not raising:
                raise Refused("the end of a block that this rank is not in")
            return
        block = self.blocks.pop()
        error = RuntimeError("raised by the script")
        block.__exit__(*((type(error), error, None) if raising else (None, None, None)))

    def raise_(self, caught: bool = False) -> None:
        while self.blocks:
            self.exit_block(raising=True)
        if not caught:
            raise RuntimeError("raised by the script")

    # ---- what a loop does with gradients

    def step(self, past_scaler: bool = False) -> None:
        self.known = {}
        if self.scaler is None or past_scaler:
            self.optimizer.step()
            self.known = {"updated": 1}
        else:
            if not self.unscaled:
                self.unscale()
            before = self.applied.steps
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.unscaled = False
            updated = int(self.applied.steps > before)
            self.known = {"updated": updated, "skipped": 1 - updated, "loss_scale": self.scaler.get_scale()}
        if self.norm is not None:
            self.known["gradient_norm"], self.norm = self.norm, None

    def unscale(self) -> None:
        if self.scaler is None:
            raise Refused("unscale without a grad_scaler in engine.config")
        self.scaler.unscale_(self.optimizer)
        self.unscaled, self.gradient_scale = True, 1.0

    def zero_grad(self, of: str = "optimizer", set_to_none: bool = True) -> None:
        (self.module if of == "engine" else self.optimizer).zero_grad(set_to_none=set_to_none)

    def gradients(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Every param.grad that a loop finds, beside its parameter."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    yield parameter, parameter.grad

    def scale_gradients(self, by: float) -> None:
        for _, gradient in self.gradients():
            gradient.mul_(by)

    def clip_gradients(self, max_norm: float, group: str = "rank") -> None:
        self.known = {}
        if self.configuration.linear:
            with optimizers.as_they_were(gradient for _, gradient in self.gradients()):
                self.clip(max_norm, group)
            return
        self.norm = float(self.clip(max_norm, group))
        self.known = {"loop_norm": self.norm}

    def clip(self, max_norm: float, group: str) -> torch.Tensor:
        return optimizers.clip([parameter for parameter, _ in self.gradients()], max_norm, self.groups, group, self.device)

    def all_reduce(self, group: str = "world", of: str = "gradients", as_: str = "mean") -> None:
        size, process_group = self.groups.size(group), self.groups.process_group(group)
        if size == 1:
            return
        if of == "scalar":
            dist.all_reduce(torch.ones(1, device=self.device), group=process_group)
            return
        for _, gradient in self.gradients():
            own = gradient.to_local() if hasattr(gradient, "to_local") else gradient
            if own.numel():
                dist.all_reduce(own, group=process_group)
                if as_ == "mean":
                    own.div_(size)

    # ---- checkpoints

    def save(self) -> None:
        """What loops save: a state_dict of the model, of the optimizer and of the scaler. None of them has a gradient."""
        state = {"model": self.model_state(), "optimizer": (self.inside or self.optimizer).state_dict(), "scaler": self.scaler.state_dict() if self.scaler else None}
        self.saved = self.copied(state)

    def restore(self) -> None:
        """A new process would: all that a loop makes, made again from the same configuration. Each rank loads what it saved."""
        if self.saved is None:
            raise Refused("restore without a save before it")
        self.close()
        self.start()
        self.load(self.copied(self.saved))

    def copied(self, state: dict[str, Any]) -> dict[str, Any]:
        return copy.deepcopy(state)

    def load(self, state: dict[str, Any]) -> None:
        self.load_model_state(state["model"])
        (self.inside or self.optimizer).load_state_dict(state["optimizer"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])

    def model_state(self) -> Any:
        return self.module.state_dict()

    def load_model_state(self, state: Any) -> None:
        self.module.load_state_dict(state)

    # ---- what the rank holds

    def buffers(self, after: str) -> Iterable[Buffer]:
        yield from self.accumulated()
        steps, applied = (self.applied if self.inside is None else self.inside).take()
        yield from applied
        if after == "step" or (self.inside is not None and steps):
            for tensor, name in self.names.items():
                yield Buffer(name, "parameter", self.held(tensor), self.pieces(tensor))
            yield from optimizers.moments(self.optimizer, self.names, self.pieces) if self.inside is None else self.inside.moments()

    def accumulated(self) -> Iterable[Buffer]:
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        return self.known
