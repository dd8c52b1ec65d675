"""The base optimizer of a scenario, and the gradient that it is given."""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist

from . import streams
from .driver import Buffer, Configuration, Piece, Refused, local
from .groups import Groups

Pieces = Callable[[torch.Tensor], Sequence[Piece]]
# By name in a scenario: the class, and the learning rate where none is given.
KINDS: dict[str, tuple[type[torch.optim.Optimizer], float]] = {
    "SGD": (torch.optim.SGD, 1.0), "Adam": (torch.optim.Adam, 0.001), "AdamW": (torch.optim.AdamW, 0.001)}
MOMENTS = {"exp_avg": "first moment", "exp_avg_sq": "second moment"}


def settings(configuration: Configuration) -> dict[str, Any]:
    """What the scenario says of the optimizer, in whichever of the two places: `type`, and what it was given."""
    of_config = configuration.config.get("optimizer")
    given = dict(configuration.engine.get("optimizer") or ({"type": of_config["type"]} | of_config.get("params", {}) if of_config else {"type": "SGD"}))
    if given.get("type") not in KINDS:
        raise Refused(f"the optimizer {given.get('type')!r} is none of {', '.join(KINDS)}")
    return given


def arguments(configuration: Configuration) -> dict[str, Any]:
    """Of torch's class. torch_adam asks for the class that is taken anyway."""
    given = settings(configuration)
    out: dict[str, Any] = {"lr": given.get("lr", KINDS[given["type"]][1]), "weight_decay": given.get("weight_decay", 0.0)}
    if given["type"] != "SGD":
        out |= {"betas": tuple(given.get("betas", (0.9, 0.999))), "eps": given.get("eps", 1e-8)}
    return out


def param_groups(configuration: Configuration, parameters: Mapping[int, torch.Tensor]) -> list[dict[str, Any]]:
    """`parameters` are those that have a gradient, by number."""
    if not configuration.engine.get("param_groups"):
        return [{"params": list(dict.fromkeys(parameters.values()))}]  # flat ones stand for several
    numbers = {configuration.parameters[p].name: p for p in parameters}  # a name may be of a part that other ranks have
    out = [{"params": list(dict.fromkeys(parameters[numbers[name]] for name in group["params"] if name in numbers))}
           | {key: group[key] for key in ("lr", "weight_decay") if key in group} for group in configuration.engine["param_groups"]]
    taken = [parameter for group in out for parameter in group["params"]]
    if len(dict.fromkeys(taken)) != len(taken):
        raise Refused("param_groups divide parameters that the wrapper has joined to one")
    return out


def kind(configuration: Configuration) -> type[torch.optim.Optimizer]:
    return KINDS[settings(configuration)["type"]][0]


def make(configuration: Configuration, parameters: Mapping[int, torch.Tensor]) -> torch.optim.Optimizer:
    """torch's, without momentum."""
    return kind(configuration)(param_groups(configuration, parameters), **arguments(configuration))


def clip(parameters: list[torch.Tensor], max_norm: float, groups: Groups, group: str, device: torch.device) -> torch.Tensor:
    """clip_grad_norm_, or its two halves with a sum over the ranks of a group between them. Returns the norm."""
    if groups.size(group) == 1:
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    norm = total_norm([parameter.grad for parameter in parameters])
    squared = norm.to(device) ** 2
    dist.all_reduce(squared, group=groups.process_group(group))
    norm = squared.sqrt()
    clip_with_norm(parameters, max_norm, norm)
    return norm


def total_norm(gradients: list[torch.Tensor]) -> torch.Tensor:
    """The first half of clip_grad_norm_, which has a name of its own from PyTorch 2.6 on."""
    if hasattr(torch.nn.utils, "get_total_norm"):
        return torch.nn.utils.get_total_norm(gradients)
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])) if gradients else torch.tensor(0.0)


def clip_with_norm(parameters: list[torch.Tensor], max_norm: float, norm: torch.Tensor) -> None:
    """The second half, likewise."""
    if hasattr(torch.nn.utils, "clip_grads_with_norm_"):
        return torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # torch's own constant
    for parameter in parameters:
        parameter.grad.mul_(factor)


@contextlib.contextmanager
def as_they_were(gradients: Iterable[torch.Tensor]) -> Iterator[None]:
    """For a linear run: what a loop does to gradients raises and reduces as ever, and leaves their values alone."""
    with streams.paused():
        kept = [(own, own.clone()) for own in map(local, gradients)]
    try:
        yield
    finally:
        with streams.paused(), torch.no_grad():
            for own, values in kept:
                own.copy_(values)


class Applied:
    """What an optimizer's step is given, seen when it begins. `scale` is what gradients are multiplied by at that time, `of` what a rank has of one."""

    def __init__(self, optimizer: torch.optim.Optimizer, pieces: Pieces, scale: Callable[[], float] = lambda: 1.0, name: str = "param.grad",
                 of: Callable[[torch.Tensor], torch.Tensor] = local) -> None:
        self.pieces, self.scale, self.name, self.of = pieces, scale, name, of
        self.steps = 0
        self.seen: list[Buffer] = []
        self.hook = optimizer.register_step_pre_hook(self.look)

    def look(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.steps += 1
        with streams.paused():
            self.copy_gradients(optimizer)

    def copy_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        by_dtype: dict[torch.dtype, tuple[list[torch.Tensor], list[Piece]]] = {}
        for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
            if parameter.grad is None:
                continue
            gradient, where = self.of(parameter.grad), self.pieces(parameter)
            sizes = [sum(piece[2] for piece in where), *(local(state).numel() for key, state in optimizer.state.get(parameter, {}).items() if key in MOMENTS)]
            if any(gradient.numel() != size for size in sizes):
                break  # the step is about to fail on it, behind those before it
            tensors, pieces = by_dtype.setdefault(gradient.dtype, ([], []))
            tensors.append(gradient.clone())
            pieces.extend(where)
        for dtype, (tensors, pieces) in by_dtype.items():
            name = self.name if dtype == next(iter(by_dtype)) else f"{self.name} of {dtype}"  # a snapshot is known by its name
            self.seen.append(Buffer(name, "applied", tensors, pieces, at_end=False, scale=self.scale()))

    def take(self) -> tuple[int, list[Buffer]]:
        """How many steps there were since the last call, and what they were given."""
        out = (self.steps, self.seen)
        self.steps, self.seen = 0, []
        return out


def moments(optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str], pieces: Pieces) -> list[Buffer]:
    """Of Adam. `names` are those of the parameters that the optimizer has. A state that was made of gathered weights, behind an exception, fits no shard."""
    return [Buffer(f"{key}[{names[parameter]}]", role, state[key], pieces(parameter))
            for parameter, state in optimizer.state.items() for key, role in MOMENTS.items()
            if key in state and local(state[key]).numel() == sum(size for _, _, size in pieces(parameter))]
