"""Collectives on streams, as NCCL has them: an asynchronous one runs on the stream of its group, which waits for the current stream first; whoever waits for it makes
his current stream wait. One that is not asynchronous runs on the current stream. What it reads and writes is held until somebody has waited."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import recorder as recorders
from .virtual import Event, Stream, current_stream

# The methods of a process group: which of its arguments are read and written, and what it is called in a report.
READ_AND_WRITTEN = ((0,), (0,))
METHODS: dict[str, tuple[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "allreduce": ("all_reduce", READ_AND_WRITTEN), "allreduce_coalesced": ("all_reduce", READ_AND_WRITTEN), "reduce": ("reduce", READ_AND_WRITTEN),
    "broadcast": ("broadcast", READ_AND_WRITTEN), "send": ("send", ((0,), ())), "recv": ("receive", ((), (0,)))}
METHODS |= {name: (kind, ((1,), (0,))) for kind, names in {
    "reduce_scatter": ("reduce_scatter", "reduce_scatter_single", "_reduce_scatter_base", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
    "all_gather": ("allgather", "allgather_coalesced", "all_gather_single", "_allgather_base", "all_gather_single_coalesced", "allgather_into_tensor_coalesced"),
    "gather": ("gather",), "scatter": ("scatter",), "all_to_all": ("alltoall", "all_to_all_single", "alltoall_base")}.items() for name in names}


class Finished:
    """The end of an asynchronous collective, and what must live until somebody has waited for it."""

    def __init__(self, event: Event, held: list[torch.Tensor]) -> None:
        self.event, self.held = event, held

    def wait(self, stream: Stream | None) -> None:
        if recorders.current:
            recorders.current.wait(stream, self.event)
        self.held = []


def install() -> None:
    from ..process_group import LedgerGroup
    from ..work import GroupWork
    if hasattr(GroupWork, "finished"):
        return
    GroupWork.finished = ()
    for name, (kind, (reads, writes)) in METHODS.items():
        setattr(LedgerGroup, name, on_its_stream(getattr(LedgerGroup, name), kind, reads, writes))
    LedgerGroup._end_coalescing = several(LedgerGroup._end_coalescing)
    GroupWork.wait = waited(GroupWork.wait)
    GroupWork.is_completed = completed(GroupWork.is_completed)


def on_its_stream(method: Callable, kind: str, reads: tuple[int, ...], writes: tuple[int, ...]) -> Callable:
    from ..process_group import is_asynchronous

    @functools.wraps(method)
    def call(group: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = recorders.current
        if recorder is None or recorder.paused:
            return method(group, *args, **kwargs)
        with recorder.pause():
            work = method(group, *args, **kwargs)
        opts = kwargs.get("opts", args[-1] if args else None)
        here = stream = current_stream()
        read, written = ([tensor for i in places for tensor in tensors_in(args[i])] for places in (reads, writes))
        if is_asynchronous(opts):
            stream = stream_of(group)
            stream.wait_stream(here)
        recorder.run(stream, kind, read, written)
        if stream is not here:
            work.finished = (Finished(stream.record_event(), read + written),)
            _unwaited.append(work.finished[0])
            _unwaited[:] = [each for each in _unwaited if each.held]
        return work
    return call


# What nobody has waited for yet: NCCL's watchdog lets go of it no earlier than when it is over.
_unwaited: list[Finished] = []


def several(method: Callable) -> Callable:
    @functools.wraps(method)
    def call(group: Any, *args: Any, **kwargs: Any) -> Any:
        works = list(group._coalesced or ())
        out = method(group, *args, **kwargs)
        out.finished = tuple(each for work in works for each in work.finished)
        return out
    return call


def waited(method: Callable) -> Callable:
    @functools.wraps(method)
    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = recorders.current
        if recorder is None or recorder.paused:
            return method(work, *args, **kwargs)
        with recorder.pause():
            out = method(work, *args, **kwargs)
        for each in work.finished:
            each.wait(current_stream())
        return out
    return wait


def completed(method: Callable) -> Callable:
    @functools.wraps(method)
    def is_completed(work: Any) -> bool:
        recorder = recorders.current
        if recorder is None or recorder.paused:
            return method(work)
        with recorder.pause():
            out = method(work)
        for each in work.finished if out else ():
            each.wait(None)
        return out
    return is_completed


def stream_of(group: Any) -> Stream:
    if not hasattr(group, "_virtual_stream"):
        ranks = ", ".join(map(str, group._members))
        group._virtual_stream = Stream(name=f"collectives' stream of ranks {ranks}")
    return group._virtual_stream


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)
