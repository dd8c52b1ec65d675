"""The backend `gradledger` of torch.distributed: every collective is a request to the command, which computes it, matches it and can hold it back.

`torch.distributed.init_process_group("gradledger", ...)` after this module is imported. GRADLEDGER_ADDRESS and GRADLEDGER_TOKEN say where the command is,
GRADLEDGER_DELIVER (eager, late, seeded) and GRADLEDGER_SEED when results arrive; delivery.py says what these mean. The store is not used: a HashStore will do.
"""
from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from . import protocol
from .call_site import call_site
from .delivery import Delivery
from .group_requests import CollectiveDeadlock, CollectiveError, CollectiveMismatch, CollectiveRefused, Requests
from .tensor_bytes import NAMES, bytes_of, rearranged, size
from .work import Fill, GroupWork, Ignore, Pending, WorkOfSeveral

__all__ = ["CollectiveDeadlock", "CollectiveError", "CollectiveMismatch", "CollectiveRefused", "LedgerGroup", "current_event", "register"]

NAME = "gradledger"
PREMULTIPLIED = "PREMUL_SUM"
OPERATORS = {PREMULTIPLIED: "sum", "SUM": "sum", "AVG": "avg", "MAX": "max", "MIN": "min", "PRODUCT": "product", "BAND": "band", "BOR": "bor", "BXOR": "bxor"}

# The number of the event that the rank is at, for the requests to carry; rank.py sets it.
current_event = -1

# In older releases C++ keeps no hold of what Python made of a work: once that is gone, its wait() is the one of C++, which nobody ends. Seen with 2.6.
WORKS_KEPT = 256 if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13) else 0

Tensors = Sequence[torch.Tensor]


class LedgerGroup(dist.ProcessGroup):
    """torch's names of collectives, in all releases, and what each asks the command for. Ranks that torch hands over count within the group."""

    def __init__(self, store: dist.Store, rank: int, ranks: list[int], name: str, requests: Requests, delivery: Delivery) -> None:
        super().__init__(rank, len(ranks))
        self._store, self._ranks, self._name, self._description = store, ranks, name, ""
        self._requests, self._delivery = requests, delivery
        self._members = sorted(ranks)
        self._by_member = [ranks.index(member) for member in self._members]  # the protocol knows no order of a group but that of the numbers
        self._by_rank = [self._members.index(member) for member in ranks]
        self._coalesced: list[GroupWork] | None = None
        self._latest: deque[GroupWork] = deque(maxlen=WORKS_KEPT)

    # Reductions

    def allreduce(self, tensors: Tensors | torch.Tensor, opts: Any = None) -> dist.Work:
        asked = listed(tensors)
        return self._work([self._reduction("all_reduce", tensor, opts, Fill([tensor])) for tensor in asked], asked, opts)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Tensors | torch.Tensor, opts: Any = None) -> dist.Work:
        asked, root = listed(tensors), self._root(opts)
        is_root = root == self._global_rank()
        pending = [self._reduction("reduce", tensor, opts, Fill([tensor]) if is_root else Ignore(), root=root) for tensor in asked]
        return self._work(pending, asked, opts)

    def reduce_scatter(self, outputs: Tensors | torch.Tensor, inputs: Sequence[Any], opts: Any = None) -> dist.Work:
        asked = listed(outputs)
        lists = [inputs] if isinstance(outputs, torch.Tensor) else inputs
        pending = []
        for output, given in zip(asked, lists, strict=True):
            self._expect_one_for_each(given)
            ordered = [given[i] for i in self._by_member]
            pending.append(self._reduction("reduce_scatter", output, opts, Fill([output]), numel=sum(tensor.numel() for tensor in ordered),
                                           data=joined(ordered), **parts_if_unequal(ordered)))
        return self._work(pending, asked, opts)

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> dist.Work:
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        pending = []
        for output, given in zip(outputs, inputs, strict=True):
            self._expect_sizes(output.numel() * self.size(), given.numel())
            data = rearranged(bytes_of(given), [size(output)] * self.size(), self._by_member)
            pending.append(self._reduction("reduce_scatter", given, opts, Fill([output]), data=data))
        return self._work(pending, list(outputs), opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # From some to all, or to one

    def broadcast(self, tensors: Tensors | torch.Tensor, opts: Any = None) -> dist.Work:
        asked, root = listed(tensors), self._root(opts)
        is_root = root == self._global_rank()
        pending = [self._ask("broadcast", tensor, opts, Ignore() if is_root else Fill([tensor]), root=root, data=None if is_root else b"") for tensor in asked]
        return self._work(pending, asked, opts)

    def allgather(self, outputs: Sequence[Any], inputs: Tensors | torch.Tensor, opts: Any = None) -> dist.Work:
        lists = [outputs] if isinstance(inputs, torch.Tensor) else outputs
        pending = []
        for output, given in zip(lists, listed(inputs), strict=True):
            self._expect_one_for_each(output)
            ordered = [output[i] for i in self._by_member]
            pending.append(self._ask("all_gather", given, opts, Fill(ordered, given=given), **parts_if_unequal(ordered)))
        return self._work(pending, [tensor for output in lists for tensor in output], opts)

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        """Here the outer list goes over ranks and the inner one over the inputs."""
        return self.allgather([[of_rank[i] for of_rank in outputs] for i in range(len(inputs))], inputs, opts)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> dist.Work:
        return self.all_gather_single_coalesced([output], [given], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        pending = []
        for output, given in zip(outputs, inputs, strict=True):
            self._expect_sizes(given.numel() * self.size(), output.numel())
            pending.append(self._ask("all_gather", given, opts, self._fill_by_rank(output, [size(given)] * self.size(), given)))
        return self._work(pending, list(outputs), opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: Sequence[Any], inputs: Tensors | torch.Tensor, opts: Any = None) -> dist.Work:
        asked, root = listed(inputs), self._root(opts)
        lists: Sequence[Tensors] = [[]] * len(asked)
        if root == self._global_rank():
            lists = [outputs] if isinstance(inputs, torch.Tensor) else outputs
        pending = []
        for output, given in zip(lists, asked, strict=True):
            if root == self._global_rank():
                self._expect_one_for_each(output)
            pending.append(self._ask("gather", given, opts, Fill([output[i] for i in self._by_member]) if output else Ignore(), root=root))
        return self._work(pending, [tensor for output in lists for tensor in output], opts)

    def scatter(self, outputs: Tensors | torch.Tensor, inputs: Sequence[Any], opts: Any = None) -> dist.Work:
        asked, root = listed(outputs), self._root(opts)
        lists: Sequence[Tensors] = [[]] * len(asked)
        if root == self._global_rank():
            lists = [inputs] if isinstance(outputs, torch.Tensor) else inputs
        pending = []
        for output, given in zip(asked, lists, strict=True):
            if root == self._global_rank():
                self._expect_one_for_each(given)
                for tensor in given:
                    self._expect_sizes(output.numel(), tensor.numel())
            pending.append(self._ask("scatter", output, opts, Fill([output]), numel=output.numel() * self.size(), root=root,
                                     data=joined([given[i] for i in self._by_member]) if given else b""))
        return self._work(pending, asked, opts)

    # Each to each, and one to one

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        self._expect_one_for_each(outputs)
        self._expect_one_for_each(inputs)
        given, taken = [inputs[i] for i in self._by_member], [outputs[i] for i in self._by_member]
        pending = self._ask("all_to_all", given[0], opts, Fill(taken), numel=sum(tensor.numel() for tensor in given), data=joined(given),
                            parts=[units(tensor) for tensor in given])
        return self._work([pending], list(outputs), opts)

    def all_to_all_single(self, output: torch.Tensor, given: torch.Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None) -> dist.Work:
        """Splits count rows; without them all parts are equal."""
        sent, received = self._parts(given, input_splits), self._parts(output, output_splits)
        width = given.element_size()
        data = rearranged(bytes_of(given), [part * width for part in sent], self._by_member)
        take = self._fill_by_rank(output, [part * width for part in received])
        scale = 1 if given.dtype in NAMES else width
        pending = self._ask("all_to_all", given, opts, take, data=data, parts=[sent[i] * scale for i in self._by_member])
        return self._work([pending], [output], opts)

    alltoall_base = all_to_all_single

    def send(self, tensors: Tensors, destination: int, tag: int = 0) -> dist.Work:
        peer = self._ranks[destination]
        return self._work([self._ask("send", tensor, None, Ignore(), peer=peer, message_tag=tag) for tensor in tensors], list(tensors), None)

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> dist.Work:
        peer = self._ranks[source]
        return self._work([self._ask("receive", tensor, None, Fill([tensor]), data=b"", peer=peer, message_tag=tag) for tensor in tensors], list(tensors), None,
                          source=source)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        raise CollectiveRefused("a receive from any source: a receive is matched by its sender's rank, since who comes first would differ from run to run")

    def barrier(self, opts: Any = None) -> dist.Work:
        return self._work([self._ask("barrier", None, opts, Ignore())], [], opts)

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False) -> None:
        """The command names ranks that do not come, in any barrier."""
        self._work([self._ask("barrier", None, None, Ignore(), asynchronous=False)], [], None).wait()

    # Several in one work

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device | None = None) -> dist.Work:
        works, self._coalesced = self._coalesced or [], None
        out = WorkOfSeveral(self._requests, works)
        self._latest.append(out)
        self._settle(out)
        return out

    # What a group is asked about itself

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._description

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, text: str) -> None:
        self._description = text

    def getGroupName(self) -> str:  # noqa: N802, the names that C++ looks for
        return self._name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._description

    def getBackendName(self) -> str:  # noqa: N802
        return NAME

    def get_group_store(self) -> dist.Store:
        return self._store

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._requests.issued()

    def set_timeout(self, timeout: timedelta) -> None:
        pass  # deadlines are the command's

    def shutdown(self) -> None:
        pass  # the connection is that of all groups

    abort = shutdown

    # Requests

    def _reduction(self, kind: str, tensor: torch.Tensor, opts: Any, take: Fill, **keys: Any) -> Pending:
        if tensor.dtype not in NAMES:
            raise CollectiveRefused(f"{kind} of {tensor.dtype}: there is no arithmetic of it; expected one of {', '.join(map(str, NAMES))}")
        return self._ask(kind, tensor, opts, take, operator=operator_of(opts), **factor_of(opts), **keys)

    def _ask(self, kind: str, tensor: torch.Tensor | None, opts: Any, take: Fill, *, data: bytes | bytearray | None = None, numel: int | None = None,
             operator: str = "", asynchronous: bool | None = None, **keys: Any) -> Pending:
        """`tensor` says type and size, and is what the rank gives where `data` does not."""
        if tensor is not None and tensor.layout != torch.strided:
            raise CollectiveRefused(f"{kind} of a tensor whose layout is {tensor.layout}; expected a dense one")
        if numel is None:
            numel = 0 if tensor is None else tensor.numel()
        dtype = "bytes" if tensor is None else NAMES.get(tensor.dtype, "bytes")
        if dtype == "bytes" and tensor is not None:
            numel *= tensor.element_size()
        if data is None:
            data = b"" if tensor is None else bytes_of(tensor)
        if len(data) > protocol.FRAME_BYTES_MAX - protocol.HELLO_BYTES_MAX:
            raise CollectiveRefused(f"{kind} of {len(data)} bytes; the protocol's largest frame is {protocol.FRAME_BYTES_MAX}")
        number = self._requests.issue(group=self._members, tag=self._name, kind=kind, operator=operator, dtype=dtype, numel=numel, site=call_site(), purpose="",
                                      event=current_event, asynchronous=is_asynchronous(opts) if asynchronous is None else asynchronous,
                                      data=data, **keys)
        return Pending(number, take)

    def _work(self, pending: list[Pending], outputs: list[torch.Tensor], opts: Any, source: int = -1) -> GroupWork:
        out = GroupWork(self._requests, pending, outputs, source)
        self._latest.append(out)
        if self._coalesced is not None:
            self._coalesced.append(out)
        elif is_asynchronous(opts):
            self._settle(out)
        return out

    def _settle(self, work: GroupWork) -> None:
        """An asynchronous collective has been issued: its result comes now, or not before somebody waits."""
        number = work.first_number()
        if number is None or self._delivery.is_late(number) or not work.try_to_deliver():
            work.poison_until_waited()

    def _global_rank(self) -> int:
        return self._ranks[self.rank()]

    def _root(self, opts: Any) -> int:
        return self._ranks[opts if isinstance(opts, int) else getattr(opts, "rootRank", 0)]

    def _parts(self, tensor: torch.Tensor, splits: Sequence[int]) -> list[int]:
        """Elements for each rank of the group."""
        rows = tensor.size(0) if tensor.dim() else tensor.numel()
        width = tensor.numel() // rows if rows else 0
        if not splits:
            self._expect_sizes(rows // self.size() * self.size(), rows)
            return [rows // self.size() * width] * self.size()
        self._expect_one_for_each(splits)
        self._expect_sizes(sum(splits), rows)
        return [rows_of_rank * width for rows_of_rank in splits]

    def _fill_by_rank(self, tensor: torch.Tensor, sizes: list[int], given: torch.Tensor | None = None) -> Fill:
        """One tensor of pieces by ranks of the group, where results come by members."""
        ordered = [sizes[i] for i in self._by_member]
        return Fill([tensor], lambda data: rearranged(data, ordered, self._by_rank), given)

    def _expect_one_for_each(self, given: Sequence[Any]) -> None:
        if len(given) != self.size():
            raise ValueError(f"{len(given)} tensors or sizes for a group of {self.size()} ranks")

    @staticmethod
    def _expect_sizes(expected: int, got: int) -> None:
        if expected != got:
            raise ValueError(f"a tensor of {got} elements or rows where the others make it {expected}")


def listed(tensors: Tensors | torch.Tensor) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def joined(tensors: Tensors) -> bytes:
    return b"".join(bytes_of(tensor) for tensor in tensors)


def units(tensor: torch.Tensor) -> int:
    """What `numel` counts: elements, or bytes of a type that the protocol does not name."""
    return tensor.numel() if tensor.dtype in NAMES else size(tensor)


def parts_if_unequal(tensors: Tensors) -> dict[str, list[int]]:
    parts = [units(tensor) for tensor in tensors]
    return {"parts": parts} if len(set(parts)) > 1 else {}


def is_asynchronous(opts: Any) -> bool:
    """Without the option, in releases or calls that lack it, nobody says that the rank waits at once."""
    return getattr(opts, "asyncOp", True)


def reduction_of(opts: Any) -> tuple[Any, str]:
    given = getattr(opts, "reduceOp", opts)
    kind = getattr(given, "op", given)
    return given, "SUM" if kind is None else getattr(kind, "name", str(kind))


def factor_of(opts: Any) -> dict[str, float]:
    """NCCL's PREMUL_SUM adds up what each rank gives, times a factor."""
    given, name = reduction_of(opts)
    return {"factor": float(given.__getstate__()[1])} if name == PREMULTIPLIED else {}


def operator_of(opts: Any) -> str:
    _, name = reduction_of(opts)
    if name not in OPERATORS:
        raise CollectiveRefused(f"the operator {name}; expected one of {', '.join(OPERATORS)}")
    return OPERATORS[name]


_shared: dict[int, Requests] = {}
_making = threading.Lock()


def shared_requests(rank: int, world_size: int) -> Requests:
    """The process's one connection, made with its first group. A process that was forked from one that has it makes its own."""
    with _making:
        if os.getpid() not in _shared:
            _shared[os.getpid()] = Requests(protocol.connect(protocol.hello("group", rank, world_size)))
        return _shared[os.getpid()]


def create(options: Any, backend_options: Any = None) -> LedgerGroup:
    """What torch calls for each group that this rank is a member of; the first is that of all ranks, whose list of ranks is empty."""
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    rank = ranks[options.group_rank]
    world_size = dist.get_world_size() if dist.is_initialized() else len(ranks)
    return LedgerGroup(options.store, options.group_rank, ranks, options.group_id, shared_requests(rank, world_size), Delivery.of_environment(rank))


def register() -> None:
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])


register()
