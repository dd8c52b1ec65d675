"""What megatron-fsdp needs in a process without a GPU is gradledger's driver's (megatron_fsdp_cpu.py there). Here collectives are recorded besides, and memory of buckets begins as zeros."""
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from gradledger.drivers import megatron_fsdp_cpu as cpu


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


class Collectives(cpu.Collectives):
    """`take` gives what was issued since it was last asked, with what each reduction was given and gave. Gathers, which are of weights, are not recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list] = []
        self.io: dict[str, dict] = {}

    def take(self) -> tuple[list[list], dict[str, dict]]:
        calls, io, self.calls, self.io = self.calls, self.io, [], {}
        return calls, io

    def reduced(self, kind: str, tensor: torch.Tensor, op: Any, group: Any) -> torch.Tensor:
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        name = f"PREMUL_SUM({op.factor!r})" if isinstance(op, cpu.Premultiplied) else "AVG" if op == dist.ReduceOp.AVG else "SUM"
        number, given = str(len(self.calls)), tensor.double().tolist()
        self.calls.append([kind, tensor.numel(), str(tensor.dtype).removeprefix("torch."), name, ranks])
        out = super().reduced(kind, tensor, op, group)
        self.io[number] = {"in": given, "out": out.double().tolist()}
        return out
