"""What a driver is: a class with a method for each event that its framework can do, and a list of buffers after it."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Sequence

import torch

from . import streams

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
ROLES = frozenset({"local", "replicated", "reduced", "master", "applied", "parameter", "master parameter", "first moment", "second moment", "scratch"})
# Events of the protocol, and the methods that do them: Python reserves one of the names.
METHODS = {"raise": "raise_"} | {
    name: name for name in ("forward", "backward", "set_boundary", "enter_no_sync", "exit_no_sync", "enter_coalesce", "exit_coalesce", "step", "zero_grad",
                            "set_gradient", "scale_gradients", "clip_gradients", "all_reduce", "finalize", "save", "restore", "unscale")}
Piece = tuple[int, int, int]  # parameter (-1: padding), offset in it, number of elements


class Refused(Exception):
    """The driver itself cannot do this, whatever the framework could. Its text is for the user."""


@dataclass(frozen=True)
class Part:
    """Of a parameter that ranks have cut: it lives on those with its number in the group."""
    over: str
    number: int
    count: int


@dataclass(frozen=True)
class Parameter:
    name: str
    numel: int
    trainable: bool
    tied_to: int | None  # number of the parameter that this one is a further use of
    weights: torch.Tensor  # fp32
    part: Part | None = None  # None: it is whole
    summed_over: str | None = None  # a group whose ranks each have a part of its gradient
    held: bool = True  # whether this rank has it
    expert: int | None = None  # number of the expert that it belongs to
    pipeline_stage: int = 0  # it lives on the ranks of this stage
    hooked_outputs: int = 1  # outputs of the model that its gradient passes; 0: a term of the loss goes around them
    on_side_stream: bool = False  # its layer runs on a stream of its own, forward and backward, where there are streams


@dataclass(frozen=True)
class Configuration:
    run: int
    engine: Mapping[str, Any]  # of the scenario
    parameters: tuple[Parameter, ...]
    model_dtype: torch.dtype = torch.float32
    groups: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    linear: bool = False  # no decision may depend on values: no clipping
    observe: bool = True  # buffers are asked for after every event, not at steps alone
    seed: int = 0

    @property
    def config(self) -> Mapping[str, Any]:
        return self.engine.get("config") or {}

    @property
    def trainable(self) -> list[int]:
        """Numbers of the parameters that have a gradient of their own."""
        return [p for p, parameter in enumerate(self.parameters) if parameter.trainable and parameter.tied_to is None and parameter.held]


@dataclass(frozen=True)
class Forward:
    number: int
    micro_batch: int
    uses: tuple[int, ...]  # parameters, in the order in which their gradients shall become ready
    gradients: Mapping[int, torch.Tensor]  # fp32, by parameter


@dataclass(frozen=True)
class Backward(Forward):
    of: int | None = None  # number of the event of its forward; None: it runs its own
    scale_wrt_gas: bool = True
    loss_factor: float = 1.0
    direct: bool = False
    past_scaler: bool = False
    phases: int = 1
    summed: int = 1
    further: tuple[Forward, ...] = ()  # of a sum of losses those behind the first, each with a forward of its own
    raises_after: int | None = None
    tokens: int | None = None  # of this rank's micro-batch, where the scenario states any


@dataclass
class Buffer:
    """Gradients, weights or moments that a rank holds. `tensor` is read when `encoded` is called: give a copy of what changes before.
    `name` tells it from what else the rank shows of that event."""
    name: str
    role: str
    tensor: torch.Tensor | Sequence[torch.Tensor]  # several are shown one after the other
    pieces: Sequence[Piece]
    space: str = "device"
    at_end: bool = True  # False: what the event worked with, as the gradient that a step applies
    scale: float = 1.0  # what is stored is the true gradient times this

    def encoded(self) -> dict[str, Any]:
        tensors = [local(tensor) for tensor in ((self.tensor,) if isinstance(self.tensor, torch.Tensor) else self.tensor)]
        dtype = tensors[0].dtype if tensors else None
        if self.role not in ROLES:
            raise ValueError(f"buffer {self.name!r} has the role {self.role!r}; expected one of {', '.join(sorted(ROLES))}")
        if dtype not in NAMES or any(tensor.dtype != dtype for tensor in tensors):
            found = ", ".join(str(tensor.dtype) for tensor in tensors) or "no tensor"
            raise ValueError(f"buffer {self.name!r} is of {found}; expected one of {', '.join(DTYPES)}")
        pieces = [list(piece) for piece in self.pieces if piece[2]]
        numel, covered = sum([tensor.numel() for tensor in tensors]), sum([piece[2] for piece in pieces])
        if numel != covered:
            raise ValueError(f"buffer {self.name!r} has {numel} elements, and its pieces {covered}")
        return {"name": self.name, "role": self.role, "dtype": NAMES[dtype], "space": self.space, "at_end": self.at_end, "scale": float(self.scale),
                "pieces": pieces, "data": b"".join(map(stored, tensors))}


class Driver:
    """One rank of a framework. `__init__` only remembers who it is: engines are made by `configure`, and the host makes a driver to ask what it can do.

    A method of an event returns when the event is over; what it raises is what the framework raised. Events whose methods are not overridden are not offered.
    """

    name = ""
    frameworks: tuple[str, ...] = ()  # values of engine.framework
    packages: tuple[str, ...] = ("torch",)  # whose releases are reported
    preload: tuple[str, ...] = ()  # modules that an engine imports late: the host imports them once for all ranks
    needs_group = True  # torch.distributed is initialised before `configure`
    applied_gradients = False
    accumulators = False
    weights = False
    experts = False  # parameters of experts may be on some of the ranks
    pipelines = False  # parameters may be on the ranks of one stage alone
    hooked_outputs = False  # a model may have several outputs, and terms of the loss go around them
    sums_losses = False  # one backward may be of the losses of several forwards
    streams = False  # its framework runs on virtual streams, where these are asked for
    own_events: tuple[str, ...] = ()  # that its framework alone has: methods of the same names, called with the event's keys

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self.device = torch.device("cpu")  # another one is set before `configure`

    @classmethod
    def events(cls) -> list[str]:
        return [event for event, method in METHODS.items() if getattr(cls, method) is not getattr(Driver, method)] + list(cls.own_events)

    def capabilities(self) -> dict[str, Any]:
        more = {"streams": self.streams and streams.are_asked_for(), "experts": self.experts, "pipelines": self.pipelines, "hooked_outputs": self.hooked_outputs,
                "sums_losses": self.sums_losses}
        return {"events": self.events(), "frameworks": list(self.frameworks), "applied_gradients": self.applied_gradients, "accumulators": self.accumulators,
                "weights": self.weights} | {name: True for name, has in more.items() if has}

    def configure(self, configuration: Configuration) -> list[str]:
        """A new engine; what an earlier one left is thrown away. Returns what of the scenario was replaced by something like it."""
        raise NotImplementedError

    def buffers(self, after: str) -> Iterable[Buffer]:
        """What the rank holds after an event of this name, which may have raised."""
        return []

    @property
    def steps_inside(self) -> bool:
        """Whether the optimizer runs inside backwards: then a backward has what a step has, applied gradients and facts."""
        return False

    def facts(self) -> dict[str, Any]:
        """Of the last step: skipped, updated, loss_scale, gradient_norm; of the loop's own clip: loop_norm. As far as they can be told."""
        return {}

    def close(self) -> None:
        """The process ends, or another engine comes."""

    def forward(self, event: Forward) -> None:
        raise self.cannot("forward")

    def backward(self, event: Backward) -> None:
        raise self.cannot("backward")

    def set_boundary(self, boundary: bool) -> None:
        raise self.cannot("set_boundary")

    def enter_no_sync(self) -> None:
        raise self.cannot("no_sync")

    def exit_no_sync(self, raising: bool = False) -> None:
        raise self.cannot("no_sync")

    def enter_coalesce(self) -> None:
        raise self.cannot("coalesce")

    def exit_coalesce(self, raising: bool = False) -> None:
        raise self.cannot("coalesce")

    def step(self, past_scaler: bool = False) -> None:
        raise self.cannot("step")

    def zero_grad(self, of: str = "optimizer", set_to_none: bool = True) -> None:
        raise self.cannot("zero_grad")

    def set_gradient(self, parameter: int, factor: float, local: bool = False) -> None:
        raise self.cannot("set_gradient")

    def raise_(self, caught: bool = False) -> None:
        raise self.cannot("raise")

    def scale_gradients(self, by: float) -> None:
        raise self.cannot("scale_gradients")

    def clip_gradients(self, max_norm: float, group: str = "rank") -> None:
        raise self.cannot("clip")

    def all_reduce(self, group: str = "world", of: str = "gradients", as_: str = "mean") -> None:
        raise self.cannot("all_reduce")

    def finalize(self) -> None:
        raise self.cannot("finalize")

    def save(self) -> None:
        raise self.cannot("save")

    def restore(self) -> None:
        raise self.cannot("restore")

    def unscale(self) -> None:
        raise self.cannot("unscale")

    def cannot(self, what: str) -> Refused:
        return Refused(f"the driver {self.name or type(self).__name__} has no {what}")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this process holds of a tensor that may be spread over several."""
    to_local = getattr(tensor, "to_local", None)
    return (to_local() if to_local else tensor).detach()


def stored(tensor: torch.Tensor) -> bytes:
    """Bytes as they lie in memory, little-endian: bf16 has no type in NumPy, so its elements travel as integers."""
    flat = tensor.reshape(-1).cpu()
    return (flat.view(torch.int16) if flat.dtype == torch.bfloat16 else flat).numpy().tobytes()
