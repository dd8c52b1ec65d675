"""Where the gradients of a model's parameters come out of autograd, in each framework, and what a base optimizer steps."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterator, Sequence

import torch

from ..driver import Piece

WRAPPINGS = ("module.", "_fsdp_wrapped_module.", "_orig_mod.", "_forward_module.", "_checkpoint_wrapped_module.")


class NotObserved(Exception):
    """A loop, or a framework, that this cannot look into."""


@dataclass(frozen=True)
class Parameter:
    name: str
    numel: int  # of all ranks together


@dataclass(frozen=True)
class Leaf:
    """A tensor that autograd accumulates into. Its gradient, flat, has these pieces."""
    tensor: torch.Tensor
    pieces: tuple[Piece, ...]


class Model:
    """The trainable parameters of a model by number, with leaves and pieces as its framework has them."""

    def __init__(self, model: torch.nn.Module, engine: Any = None) -> None:
        self.model, self.engine = model, engine
        self.parameters: list[Parameter] = []
        self.pieces: dict[int, tuple[Piece, ...]] = {}  # by id of what an optimizer may step
        self.leaves: list[Leaf] = []
        self.later: list[tuple[torch.nn.Module, Callable[[], Iterator[Leaf]]]] = []  # leaves that are there when a module's forward begins
        self.kept: list[Any] = []
        self.layout: Any = None
        self.framework = "torch"
        if engine is not None:
            self.of_deepspeed()
        elif any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
            self.of_fsdp1()
        else:
            self.of_torch()
        if not self.parameters:
            raise NotObserved("the model has no parameter that is trained")

    def add(self, name: str, numel: int) -> int:
        self.parameters.append(Parameter(plain(name), numel))
        return len(self.parameters) - 1

    def remember(self, tensor: Any, pieces: Sequence[Piece]) -> None:
        self.kept.append(tensor)
        self.pieces[id(tensor)] = tuple(pieces)

    def of_torch(self) -> None:
        """Plain, with DistributedDataParallel, and with fully_shard, whose leaves are the parameters as they are gathered for a forward."""
        numbers: dict[int, int] = {}
        for name, parameter in self.model.named_parameters():
            if not parameter.requires_grad:
                continue
            p = numbers[id(parameter)] = self.add(name, parameter.numel())
            if hasattr(parameter, "placements"):
                self.remember(parameter, [of_dtensor(p, parameter)])
            else:
                self.remember(parameter, [(p, 0, parameter.numel())])
                self.leaves.append(Leaf(parameter, ((p, 0, parameter.numel()),)))
        if any(type(module).__name__ == "DistributedDataParallel" for module in self.model.modules()):
            self.framework = "ddp"
        for module in self.model.modules():
            if hasattr(module, "_get_fsdp_state") and hasattr(module, "set_requires_gradient_sync"):
                self.framework = "fsdp2"
                self.later.append((module, lambda module=module: self.unsharded(module, numbers)))
        gathered = {p for module, _ in self.later for each in fsdp2_parameters(module) if (p := numbers.get(id(each.sharded_param))) is not None}
        beside = [parameter.name for p, parameter in enumerate(self.parameters) if p not in gathered and p not in {piece[0] for leaf in self.leaves for piece in leaf.pieces}]
        if beside:
            raise NotObserved(f"{', '.join(beside[:3])}: a DTensor that fully_shard does not gather; tensor parallelism cannot be observed")

    def unsharded(self, module: Any, numbers: dict[int, int]) -> Iterator[Leaf]:
        for each in fsdp2_parameters(module):
            tensor, p = getattr(each, "_unsharded_param", None), numbers.get(id(each.sharded_param))
            if tensor is not None and p is not None and tensor.requires_grad:
                yield Leaf(tensor, ((p, 0, tensor.numel()),))

    def of_fsdp1(self) -> None:
        from torch.distributed.fsdp import FullyShardedDataParallel

        from ..drivers.fsdp1 import cut

        self.framework = "fsdp1"
        for module in FullyShardedDataParallel.fsdp_modules(self.model):
            handle = module._handle
            if handle is None or not handle.flat_param.requires_grad:
                continue
            flat, whole, names = handle.flat_param, [], iter(zip(handle.flat_param._fqns, handle.flat_param._numels, handle.flat_param._param_infos))
            prefix = next((name for name, each in self.model.named_modules() if each is module), "")
            parts: list[tuple[int, Any]] = []
            for numel, padding in zip(flat._numels_with_padding, flat._is_padding_mask):
                if padding:
                    whole.append((-1, 0, numel))
                    continue
                name, numel, info = next(names)
                p = self.add(f"{prefix}.{name}" if prefix else name, numel)
                whole.append((p, 0, numel))
                parts.append((p, info))
            shards = handle.world_size if handle.uses_sharded_strategy else 1
            size = flat._sharded_size.numel()
            if rest := size * shards - sum(piece[2] for piece in whole):
                whole.append((-1, 0, rest))
            shard = cut(whole, handle.rank * size if shards > 1 else 0, size)
            self.remember(flat, shard)
            self.leaves.append(Leaf(flat, tuple(whole)))
            for p, info in parts:  # with use_orig_params the optimizer has these
                self.remember(getattr(info.module, info.param_name), [piece for piece in shard if piece[0] == p])
        self.beside_fsdp1()

    def beside_fsdp1(self) -> None:
        """Parameters that no wrapper has taken."""
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad and id(parameter) not in self.pieces and type(parameter).__name__ != "FlatParameter":
                p = self.add(name, parameter.numel())
                self.remember(parameter, [(p, 0, parameter.numel())])
                self.leaves.append(Leaf(parameter, ((p, 0, parameter.numel()),)))

    def of_deepspeed(self) -> None:
        from ..drivers import deepspeed_buffers

        named = [(name, parameter) for name, parameter in self.engine.module.named_parameters() if parameter.requires_grad]
        self.framework = f"deepspeed stage {self.engine.zero_optimization_stage()}"
        for name, parameter in named:
            numel = getattr(parameter, "ds_numel", parameter.numel())
            p = self.add(name, numel)
            self.leaves.append(Leaf(parameter, ((p, 0, numel),)))
        try:
            self.layout = deepspeed_buffers.layout_of(self.engine, [parameter for _, parameter in named], [plain(name) for name, _ in named])
        except deepspeed_buffers.Unknown as error:
            raise NotObserved(str(error)) from error

    def given(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, tuple[Piece, ...]]]:
        """The gradients, flat, that a base optimizer is about to step with, and what of them this rank answers for."""
        if self.layout is not None and self.layout.base is optimizer:
            for buffer in self.layout.applied():
                tensors = [buffer.tensor] if isinstance(buffer.tensor, torch.Tensor) else buffer.tensor
                yield torch.cat([tensor.reshape(-1) for tensor in tensors]), tuple(buffer.pieces)
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                pieces = self.pieces.get(id(parameter))
                if pieces is None:
                    continue
                if parameter.grad is None:  # the same to the optimizer as a gradient without any contribution
                    yield torch.zeros((), dtype=parameter.dtype).expand(sum(piece[2] for piece in pieces)), pieces
                    continue
                gradient = parameter.grad.to_local() if hasattr(parameter.grad, "to_local") else parameter.grad
                if not gradient.is_sparse and gradient.numel() == sum(piece[2] for piece in pieces):
                    yield gradient.detach().reshape(-1), pieces


def plain(name: str) -> str:
    """Without what wrappers put before it."""
    for wrapping in WRAPPINGS:
        name = name.replace(wrapping, "")
    return name


def of_dtensor(number: int, parameter: Any) -> Piece:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    cuts = [placement for placement in parameter.placements if isinstance(placement, Shard)]
    if any(type(placement) is not Shard or placement.dim != 0 for placement in cuts) or len(cuts) > 1:
        raise NotObserved("a parameter is cut along another dimension than its first, or more than once; shards of that kind cannot be observed")
    _, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    row = parameter.numel() // parameter.shape[0] if parameter.dim() and parameter.shape[0] else 1
    local = parameter.to_local().numel()
    return (number, min(offset[0] * row, parameter.numel() - local) if offset else 0, local)


def fsdp2_parameters(module: Any) -> Iterator[Any]:
    from ..drivers.fsdp2 import parameters_of

    return parameters_of(module)


def base_optimizers(given: Sequence[Any], engine: Any) -> list[torch.optim.Optimizer]:
    """What steps in the end, below the wrappers of engines, accelerate and Lightning."""
    out: list[torch.optim.Optimizer] = []
    for optimizer in [*given, *([engine.optimizer] if engine is not None else [])]:
        seen: list[Any] = []
        while not any(optimizer is each for each in seen):
            seen.append(optimizer)
            inner = getattr(optimizer, "optimizer", None)
            if inner is None or not hasattr(inner, "param_groups"):
                break
            optimizer = inner
        if isinstance(optimizer, torch.optim.Optimizer) and not any(optimizer is each for each in out):
            out.append(optimizer)
    if not out:
        raise NotObserved("no optimizer of PyTorch was found below what was given; expected a torch.optim.Optimizer, or an engine that has one")
    return out
