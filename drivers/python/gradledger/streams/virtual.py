"""Streams and events with the interface of a device's. They order nothing by themselves: everything runs at once, and the recorder is told what waits."""
from __future__ import annotations

import linecache
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from . import recorder as recorders

ASSIGNED = re.compile(r"([A-Za-z_]\w*)\s*(?::[^=]+)?=[^=]")


class Stream:
    """Hashed and compared by what it is: two streams are never the same one."""

    def __init__(self, device: Any = None, priority: int = 0, *, name: str | None = None, **_: Any) -> None:
        self.device, self.priority = torch.device("cpu") if device is None else device, priority
        self.name = name or name_from_source()

    def wait_stream(self, stream: Stream) -> None:
        if recorders.current:
            recorders.current.join(self, stream)

    def wait_event(self, event: Event) -> None:
        if recorders.current:
            recorders.current.wait(self, event)

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        if recorders.current:
            recorders.current.join(None, self)

    def query(self) -> bool:
        return said_to_be_over(self, self.synchronize)

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Event:
    def __init__(self, *_: Any, **__: Any) -> None:
        """Whether times are taken is not looked at."""

    def record(self, stream: Stream | None = None) -> Event:
        if recorders.current:
            recorders.current.record(stream or current_stream(), self)
        return self

    def wait(self, stream: Stream | None = None) -> None:
        (stream or current_stream()).wait_event(self)

    def synchronize(self) -> None:
        if recorders.current:
            recorders.current.wait(None, self)

    def query(self) -> bool:
        return said_to_be_over(self, self.synchronize)

    def elapsed_time(self, end: Event) -> float:
        return 0.0


class StreamContext:
    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> StreamContext:
        streams().append(self.stream or current_stream())
        return self

    def __exit__(self, *_: Any) -> None:
        streams().pop()


def said_to_be_over(asked: Any, wait: Callable[[], None]) -> bool:
    """Not the first time, since a device may be slow; where nothing else was done before it was asked again, the host does nothing but wait for it."""
    recorder = recorders.current
    if recorder is None:
        return True
    if recorder.asked != (asked, recorder.told):
        recorder.asked = (asked, recorder.told)
        return False
    wait()
    return True


DEFAULT = Stream(name="default stream")


class State(threading.local):
    """Of a thread: the streams that it is in, the current one last; of a backward the end of the last node, and the streams that it has left."""

    def __init__(self) -> None:
        self.streams: list[Stream] = [DEFAULT]
        self.node_over: Event | None = None
        self.left: set[Stream] = set()


_state = State()


def state() -> State:
    return _state


def streams() -> list[Stream]:
    return _state.streams


def start_over() -> None:
    """Whatever an exception has left behind."""
    _state.streams, _state.node_over, _state.left = [DEFAULT], None, set()


def current_stream(device: Any = None) -> Stream:
    return streams()[-1]


def default_stream(device: Any = None) -> Stream:
    return DEFAULT


def synchronize(device: Any = None) -> None:
    if recorders.current:
        recorders.current.synchronize()


def install() -> None:
    """torch.cpu has the functions of a device's module, with streams that do nothing."""
    for name, value in (("Stream", Stream), ("Event", Event), ("StreamContext", StreamContext), ("stream", StreamContext),
                        ("current_stream", current_stream), ("default_stream", default_stream), ("synchronize", synchronize)):
        setattr(torch.cpu, name, value)


def name_from_source() -> str:
    """What the framework calls it: the name that it is assigned to where it is made, and else where that is."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("gradledger."):
        frame = frame.f_back
    for above in range(3):  # a call may be spread over lines
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno - above)
        found = ASSIGNED.search(line)
        if found and (above == 0 or line.count("(") > line.count(")")):
            return found[1].strip("_")
    return f"stream made in {frame.f_code.co_name}"
