"""Which elements of which parameters a wrapper's buffers hold, read off its own tables, and the buffers that are alive."""
from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..driver import Buffer, Piece

MOMENTS = (("exp_avg", "first moment"), ("exp_avg_sq", "second moment"))


class Unknown(Exception):
    """A wrapper that is none of those whose tables are known, or whose tables are not where they were."""


def layout_of(engine: Any, parameters: Sequence[torch.nn.Parameter | None], names: Sequence[str]) -> Layout:
    """`parameters` by their number; one that stands there twice is tied and counts where it stands first. None: this rank has not got it."""
    wrapper = engine.optimizer
    number: dict[int, int] = {}
    for p, parameter in enumerate(parameters):
        if parameter is not None:
            number.setdefault(id(parameter), p)
    for kind in (ZeroLayout, Stage3Layout, Bf16Layout, FusedLayout, UnfusedLayout, PlainLayout):
        if kind.reads(wrapper):
            try:
                return kind(wrapper, parameters, number, names)
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                raise Unknown(f"{type(wrapper).__name__} has its tables elsewhere in this release: {error}") from error
    raise Unknown(f"the buffers of {type(wrapper).__name__} are not known")


def present(tensors: Iterable[torch.Tensor | None] | None) -> list[torch.Tensor]:
    return [tensor for tensor in tensors or () if tensor is not None]


def elements(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def padded(pieces: list[Piece], numel: int) -> list[Piece]:
    """With padding behind the pieces, up to `numel`."""
    rest = numel - sum(piece[2] for piece in pieces)
    if rest < 0:
        raise Unknown(f"a buffer of {numel} elements is meant to hold {numel - rest}")
    return pieces + [(-1, 0, rest)] if rest else pieces


class Layout:
    """Of one engine. `masters` are the tensors that the base optimizer steps, by group: (name, the tensors, the pieces of all of them in order)."""

    steps_without_gradients = False  # the engine calls the base optimizer itself, whatever there is
    gradient_role = "scratch"  # of PARAM.grad where it has memory of its own
    bucket_size: int | None = None  # of buckets that gradients are moved to: one that fills such a bucket looks as if its memory were its own
    wrappers: tuple[str, ...] = ()

    @classmethod
    def reads(cls, wrapper: Any) -> bool:
        return any(kind.__name__ in cls.wrappers for kind in type(wrapper).__mro__)

    def __init__(self, wrapper: Any, parameters: Sequence[torch.nn.Parameter | None], number: dict[int, int], names: Sequence[str]) -> None:
        self.wrapper, self.parameters, self.number, self.names = wrapper, parameters, number, names
        self.base = getattr(wrapper, "optimizer", wrapper)
        self.masters: list[tuple[str, list[torch.Tensor], list[Piece]]] = []
        self.own = [p for p, parameter in enumerate(parameters) if parameter is not None and number[id(parameter)] == p and parameter.requires_grad]
        self.space = "device"
        self.set_up()
        for name, tensors, pieces in self.masters:
            if elements(tensors) != sum(piece[2] for piece in pieces):
                raise Unknown(f"{name} has {elements(tensors)} elements, and its table {sum(piece[2] for piece in pieces)}")

    def set_up(self) -> None:
        raise NotImplementedError

    def accumulators(self, scale: float) -> Iterator[Buffer]:
        """Beside PARAM.grad."""
        return iter(())

    def weights(self) -> Iterator[Buffer]:
        for p in self.own:
            yield Buffer(self.names[p], "parameter", self.parameters[p].data, [(p, 0, self.parameters[p].numel())])

    # ---- what all have alike ----------------------------------------------------------------------------------------------------------------

    def whole(self, p: int) -> list[Piece]:
        return [(p, 0, self.parameters[p].numel())]

    def gradients(self, scale: float) -> Iterator[Buffer]:
        """What autograd deposits, until a reduction lets it share its memory."""
        for p in self.own:
            gradient = self.parameters[p].grad
            if gradient is None:
                continue
            alone = gradient.untyped_storage().nbytes() <= gradient.numel() * gradient.element_size() and gradient.numel() != self.bucket_size
            pieces = self.whole(p) if gradient.numel() == self.numel(p) else [(-1, 0, gradient.numel())]
            role = self.gradient_role if alone and pieces[0][0] == p else "scratch"  # what shares memory with a bucket holds whatever that does
            yield Buffer(f"{self.names[p]}.grad", role, gradient, pieces, scale=scale)

    def numel(self, p: int) -> int:
        return self.parameters[p].numel()

    def applied(self) -> Iterator[Buffer]:
        """What the base optimizer is about to step with, copied: the groups that it has at the moment."""
        asked = {id(tensor) for group in self.base.param_groups for tensor in group["params"]}
        for name, tensors, pieces in self.masters:
            stepped = [id(tensor) in asked and tensor.grad is not None for tensor in tensors]
            if not any(stepped):
                continue
            # One tensor may hold many pieces; of several, each holds one.
            kept = pieces if len(tensors) == 1 else [piece for piece, there in zip(pieces, stepped) if there]
            copies = [tensor.grad.detach().clone() for tensor, there in zip(tensors, stepped) if there]
            yield Buffer(f"{name}.grad", "applied", copies, kept, self.space, at_end=False)

    def state(self) -> Iterator[Buffer]:
        """Master weights and moments, behind a step."""
        for group, (name, tensors, pieces) in enumerate(self.masters):
            if tensors:
                yield Buffer(name, "master parameter", [tensor.detach() for tensor in tensors], pieces, self.space)
            for key, role in MOMENTS:
                held = [self.base.state.get(tensor, {}).get(key) for tensor in tensors]
                if tensors and all(moment is not None and moment.numel() == tensor.numel() for moment, tensor in zip(held, tensors)):
                    yield Buffer(f"{key}[{group}]", role, held, pieces, self.space)

    def master_gradients(self, scale: float) -> Iterator[Buffer]:
        """With offload they lie on the host from a boundary on. Elsewhere they are there while a step runs, or behind one that raised."""
        for name, tensors, pieces in self.masters:
            if tensors[0].grad is not None:
                yield fitting(f"{name}.grad", "master" if self.space == "host" else "scratch", [tensors[0].grad], pieces, self.space, scale)


class PlainLayout(Layout):
    """No wrapper at all: stage 0 in fp32."""

    steps_without_gradients = True
    gradient_role = "replicated"

    @classmethod
    def reads(cls, wrapper: Any) -> bool:
        return isinstance(wrapper, torch.optim.Optimizer)

    def set_up(self) -> None:
        for group in self.base.param_groups:
            name = "param" if len(self.base.param_groups) == 1 else f"param[{len(self.masters)}]"
            self.masters.append((name, list(group["params"]), [piece for tensor in group["params"] for piece in self.whole(self.number[id(tensor)])]))


class UnfusedLayout(Layout):
    """A master for each parameter."""

    gradient_role = "replicated"
    wrappers = ("FP16_UnfusedOptimizer",)

    def set_up(self) -> None:
        for g, (low, high) in enumerate(zip(self.wrapper.fp16_groups, self.wrapper.fp32_groups)):
            pieces = [piece for parameter in low for piece in self.whole(self.number[id(parameter)])]
            self.masters.append((f"fp32_groups[{g}]", list(high), pieces))


class FlatLayout(Layout):
    """Parameters lie in a flat buffer for each group, in whatever order and with whatever padding: their addresses tell."""

    low = high = flat = ""  # attributes of the wrapper: parameters, masters and flat weights of each group
    partitions = True  # the rank has a part of the masters

    def set_up(self) -> None:
        groups, masters, flats = (getattr(self.wrapper, name) for name in (self.low, self.high, self.flat))
        self.places = [self.places_in(flat, group) for flat, group in zip(flats, groups)]
        self.group_of = {p: g for g, places in enumerate(self.places) for p, _ in places}
        self.begin = [self.rank_in(g) * master.numel() if self.partitions else 0 for g, master in enumerate(masters)]
        self.size = [master.numel() for master in masters]
        for g, master in enumerate(masters):
            self.masters.append((f"{self.high}[{g}]", [master], self.partition(g)))

    def rank_in(self, group: int) -> int:
        return torch.distributed.get_rank(self.wrapper.real_dp_process_group[group])

    def places_in(self, flat: torch.Tensor, group: Sequence[torch.nn.Parameter]) -> list[tuple[int, int]]:
        """(parameter, where it begins), in the buffer's order."""
        out = []
        for parameter in group:
            offset, rest = divmod(parameter.data_ptr() - flat.data_ptr(), flat.element_size())
            if parameter.numel() and (rest or not 0 <= offset <= flat.numel() - parameter.numel()):
                raise Unknown(f"a parameter does not lie in {self.flat}")
            if parameter.numel():
                out.append((self.number[id(parameter)], offset))
        return sorted(out, key=lambda place: place[1])

    def part(self, group: int, begin: int, end: int) -> list[Piece]:
        """Of a flat buffer of the group."""
        out: list[Piece] = []
        at = begin
        for p, offset in self.places[group]:
            first, last = max(offset, begin), min(offset + self.numel(p), end)
            if first >= last:
                continue
            if first > at:
                out.append((-1, 0, first - at))
            out.append((p, first - offset, last - first))
            at = last
        return padded(out, end - begin)

    def partition(self, group: int) -> list[Piece]:
        return self.part(group, self.begin[group], self.begin[group] + self.size[group])

    def owned(self, p: int) -> list[Piece]:
        """As long as the parameter; the rank answers for what of it lies in its partition."""
        out: list[Piece] = []
        for piece in self.partition(self.group_of[p]) if p in self.group_of else []:
            if piece[0] == p:
                out = [(-1, 0, piece[1]), piece] if piece[1] else [piece]
        return padded(out, self.numel(p))


class FusedLayout(FlatLayout):
    """Every rank has all masters."""

    gradient_role = "replicated"
    wrappers = ("FP16_Optimizer",)
    low, high, flat = "fp16_groups", "fp32_groups_flat", "fp16_groups_flat"
    partitions = False


class Bf16Layout(FlatLayout):
    wrappers = ("BF16_Optimizer",)
    low, high, flat = "bf16_groups", "fp32_groups_flat_partition", "bf16_groups_flat"

    def accumulators(self, scale: float) -> Iterator[Buffer]:
        for name, pieces_of in (("fp32_groups_gradients_flat", self.everything), ("fp32_groups_gradient_flat_partition", self.partition)):
            for g, tensor in enumerate(getattr(self.wrapper, name, ())):
                if tensor is not None:
                    yield fitting(f"{name}[{g}]", "replicated", [tensor], pieces_of(g))

    def everything(self, group: int) -> list[Piece]:
        return self.part(group, 0, self.wrapper.bf16_groups_flat[group].numel())


class ZeroLayout(FlatLayout):
    """Stages 1 and 2."""

    gradient_role = "local"
    wrappers = ("DeepSpeedZeroOptimizer",)
    low, high, flat = "bit16_groups", "single_partition_of_fp32_groups", "bit16_groups_flat"

    def set_up(self) -> None:
        super().set_up()
        self.space = "host" if getattr(self.wrapper, "cpu_offload", False) else "device"
        self.in_partition = getattr(self.wrapper, "params_in_partition", ())
        if getattr(self.wrapper, "contiguous_gradients", False):
            self.bucket_size = int(self.wrapper.reduce_bucket_size)
        self.by_id = {self.wrapper.get_param_id(parameter): self.number[id(parameter)] for group in self.wrapper.bit16_groups for parameter in group}

    def accumulators(self, scale: float) -> Iterator[Buffer]:
        epilogue_ran = getattr(self.wrapper, "_epilogue_ran_this_backward", False)
        for p in self.own:
            accumulated = getattr(self.parameters[p], "grad_accum", None)
            if accumulated is not None:
                holds_average = epilogue_ran and self.wrapper.get_gradient_for_reduction(self.parameters[p]) is accumulated  # else a copy of it was reduced
                yield fitting(f"{self.names[p]}.grad_accum", "scratch" if holds_average else "local", [accumulated], self.whole(p), scale=scale)
        for g, tensors in (getattr(self.wrapper, "all_grad_tensors", None) or {}).items():
            for parameter, tensor in zip(self.in_partition[g], tensors or ()):
                p = self.number[id(parameter)]
                if tensor is not None:
                    yield fitting(f"all_grad_tensors[{g}][{self.names[p]}]", "reduced", [tensor], self.owned(p), scale=scale)
        for id_, tensor in (getattr(self.wrapper, "accumulated_grads_in_cpu", None) or {}).items():
            p = self.by_id[id_]
            yield fitting(f"accumulated_grads_in_cpu[{self.names[p]}]", "reduced", [tensor], self.owned(p), "host", scale)
        for g, tensors in (getattr(self.wrapper, "averaged_gradients", None) or {}).items():
            if present(tensors):
                yield fitting(f"averaged_gradients[{g}]", "reduced", present(tensors), self.partition(g), scale=scale)
        yield from self.master_gradients(scale)


class Stage3Layout(Layout):
    """Each parameter is cut into as many parts as there are ranks; sub-groups of parts have masters of their own."""

    gradient_role = "local"
    wrappers = ("DeepSpeedZeroOptimizer_Stage3",)

    def set_up(self) -> None:
        self.rank = torch.distributed.get_rank(self.wrapper.dp_process_group)
        self.space = "host" if getattr(self.wrapper, "offload_optimizer", False) else "device"
        self.partitions = getattr(self.wrapper, "_DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition", {})
        for g, (group, master) in enumerate(zip(self.wrapper.fp16_groups, self.wrapper.fp32_partitioned_groups_flat)):
            pieces = [piece for parameter in group for piece in self.shard(self.number[id(parameter)])]
            self.masters.append((f"fp32_partitioned_groups_flat[{g}]", [master], pieces))

    def numel(self, p: int) -> int:
        return self.parameters[p].ds_numel

    def whole(self, p: int) -> list[Piece]:
        return [(p, 0, self.numel(p))]

    def shard(self, p: int) -> list[Piece]:
        size = self.parameters[p].partition_numel()
        begin = min(self.rank * size, self.numel(p))
        real = min(size, self.numel(p) - begin)
        return padded([(p, begin, real)] if real else [], size)

    def weights(self) -> Iterator[Buffer]:
        space = "host" if getattr(self.wrapper, "offload_param", False) else "device"
        for p in self.own:
            yield without_padding(fitting(f"ds_tensor[{self.names[p]}]", "parameter", [self.parameters[p].ds_tensor.data], self.shard(p), space))

    def applied(self) -> Iterator[Buffer]:
        return map(without_padding, super().applied())

    def state(self) -> Iterator[Buffer]:
        return map(without_padding, super().state())

    def accumulators(self, scale: float) -> Iterator[Buffer]:
        for p in self.own:
            partition = self.partitions.get(self.parameters[p].ds_id)
            if partition is not None:
                yield without_padding(fitting(f"grad_partition[{self.names[p]}]", "reduced", [partition], self.shard(p), self.space, scale))
        yield from map(without_padding, self.master_gradients(scale))


def fitting(name: str, role: str, tensors: list[torch.Tensor], pieces: list[Piece], space: str = "device", scale: float = 1.0) -> Buffer:
    """One of another size than its place in the tables says is shown and not judged."""
    numel = elements(tensors)
    if numel != sum(piece[2] for piece in pieces):
        role, pieces = "scratch", [(-1, 0, numel)]
    return Buffer(name, role, of_one_dtype(tensors, pieces), pieces, space, scale=scale)


def of_one_dtype(tensors: list[torch.Tensor], pieces: list[Piece]) -> list[torch.Tensor]:
    """Padding may be of the accumulation dtype behind gradients of the model's. It is zeros, and loses nothing."""
    real = tensors[:-1] if len(tensors) > 1 and pieces[-1] == (-1, 0, tensors[-1].numel()) else tensors
    dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in real))
    return [tensor.to(dtype) for tensor in tensors]


def without_padding(buffer: Buffer) -> Buffer:
    """With zeros for it: stage 3 never writes there, and what was in that memory differs from run to run."""
    if all(p >= 0 for p, _, _ in buffer.pieces):
        return buffer
    tensors = [buffer.tensor] if isinstance(buffer.tensor, torch.Tensor) else buffer.tensor
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    at = 0
    for p, _, numel in buffer.pieces:
        if p < 0:
            flat[at:at + numel] = 0
        at += numel
    return dataclasses.replace(buffer, tensor=flat)


def gathered_weights(weights: Mapping[int, torch.nn.Parameter], names: Sequence[str]) -> Iterator[Buffer]:
    """By the public interface alone, where no table of the wrapper is known."""
    import deepspeed

    for p, weight in weights.items():
        with deepspeed.zero.GatheredParameters([weight]) if hasattr(weight, "ds_id") else contextlib.nullcontext():
            yield Buffer(names[p], "parameter", weight.detach().clone(), [(p, 0, weight.numel())])
