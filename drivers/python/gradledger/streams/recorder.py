"""What a rank does on its streams, in the order in which its host asks for it, as entries of the message `streams`."""
from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Iterator

import torch

from ..call_site import call_site

HOST = -1
TEXT_MAX = 1024
Range = tuple[int, int, int]  # buffer, first byte, byte behind the last

# Of the run that is going on; none where nobody asked.
current: Recorder | None = None


class Recorder:
    """Streams, events and texts get their numbers when they are first used. Storages are known by their address as long as they live; each allocation has a
    number of its own, so that memory that is used again is not taken for what it was before."""

    def __init__(self) -> None:
        self.entries: list[list[Any]] = []
        self.paused = False
        self.told = 0  # operations
        self.asked: Any = None  # what was asked last whether it is over, and when
        self._texts: dict[str, int] = {"": 0}
        self._new_texts: list[str] = []
        self._streams: dict[Any, int] = {}
        self._new_streams: list[int] = []
        self._events: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._free_events: list[int] = []
        self._buffers: dict[int, tuple[int, int, Any]] = {}  # by address of the storage: its number, its bytes, and what says that it is gone
        self._allocations = 0

    def message(self, number: int) -> dict[str, Any]:
        """What is new since the last one."""
        out = {"type": "streams", "number": number, "texts": self._new_texts, "streams": self._new_streams, "entries": self.entries}
        self._new_texts, self._new_streams, self.entries = [], [], []
        return out

    @contextmanager
    def pause(self) -> Iterator[None]:
        """For work that is not the framework's."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    # ---- order ------------------------------------------------------------------------------------------------------------------------

    def join(self, stream: Any, other: Any) -> None:
        """All that `other` was given so far comes before what `stream` is given from now on; no stream: the host."""
        self.entries.append(["join", self._number(stream), self._number(other)])

    def record(self, stream: Any, event: Any) -> None:
        number = self._events.get(event)
        if number is None:
            number = self._free_events.pop() if self._free_events else len(self._events)
            self._events[event] = number
            weakref.finalize(event, self._free_events.append, number)
        self.entries.append(["record", self._number(stream), number])

    def wait(self, stream: Any, event: Any) -> None:
        number = self._events.get(event)
        if number is not None:
            self.entries.append(["wait", self._number(stream), number])

    def synchronize(self) -> None:
        self.entries.append(["synchronize"])

    # ---- operations -------------------------------------------------------------------------------------------------------------------

    def run(self, stream: Any, name: str, reads: Iterable[torch.Tensor], writes: Iterable[torch.Tensor], site: str | None = None) -> None:
        """Fresh memory among what is written is allocated first."""
        where = self._text(call_site() if site is None else site)
        written = [found for tensor in writes for found in self._ranges(tensor, stream, where)]
        read = [found for tensor in reads for found in self._ranges(tensor, None, where)]
        self.told += 1
        if read or written:
            self.entries.append(["run", self._number(stream), self._text(name), where, read, written])

    def allocated(self, tensor: torch.Tensor, stream: Any) -> None:
        if tensor.untyped_storage().nbytes():
            self._buffer(tensor.untyped_storage(), stream, self._text(call_site()))

    # ---- memory -----------------------------------------------------------------------------------------------------------------------

    def knows(self, storage: torch.UntypedStorage) -> bool:
        return storage._cdata in self._buffers

    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        """record_stream: the memory is not used again before `stream` has come past this point of time at which it is freed."""
        storage = tensor.untyped_storage()
        if storage.nbytes():
            self.entries.append(["keep", self._buffer(storage, None, 0), self._number(stream)])

    def resized(self, storage: torch.UntypedStorage, stream: Any) -> None:
        """The memory behind a storage was given back, or other memory taken. Call before and after: what is gone, and what is there."""
        if storage.nbytes():
            self._buffer(storage, stream, self._text(call_site()))
        elif storage._cdata in self._buffers:
            self._gone(storage._cdata, self._buffers[storage._cdata][0], call_site())

    def name(self, tensor: torch.Tensor, name: str) -> None:
        found = self._buffers.get(tensor.untyped_storage()._cdata)
        if found is not None:
            self.entries.append(["name", found[0], self._text(name)])

    def name_buffers(self, shown: Iterable[Any]) -> None:
        """By the names that a driver shows them under."""
        for buffer in shown:
            for tensor in (buffer.tensor,) if isinstance(buffer.tensor, torch.Tensor) else buffer.tensor:
                self.name(getattr(tensor, "_local_tensor", tensor), buffer.name)

    def _buffer(self, storage: torch.UntypedStorage, stream: Any, site: int) -> int:
        """Its number. What nobody saw being made was there before: it has no stream that it would be given back to."""
        address, size = storage._cdata, storage.nbytes()
        found = self._buffers.get(address)
        if found is not None:
            if found[1] == size:
                return found[0]
            self._gone(address, found[0], self._texts_of(site))
        number, self._allocations = self._allocations, self._allocations + 1
        self._buffers[address] = (number, size, weakref.ref(storage, lambda _: self._gone(address, number)))
        self.entries.append(["allocate", number, size, HOST if stream is None else self._number(stream), site])
        return number

    def _gone(self, address: int, number: int, site: str | None = None) -> None:
        found = self._buffers.get(address)
        if found is not None and found[0] == number:
            del self._buffers[address]
            self.entries.append(["free", number, self._text(call_site() if site is None else site)])

    def _ranges(self, tensor: torch.Tensor, stream: Any, site: int) -> list[Range]:
        storage = tensor.untyped_storage()
        if tensor.numel() == 0 or storage.nbytes() == 0:
            return []
        buffer = self._buffer(storage, stream, site)
        return [(buffer, begin, end) for begin, end in byte_ranges(tensor)]

    # ---- numbers ----------------------------------------------------------------------------------------------------------------------

    def _number(self, stream: Any) -> int:
        if stream is None:
            return HOST
        number = self._streams.get(stream)
        if number is None:
            number = self._streams[stream] = len(self._streams)
            self._new_streams.append(self._text(stream.name))
        return number

    def _text(self, text: str) -> int:
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = len(self._texts)
            self._new_texts.append(text[:TEXT_MAX].encode(errors="replace")[:TEXT_MAX].decode(errors="ignore"))
        return number

    def _texts_of(self, number: int) -> str:
        return next(text for text, known in self._texts.items() if known == number)


def byte_ranges(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """The bytes of a storage that a tensor looks at: one range for each run of neighbours."""
    width = tensor.element_size()
    first = tensor.storage_offset() * width
    if tensor.is_contiguous():
        return [(first, first + tensor.numel() * width)]
    return runs(first, width, sorted(zip(tensor.stride(), tensor.shape)))


def runs(first: int, width: int, dimensions: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Dimensions, as stride and size, from the narrowest on; what is repeated without a stride is there once."""
    length, starts = width, [first]
    for stride, size in dimensions:
        step = stride * width
        if size == 1 or step == 0:
            continue
        if len(starts) == 1 and step <= length:
            length += step * (size - 1)
        else:
            starts = [start + i * step for start in starts for i in range(size)]
    return [(start, start + length) for start in starts]
