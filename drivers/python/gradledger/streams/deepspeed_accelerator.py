"""The accelerator that DeepSpeed asks for streams: its own one of CPUs, which answers as that of CUDA does."""
from __future__ import annotations

from typing import Any

from . import virtual


def install(accelerator: Any) -> None:
    """Whoever has the accelerator already keeps it: it is made another kind of the same thing."""
    if accelerator.device_name() == "cpu" and accelerator.current_stream() is None:
        accelerator.__class__ = virtual_kind(type(accelerator))


def virtual_kind(cpu: type) -> type:
    class VirtualAccelerator(cpu):
        Stream = virtual.Stream
        Event = virtual.Event

        def is_synchronized_device(self) -> bool:
            return False

        use_host_timers = resolves_data_dependency = handles_memory_backpressure = is_synchronized_device

        def stream(self, stream: virtual.Stream | None) -> virtual.StreamContext:
            return virtual.StreamContext(stream)

        def current_stream(self, device_index: Any = None) -> virtual.Stream:
            return virtual.current_stream()

        def default_stream(self, device_index: Any = None) -> virtual.Stream:
            return virtual.DEFAULT

        def synchronize(self, device_index: Any = None) -> None:
            virtual.synchronize()

        def empty_cache(self) -> None:
            """Blocks are given back to the device, which waits for all that is under way."""
            virtual.synchronize()

    return VirtualAccelerator
