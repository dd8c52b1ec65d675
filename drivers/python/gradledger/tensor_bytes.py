"""Tensors as the bytes of the protocol and back, wherever they lie and however they are laid out."""
from __future__ import annotations

import torch

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64", torch.int8: "int8", torch.uint8: "uint8",
         torch.int16: "int16", torch.int32: "int32", torch.int64: "int64", torch.bool: "bool"}


def bytes_of(tensor: torch.Tensor) -> bytearray:
    """The elements in their order, not in that of the memory. A tensor of a GPU is copied on the current stream, which is waited for."""
    out = bytearray(size(tensor))
    if out:  # numpy() would do the same, and leave a tensor whose storage a framework cannot free any more
        torch.frombuffer(out, dtype=tensor.dtype).view(tensor.shape).copy_(tensor.detach())
    return out


def size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def fill(tensor: torch.Tensor, data: bytes | bytearray | memoryview) -> None:
    """Overwrites `tensor` without autograd's notice, as a collective of another backend does."""
    expects_memory(tensor)
    if len(data) != size(tensor):
        raise ValueError(f"{len(data)} bytes for a tensor of {size(tensor)}")
    if tensor.numel() > 0:
        given = torch.frombuffer(bytearray(data), dtype=tensor.dtype)
        tensor.data.copy_(given.view(tensor.shape))


def poison(tensor: torch.Tensor) -> None:
    """What a reader who did not wait must not take for a result: NaN, or the byte 0xA5 repeated. A bool has no value to spare and becomes true."""
    expects_memory(tensor)
    if tensor.numel() > 0 and (tensor.is_floating_point() or tensor.is_complex()):
        tensor.data.fill_(float("nan"))
    elif tensor.numel() > 0:
        fill(tensor, b"\x01" * size(tensor) if tensor.dtype == torch.bool else b"\xa5" * size(tensor))


def expects_memory(tensor: torch.Tensor) -> None:
    """A framework that frees a buffer before its collective is done would have us write over memory of others."""
    if tensor.numel() > 0 and tensor.untyped_storage().nbytes() == 0:
        raise RuntimeError("the memory of a collective's output was freed before its result was there")


def rearranged(data: bytes | bytearray, sizes: list[int], order: list[int]) -> bytes | bytearray:
    """The pieces of `data`, in bytes of `sizes`, in another order."""
    if order == sorted(order):
        return data
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return b"".join(data[starts[i]:starts[i] + sizes[i]] for i in order)
