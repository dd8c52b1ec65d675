"""What megatron-fsdp needs in a process without a GPU. Names of CUDA do nothing, streams and events are empty objects; collectives are gloo's, issued one by one; a factor of
NCCL's premultiplied sum is applied before them, in the dtype of the tensor; memory of buckets begins as zeros."""
from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist


class Event:
    def wait(self, *_: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True


class Stream:
    def wait_stream(self, *_: Any) -> None: ...

    def wait_event(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def record_event(self, *_: Any) -> Event:
        return Event()


class Premultiplied:
    def __init__(self, factor: float) -> None:
        self.factor = factor


def cuda_does_nothing() -> None:
    torch.cuda.Stream = torch.cuda.current_stream = lambda *_, **__: Stream()
    torch.cuda.stream = lambda *_, **__: contextlib.nullcontext()
    torch.cuda.Event = lambda *_, **__: Event()
    torch.cuda.current_device = lambda: 0
    torch.cuda.empty_cache = torch.cuda.synchronize = lambda *_, **__: None
    torch.Tensor.cuda = lambda self, *_, **__: self


def meshes_without_children() -> None:
    """A table of PyTorch's that releases before 0.3.0 read, and 2.13 does not have: of sub-meshes that were made by name."""
    from torch.distributed import device_mesh
    if not hasattr(device_mesh._mesh_resources, "child_to_root_mapping"):
        device_mesh._mesh_resources.child_to_root_mapping = {}


def fresh_memory_is_zeros(param_and_grad_buffer: Any) -> None:
    """What a bucket holds behind its parameters is whatever the memory held, and never read; zeros, so that runs can be compared."""
    def zeroed(allocate: Any) -> Any:
        def call(self: Any, bucket_id: int, *rest: Any, **options: Any) -> Any:
            known = self.buckets.get(bucket_id)
            fresh = known is None or known.data._typed_storage()._size() == 0
            bucket = allocate(self, bucket_id, *rest, **options)
            if fresh:
                bucket.data.zero_()
            return bucket
        return call
    for name in ("TemporaryBucketAllocator", "StorageResizeBasedBucketAllocator"):
        allocator = getattr(param_and_grad_buffer, name)
        allocator.allocate = zeroed(allocator.allocate)


class Collectives:
    """Takes the place of torch.distributed's. `take` gives what was issued since it was last asked, with what each reduction was given and gave."""

    def __init__(self) -> None:
        self.calls: list[list] = []
        self.io: dict[str, dict] = {}
        self.native_reduce, self.native_scatter, self.native_gather = dist.all_reduce, dist.reduce_scatter_tensor, dist.all_gather
        dist._make_nccl_premul_sum = Premultiplied
        dist.all_reduce = self.all_reduce
        dist.reduce_scatter_tensor = self.reduce_scatter_tensor
        dist.all_gather_into_tensor = self.all_gather_into_tensor

    def take(self) -> tuple[list[list], dict[str, dict]]:
        calls, io, self.calls, self.io = self.calls, self.io, [], {}
        return calls, io

    def reduced(self, kind: str, tensor: torch.Tensor, op: Any, group: Any) -> torch.Tensor:
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        name = f"PREMUL_SUM({op.factor!r})" if isinstance(op, Premultiplied) else "AVG" if op == dist.ReduceOp.AVG else "SUM"
        self.io[str(len(self.calls))] = {"in": tensor.double().tolist(), "out": None}
        self.calls.append([kind, tensor.numel(), str(tensor.dtype).removeprefix("torch."), name, ranks])
        scaled = tensor * op.factor if isinstance(op, Premultiplied) else tensor.clone()
        plain = dist.ReduceOp.SUM if isinstance(op, Premultiplied) else op
        if kind == "all_reduce":
            self.native_reduce(scaled, op=plain, group=group)
            return scaled
        own = torch.empty(scaled.numel() // len(ranks), dtype=scaled.dtype)
        self.native_scatter(own, scaled, op=plain, group=group)
        return own

    def note_result(self, result: torch.Tensor) -> None:
        self.io[str(len(self.calls) - 1)]["out"] = result.double().tolist()

    def all_reduce(self, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Event | None:
        tensor.copy_(self.reduced("all_reduce", tensor, op, group))
        self.note_result(tensor)
        return Event() if async_op else None

    def reduce_scatter_tensor(self, output: torch.Tensor, input: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None,  # noqa: A002
                              async_op: bool = False) -> Event | None:
        output.copy_(self.reduced("reduce_scatter", input, op, group))
        self.note_result(output)
        return Event() if async_op else None

    def all_gather_into_tensor(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any = None, async_op: bool = False) -> Event | None:
        """Of weights: not recorded."""
        parts = [torch.empty_like(input_tensor) for _ in range(dist.get_world_size(group))]
        self.native_gather(parts, input_tensor.clone(), group=group)
        output_tensor.copy_(torch.cat(parts))
        return Event() if async_op else None
