"""Collectives as PyTorch is asked for them: recorded, then done by gloo."""
from __future__ import annotations

from typing import Any, Callable

import torch
import torch.distributed as dist

REDUCTIONS = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "avg", dist.ReduceOp.MAX: "max", dist.ReduceOp.MIN: "min", dist.ReduceOp.PRODUCT: "product"}


class Done:
    """What an asynchronous call returns: it is over."""

    def wait(self, *_: object) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class Recorder:
    """Takes the place of the functions of torch.distributed. `take` gives what was issued since it was last asked."""

    def __init__(self) -> None:
        self.calls: list[list] = []
        self.native = {name: getattr(dist, name) for name in ("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor")}
        dist.all_reduce = self.all_reduce
        dist.reduce = self.reduce
        dist.broadcast = self.broadcast
        dist.all_gather = self.all_gather
        dist.all_gather_into_tensor = self.all_gather_into_tensor
        dist.reduce_scatter_tensor = self.reduce_scatter_tensor
        for name in ("all_reduce_coalesced", "all_gather_coalesced", "all_to_all", "all_to_all_single", "gather", "scatter", "reduce_scatter", "send", "recv",
                     "isend", "irecv", "batch_isend_irecv"):
            if hasattr(dist, name):
                setattr(dist, name, self.unknown(name))

    def take(self) -> list[list]:
        calls, self.calls = self.calls, []
        return calls

    def unknown(self, name: str) -> Callable:
        def call(*_: Any, **__: Any) -> None:
            raise NotImplementedError(f"the recorder does not know the collective {name}")
        return call

    def note(self, kind: str, tensor: torch.Tensor, group: Any, **more: Any) -> list[int]:
        ranks = list(range(dist.get_world_size())) if group is None else dist.get_process_group_ranks(group)
        self.calls.append([kind, tensor.numel(), str(tensor.dtype).removeprefix("torch."), {"group": ranks} | more])
        return ranks

    def all_reduce(self, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Done | None:
        ranks = self.note("all_reduce", tensor, group, operator=REDUCTIONS.get(op, str(op)))
        self.reduced("all_reduce", tensor, op, group, ranks)
        return Done() if async_op else None

    def reduce(self, tensor: torch.Tensor, dst: int | None = None, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False,
               group_dst: int | None = None) -> Done | None:
        root = dst if dst is not None else dist.get_global_rank(group, group_dst)
        ranks = self.note("reduce", tensor, group, operator=REDUCTIONS.get(op, str(op)), root=root)
        self.reduced("reduce", tensor, op, group, ranks, root)
        return Done() if async_op else None

    def reduced(self, name: str, tensor: torch.Tensor, op: Any, group: Any, ranks: list[int], root: int | None = None) -> None:
        """16-bit numbers are added in fp32 and rounded once. all_reduce is gloo's, whose rounding of fp32 sums is that of a ring.
        What has one owner is added up from the owner's neighbour on, as in a ring: gloo's own order depends on its release."""
        average = op == dist.ReduceOp.AVG
        wide = tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor.clone()
        if name == "all_reduce":
            self.native["all_reduce"](wide, op=dist.ReduceOp.SUM if average else op, group=group)
        else:
            if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
                raise NotImplementedError(f"the recorder does not know a reduce by {op}")
            parts = [torch.empty_like(wide) for _ in ranks]
            self.native["all_gather"](parts, wide, group=group)
            owner = ranks.index(root)
            wide = parts[(owner + 1) % len(ranks)].clone()
            for hop in range(2, len(ranks) + 1):
                wide += parts[(owner + hop) % len(ranks)]
        if average:
            wide.mul_(1.0 / len(ranks))
        if root is None or root == dist.get_rank():
            tensor.copy_(wide)

    def broadcast(self, tensor: torch.Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None) -> Done | None:
        root = src if src is not None else dist.get_global_rank(group, group_src)
        self.note("broadcast", tensor, group, root=root)
        self.native["broadcast"](tensor, src=root, group=group)
        return Done() if async_op else None

    def all_gather(self, tensors: list[torch.Tensor], tensor: torch.Tensor, group: Any = None, async_op: bool = False) -> Done | None:
        self.note("all_gather", tensor, group)
        self.native["all_gather"](tensors, tensor, group=group)
        return Done() if async_op else None

    def all_gather_into_tensor(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any = None, async_op: bool = False) -> Done | None:
        ranks = self.note("all_gather_into_tensor", input_tensor, group)
        parts = [torch.empty_like(input_tensor) for _ in ranks]
        self.native["all_gather"](parts, input_tensor.contiguous(), group=group)
        output_tensor.view(-1).copy_(torch.cat([part.view(-1) for part in parts]))
        return Done() if async_op else None

    def reduce_scatter_tensor(self, output: torch.Tensor, input: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None,  # noqa: A002
                              async_op: bool = False) -> Done | None:
        ranks = self.note("reduce_scatter_tensor", input, group, operator=REDUCTIONS.get(op, str(op)))
        for member, chunk in zip(ranks, input.reshape(-1).chunk(len(ranks))):
            chunk = chunk.clone()
            self.reduced("reduce", chunk, op, group, ranks, member)
            if member == dist.get_rank():
                output.view(-1).copy_(chunk)
        return Done() if async_op else None
