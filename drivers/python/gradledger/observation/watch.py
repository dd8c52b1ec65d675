"""What happens on one rank in a window: probes take the place of gradients as they leave autograd, and what base optimizers are given is kept."""
from __future__ import annotations

import contextlib
import functools
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Callable, Iterator

import torch

from .factors import Factor, Root, read_root, simplest
from .leaves import Leaf, Model
from .probes import Probes, repeated, unit_for
from .stretches import Piece, piece_of

NOTES_MAX = 16


@dataclass
class MicroBatch:
    """One backward."""
    window: int
    number: int  # in the window
    position: int  # among all that were observed
    factor: Factor
    uses: set[int] = field(default_factory=set)


@dataclass
class Step:
    """Consecutive calls of base optimizers."""
    window: int
    given: list[list[Piece]] = field(default_factory=list)


@dataclass
class Seen:
    """By one rank."""
    rank: int
    micro_batches: list[MicroBatch] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scale: float = 1.0  # that a loss scale is expected to have been taken out of again

    def note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < NOTES_MAX:
            self.notes.append(text)


class Watch:
    """Hooks and replaced functions, from `begin` to `end`."""

    def __init__(self, rank: int, world_size: int, model: Model, optimizers: list[torch.optim.Optimizer], micro_batches: int) -> None:
        self.model, self.optimizers, self.world_size = model, optimizers, world_size
        self.micro_batches = micro_batches
        self.seen = Seen(rank)
        self.probes: Probes | None = None
        self.handles: list[Any] = []
        self.hooked: dict[int, Any] = {}  # by id, so that none is used twice
        self.root: Root | None = None  # of the backward that runs
        self.current: MicroBatch | None = None
        self.depth = 0
        self.window, self.in_window = 0, 0
        self.fired: set[int] = set()
        self.loss_scale = 1.0  # of the backward that runs
        self.dtypes: dict[int, torch.dtype] = {}  # of gradients, by parameter
        self.arrived: dict[int, tuple[int, float]] = {}  # at outputs: where the largest gradient was, and what
        self.undo = contextlib.ExitStack()

    # ---- hooks --------------------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.replace(torch.autograd, "backward", self.backward)
        self.replace(torch.amp.GradScaler, "scale", self.scale)
        for leaf in self.model.leaves:
            self.hook(leaf)
        for module, leaves in self.model.later:
            self.handles.append(module.register_forward_pre_hook(lambda *_, leaves=leaves: self.hook_all(leaves)))
        for optimizer in self.optimizers:
            self.handles.append(optimizer.register_step_pre_hook(self.before_step))
        if self.model.engine is not None:
            self.handles.append(self.model.engine.module.register_forward_hook(self.before_output_hooks))
            self.handles.append(self.model.engine.register_forward_hook(self.behind_output_hooks))

    def end(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.undo.close()

    def replace(self, place: Any, name: str, by: Callable[..., Any]) -> None:
        own = getattr(place, name)

        @functools.wraps(own)
        def instead(*arguments: Any, **named: Any) -> Any:
            return by(own, *arguments, **named)
        setattr(place, name, instead)
        self.undo.callback(setattr, place, name, own)

    def hook_all(self, leaves: Callable[[], Iterator[Leaf]]) -> None:
        for leaf in leaves():
            self.hook(leaf)

    def hook(self, leaf: Leaf) -> None:
        if id(leaf.tensor) in self.hooked:
            return
        self.hooked[id(leaf.tensor)] = leaf.tensor
        handle = leaf.tensor.register_hook(lambda gradient: self.instead_of(leaf, gradient))
        self.handles.append(handle)
        # Hooks of the loop and of the framework are to be given the probe, too. Autograd goes by the order in which they were put into the dict.
        others = [(key, hook) for key, hook in leaf.tensor._backward_hooks.items() if key != handle.id]
        for key, _ in others:
            del leaf.tensor._backward_hooks[key]
        leaf.tensor._backward_hooks.update(others)

    # ---- backward -----------------------------------------------------------------------------------------------------------------------

    def backward(self, own: Callable[..., Any], tensors: Any, grad_tensors: Any = None, *arguments: Any, **named: Any) -> Any:
        """Calls inside of one, as checkpointing has them, belong to it."""
        outermost = self.depth == 0
        handles: list[Any] = []
        if outermost:
            self.root = self.root_with_scale()
            handles = list(read_root(tensors, grad_tensors, self.root))
            self.current = None
            self.fired.clear()
        self.depth += 1
        try:
            return own(tensors, grad_tensors, *arguments, **named)
        finally:
            self.depth -= 1
            if outermost:
                for handle in handles:
                    handle.remove()
                self.root = self.current = None

    def root_with_scale(self) -> Root:
        out = Root()
        wrapper = getattr(self.model.engine, "optimizer", None)
        if wrapper is not None and getattr(self.model.engine, "fp16_enabled", lambda: False)():
            out.loss_scale = float(getattr(wrapper, "loss_scale", None) or getattr(wrapper, "cur_scale", 1.0))
        elif self.seen.scale != 1:
            out.loss_scale = self.seen.scale
        return out

    def scale(self, own: Callable[..., Any], scaler: Any, outputs: Any) -> Any:
        out = own(scaler, outputs)
        self.seen.scale = float(scaler.get_scale()) if scaler.is_enabled() else 1.0
        return out

    def before_output_hooks(self, module: Any, given: Any, outputs: Any) -> None:
        """DeepSpeed multiplies the gradients of its outputs: behind the criterion, and before any leaf."""
        for tensor in tensors_in(outputs):
            if tensor.requires_grad and tensor.dim() > 0:
                tensor.register_hook(lambda gradient, tensor=tensor: self.arrived.__setitem__(id(tensor), largest(gradient)))

    def behind_output_hooks(self, module: Any, given: Any, outputs: Any) -> None:
        for tensor in tensors_in(outputs):
            if tensor.requires_grad and tensor.dim() > 0:
                tensor.register_hook(lambda gradient, tensor=tensor: self.output_factor(self.arrived.pop(id(tensor), None), gradient))

    def output_factor(self, before: tuple[int, float] | None, gradient: torch.Tensor) -> None:
        if before is None or before[1] == 0 or self.root is None:
            return
        own = float(gradient.detach().reshape(-1)[before[0]]) / before[1]
        if own != 1 and math.isfinite(own):
            self.root.outputs.add(simplest(own, 2, gradient.dtype))

    # ---- leaves -------------------------------------------------------------------------------------------------------------------------

    def instead_of(self, leaf: Leaf, gradient: torch.Tensor) -> torch.Tensor | None:
        if self.root is None:
            return None  # torch.autograd.grad, whose result goes to whoever asked
        if gradient.layout != torch.strided:
            self.seen.note(f"{self.model.parameters[leaf.pieces[0][0]].name}: a sparse gradient, which was left as it is and is not judged")
            return None
        micro_batch = self.current or self.next_micro_batch(gradient.dtype)
        if id(leaf.tensor) in self.fired:
            return torch.zeros_like(gradient)  # autograd comes to it once more in the same backward
        self.fired.add(id(leaf.tensor))
        out = torch.empty(gradient.numel(), dtype=gradient.dtype, device=gradient.device)
        at = 0
        for parameter, offset, numel in leaf.pieces:
            if at >= out.numel():
                break
            if parameter < 0:
                out[at:at + numel] = 0
            else:
                micro_batch.uses.add(parameter)
                self.dtypes[parameter] = gradient.dtype
                out[at:at + numel] = repeated(self.deposited(micro_batch, parameter, gradient.dtype).to(gradient.device), offset, numel)
            at += numel
        return out.view(gradient.shape)

    def next_micro_batch(self, dtype: torch.dtype) -> MicroBatch:
        assert self.root is not None
        value, read, how = self.root.factor()
        factor = Factor(self.seen.rank, self.window, self.in_window, value, read, how, self.root.tokens)
        if self.probes is None:
            numel = sum(parameter.numel for parameter in self.model.parameters)
            half = any(leaf.tensor.dtype == torch.float16 for leaf in self.model.leaves)
            self.probes = Probes(self.world_size, self.micro_batches, unit_for(numel, self.micro_batches, torch.float16 if half else dtype, self.root.loss_scale))
        self.current = MicroBatch(self.window, self.in_window, len(self.seen.micro_batches), factor)
        self.loss_scale = self.root.loss_scale if self.root.scaled else 1.0
        self.seen.micro_batches.append(self.current)
        self.in_window += 1
        return self.current

    def deposited(self, micro_batch: MicroBatch, parameter: int, dtype: torch.dtype) -> torch.Tensor:
        """One period of what autograd is given to accumulate: the probe, times what the loss was multiplied by."""
        assert self.probes is not None
        number = self.probes.number(self.seen.rank, micro_batch.position)
        return deposit(self.probes, number, parameter, self.model.parameters[parameter].numel, micro_batch.factor.value, self.loss_scale, dtype)

    # ---- steps --------------------------------------------------------------------------------------------------------------------------

    def before_step(self, optimizer: torch.optim.Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Where the loop gives a closure, gradients are there behind it."""
        place = next((i for i, given in enumerate(arguments) if callable(given) and not isinstance(given, torch.optim.Optimizer)), None)
        closure = named.get("closure") if place is None else arguments[place]
        if closure is None:
            self.look(optimizer)
            return None

        def with_look() -> Any:
            out = closure()
            self.look(optimizer)
            return out
        if place is None:
            return arguments, {**named, "closure": with_look}
        return (*arguments[:place], with_look, *arguments[place + 1:]), named

    def look(self, optimizer: torch.optim.Optimizer) -> None:
        if self.in_window == 0 and self.seen.steps and self.seen.steps[-1].window == self.window - 1:
            step = self.seen.steps[-1]  # another optimizer, or another group of the same one, in the same step
        else:
            step = Step(self.window)
            self.seen.steps.append(step)
            self.window, self.in_window = self.window + 1, 0
        if self.probes is None:
            return self.seen.note("an optimizer stepped before any backward was seen")
        for flat, pieces in self.model.given(optimizer):
            out, at = [], 0
            for parameter, offset, numel in pieces:
                if parameter >= 0 and numel:
                    out.append(piece_of(parameter, offset, flat[at:at + numel], self.probes.period(self.model.parameters[parameter].numel)))
                at += numel
            if out:
                step.given.append(out)


def deposit(probes: Probes, number: int, parameter: int, numel: int, factor: Fraction, loss_scale: float, dtype: torch.dtype) -> torch.Tensor:
    values = torch.tensor(probes.values(number, parameter, numel), dtype=torch.float64)
    return (values * factor.numerator / factor.denominator * (probes.unit * loss_scale)).to(dtype)


def tensors_in(outputs: Any) -> Iterator[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        yield outputs
    elif isinstance(outputs, dict):
        for each in outputs.values():
            yield from tensors_in(each)
    elif isinstance(outputs, (list, tuple)):
        for each in outputs:
            yield from tensors_in(each)


def largest(gradient: torch.Tensor) -> tuple[int, float]:
    """Where the largest element of a gradient is, and what it is."""
    flat = gradient.detach().reshape(-1)
    place = int(flat.abs().argmax())
    return place, float(flat[place])
