"""What a collective gives back: it is waited for, asked whether it is done, or made a future of."""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from . import tensor_bytes
from .group_requests import CollectiveMismatch, Requests


class Fill:
    """Puts a result into tensors, one behind another. `arrange` brings its pieces into the order of the group's ranks.

    `given` is what the collective reads; it may lie in the tensors.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], arrange: Callable[[bytes], bytes | bytearray] | None = None,
                 given: torch.Tensor | None = None) -> None:
        self.tensors, self._arrange, self._given = list(tensors), arrange, given

    def __call__(self, data: bytes) -> None:
        expected = sum(map(tensor_bytes.size, self.tensors))
        if len(data) != expected:
            raise CollectiveMismatch(f"{len(data)} bytes came where this rank expects {expected}: the others' sizes are not what it was called with")
        start, pieces = 0, memoryview(self._arrange(data) if self._arrange else data)
        for tensor in self.tensors:
            end = start + tensor_bytes.size(tensor)
            tensor_bytes.fill(tensor, pieces[start:end])
            start = end

    def poison(self) -> None:
        """What is read stays: others may read it as well while the collective is under way."""
        kept = None if self._given is None else self._given.detach().clone()
        for tensor in self.tensors:
            tensor_bytes.poison(tensor)
        if kept is not None:
            self._given.data.copy_(kept)


class Ignore(Fill):
    """Of a rank that a collective gives nothing to, or nothing that it has not."""

    def __init__(self) -> None:
        super().__init__([])

    def __call__(self, data: bytes) -> None:
        pass


@dataclass
class Pending:
    """One request on its way: its number, and where the result goes."""
    number: int
    take: Fill


class GroupWork(dist.Work):
    """Of one or more requests. Deadlines are the command's: the timeouts that torch hands over are not looked at."""

    def __init__(self, requests: Requests, pending: list[Pending], outputs: list[torch.Tensor], source: int = -1) -> None:
        super().__init__()
        self._requests, self._pending, self._outputs, self._source = requests, list(pending), outputs, source
        self._lock = threading.RLock()
        self._error: Exception | None = None
        self._told_to_go_on, self._issued_when_asked = False, -1
        self._future: torch.futures.Future | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        with self._lock:
            while not self.try_to_deliver():
                pass  # told to go on, though there is nothing else that this thread could do: the next time is for good
        return True

    def try_to_deliver(self) -> bool:
        """False where the command says to go on without the result."""
        with self._lock:
            if self._error is not None:
                raise self._error
            try:
                delivered = self._deliver()
                self._told_to_go_on |= not delivered
                return delivered
            except Exception as error:
                self._error = error
                raise

    def _deliver(self) -> bool:
        while self._pending:
            data = self._requests.result(self._pending[0].number)
            if data is None:
                return False
            self._pending.pop(0).take(data)
        return True

    def is_delivered(self) -> bool:
        return not self._pending

    def first_number(self) -> int | None:
        return self._pending[0].number if self._pending else None

    def poison_until_waited(self) -> None:
        """What a reader finds who does not wait. Results that are there already stay."""
        for pending in self._pending:
            pending.take.poison()

    def is_completed(self) -> bool:
        """Asking is waiting, but for a result that cannot come before this rank goes on. Whether one has arrived by now would differ from run to run."""
        with self._lock:
            issued = self._requests.issued()
            asked, self._issued_when_asked = self._issued_when_asked, issued
            if self.is_delivered() or self._error is not None:
                return True
            if self._told_to_go_on and asked != issued:
                return False
            try:
                return self.try_to_deliver()  # asked a second time and nothing issued since: this thread does nothing else, and may as well wait
            except RuntimeError:
                return True  # is_success() says that it failed, wait() raises it

    def is_success(self) -> bool:
        return self._error is None and self.is_delivered()

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._outputs

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future:
        """Delivers the result here and at once, also where delivery is late: C++ waits on futures, as DDP's reducer does, and nobody sees it."""
        with self._lock:
            if self._future is None:
                self.wait()
                devices = sorted({str(tensor.device) for tensor in self._outputs if tensor.device.type != "cpu"})
                future: torch.futures.Future[Any] = torch.futures.Future(devices=devices or None)
                future.set_result(self._outputs)
                self._future = future
            return self._future


class WorkOfSeveral(GroupWork):
    """What a coalescing manager gives back; the works of its collectives may also be waited for one by one."""

    def __init__(self, requests: Requests, works: list[GroupWork]) -> None:
        super().__init__(requests, [], [tensor for work in works for tensor in work._outputs])
        self._works = works

    def _deliver(self) -> bool:
        return all(work.try_to_deliver() for work in self._works)

    def is_delivered(self) -> bool:
        return all(work.is_delivered() for work in self._works)

    def first_number(self) -> int | None:
        return min((number for work in self._works if (number := work.first_number()) is not None), default=None)

    def poison_until_waited(self) -> None:
        for work in self._works:
            work.poison_until_waited()
