"""Autograd's streams: a node of the backward runs on the stream of its forward, as do the accumulation of what it gives and the hooks behind it. It waits for
the node whose gradient it takes, and not for what hooks have added to that one's stream since."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import recorder as recorders, virtual

SIDE = virtual.Stream(name="side stream")


def current_stream() -> virtual.Stream | None:
    """None where nobody asks."""
    return virtual.current_stream() if recorders.current else None


@contextmanager
def side_stream() -> Iterator[None]:
    """As a model does it that runs a layer beside the others: it begins when what came before is over, and what comes behind waits for it."""
    here = virtual.current_stream()
    SIDE.wait_stream(here)
    with virtual.StreamContext(SIDE):
        yield
    here.wait_stream(SIDE)


@contextmanager
def node_on(stream: virtual.Stream | None, is_last: bool = False) -> Iterator[None]:
    """The stream stays when the node is over, since what follows belongs to it, up to the next node. The last one is back where backward was called, which waits
    for all streams that leaves were on."""
    if stream is None:
        yield
        return
    streams, state = virtual.streams(), virtual.state()
    before, over = streams[-1], state.node_over
    if over is not None and before is not stream:
        stream.wait_event(over)
    if before is not stream:
        state.left.add(before)
    streams[-1] = stream
    try:
        yield
    finally:
        state.node_over = None if is_last else stream.record_event()
        if is_last:
            for each in state.left - {stream}:
                stream.wait_stream(each)
            state.left.clear()
