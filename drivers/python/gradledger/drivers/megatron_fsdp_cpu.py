"""What megatron-fsdp asks of CUDA by name, where there is a CPU alone, and what gloo cannot do of what it asks of NCCL. Nothing of the package is changed but
the name of a context in which collectives are put together. tools/recorder uses this too."""
from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist

NOTE = "no CUDA: its names do nothing, and its streams order nothing"


class Event:
    def wait(self, *_: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True


class Stream:
    device = torch.device("cpu")

    def wait_stream(self, *_: Any) -> None: ...

    def wait_event(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def record_event(self, *_: Any) -> Event:
        return Event()


class Premultiplied:
    """In place of NCCL's sum of what was multiplied before."""

    def __init__(self, factor: float) -> None:
        self.factor = factor


def cuda_does_nothing() -> None:
    """Behind the import of the package, whose annotations want the classes that this takes away."""
    only = Stream()  # memory is the stream's that made it, which Megatron-LM's head asserts
    torch.cuda.Stream = torch.cuda.current_stream = lambda *_, **__: only
    torch.cuda.stream = torch.cuda.device = lambda *_, **__: contextlib.nullcontext()
    torch.cuda.Event = lambda *_, **__: Event()
    torch.cuda.current_device = lambda: 0
    torch.cuda.empty_cache = torch.cuda.synchronize = lambda *_, **__: None
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *_: None
    torch.Tensor.cuda = lambda self, *_, **__: self


def meshes_without_children() -> None:
    """A table of PyTorch's that releases before 0.3.0 read, and 2.13 does not have: of sub-meshes that were made by name."""
    from torch.distributed import device_mesh
    resources = getattr(device_mesh, "_mesh_resources", None)
    if resources is not None and not hasattr(resources, "child_to_root_mapping"):
        resources.child_to_root_mapping = {}


def premultiplied_sums() -> None:
    """Of a PyTorch that was built without NCCL."""
    dist._make_nccl_premul_sum = Premultiplied


def collectives_one_by_one() -> None:
    from megatron_fsdp import param_and_grad_buffer
    param_and_grad_buffer._coalescing_manager = lambda *_, **__: contextlib.nullcontext(Event())


class Collectives:
    """Takes the place of torch.distributed's: gloo has no factor in a sum and no output that lies in the input, so that both go through memory of their own. The
    factor is applied in the dtype of the tensor."""

    def __init__(self) -> None:
        self.native_reduce, self.native_scatter, self.native_gather = dist.all_reduce, dist.reduce_scatter_tensor, dist.all_gather
        premultiplied_sums()
        dist.all_reduce = self.all_reduce
        dist.reduce_scatter_tensor = self.reduce_scatter_tensor
        dist.all_gather_into_tensor = self.all_gather_into_tensor

    def reduced(self, kind: str, tensor: torch.Tensor, op: Any, group: Any) -> torch.Tensor:
        scaled = tensor * op.factor if isinstance(op, Premultiplied) else tensor.clone()
        plain = dist.ReduceOp.SUM if isinstance(op, Premultiplied) else op
        if kind == "all_reduce":
            self.native_reduce(scaled, op=plain, group=group)
            return scaled
        own = torch.empty(scaled.numel() // dist.get_world_size(group), dtype=scaled.dtype)
        self.native_scatter(own, scaled, op=plain, group=group)
        return own

    def all_reduce(self, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Event | None:
        tensor.copy_(self.reduced("all_reduce", tensor, op, group))
        return Event() if async_op else None

    def reduce_scatter_tensor(self, output: torch.Tensor, input: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None,  # noqa: A002
                              async_op: bool = False) -> Event | None:
        output.copy_(self.reduced("reduce_scatter", input, op, group))
        return Event() if async_op else None

    def all_gather_into_tensor(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any = None, async_op: bool = False) -> Event | None:
        parts = [torch.empty_like(input_tensor) for _ in range(dist.get_world_size(group))]
        self.native_gather(parts, input_tensor.clone(), group=group)
        output_tensor.copy_(torch.cat(parts))
        return Event() if async_op else None
