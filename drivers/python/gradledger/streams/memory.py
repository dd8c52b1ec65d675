"""Where memory comes and goes behind the operators' backs: storages that are resized, and tensors whose use on a stream the allocator is told of."""
from __future__ import annotations

from typing import Any

import torch

from . import recorder as recorders
from .virtual import current_stream

_resize = torch.UntypedStorage.resize_


def resize_(storage: torch.UntypedStorage, size: int) -> Any:
    recorder = recorders.current
    out = _resize(storage, size)
    if recorder is not None and not recorder.paused and storage.device.type == "cpu":
        recorder.resized(storage, current_stream())
    return out


def record_stream(tensor: torch.Tensor, stream: Any) -> None:
    recorder = recorders.current
    if recorder is not None and stream is not None:
        recorder.keep(tensor, stream)


def install() -> None:
    torch.UntypedStorage.resize_ = resize_
    torch.Tensor.record_stream = record_stream
