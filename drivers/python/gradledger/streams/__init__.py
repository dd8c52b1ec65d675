"""Streams where a machine has none: virtual streams and events take the place of a device's, and what a rank does on them is told to the command.

GRADLEDGER_STREAMS=virtual turns it on. Nothing runs at another time than without it: what is told is who waits for whom and which memory each operation
reads and writes, from which the command sees what a device could do in another order (docs/streams.md).
"""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from . import recorder as recorders
from .recorder import Recorder

__all__ = ["Recorder", "are_asked_for", "install", "paused", "recorder_for", "watched"]


def are_asked_for() -> bool:
    return os.environ.get("GRADLEDGER_STREAMS") == "virtual"


def install() -> None:
    """Before a framework is imported. Once for each process, and kept by those that are forked from it."""
    from . import collectives, memory, virtual
    virtual.install()
    memory.install()
    collectives.install()


def recorder_for(message: Mapping[str, Any]) -> Recorder | None:
    """Of a run that is configured; none where its streams are not asked for."""
    recorders.current = Recorder() if message.get("streams") and are_asked_for() else None
    return recorders.current


@contextmanager
def paused() -> Iterator[None]:
    """What is done here is a driver's, and no framework would do it: it is not told."""
    if recorders.current is None:
        yield
        return
    with recorders.current.pause():
        yield


@contextmanager
def watched(recorder: Recorder | None) -> Iterator[None]:
    if recorder is None:
        yield
        return
    from . import virtual
    from .operators import Watch
    virtual.start_over()
    with Watch(recorder):
        yield
