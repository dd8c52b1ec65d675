"""What Megatron-Core asks of CUDA by name, where there is a CPU alone: devices, streams and names of types. Nothing of the framework is changed."""
from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
from typing import Any, Callable, Iterator

import torch
from torch.utils import cpp_extension

FACTORIES = ("empty", "full", "ones", "tensor", "zeros")
NOTE = "no CUDA: its device stands for the CPU, and its streams order nothing"
_installed = False


class Stream:
    """On a CPU work is done in the order of its calls."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def wait_stream(self, stream: Stream) -> None:
        pass


def install() -> None:
    global _installed
    if _installed:
        return
    _installed = True
    importlib.import_module("torch._dynamo")  # in PyTorch 2.5 it asks what a class of streams is, as it is imported
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.stream = lambda stream: contextlib.nullcontext()
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.Stream = Stream
    torch.cuda.default_stream = torch.cuda.current_stream = Stream
    torch.Tensor.cuda = lambda self, *_, **__: self
    for name in FACTORIES:
        setattr(torch, name, on_cpu(getattr(torch, name)))
    torch.Tensor.type = named_as_of_cuda(torch.Tensor.type)
    # Some releases, as 0.15.1, compile for CUDA as they are imported. Without its compiler they do without; with it, and no device to compile for, they fail.
    cpp_extension.CUDA_HOME = None


def on_cpu(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(*arguments: Any, **options: Any) -> torch.Tensor:
        if str(options.get("device")).startswith("cuda"):
            del options["device"]
        return make(*arguments, **options)
    return made


def named_as_of_cuda(of: Callable[..., Any]) -> Callable[..., Any]:
    """The optimizers take parameters by the names of their types."""
    def named(self: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if arguments or options:
            return of(self, *arguments, **options)
        return of(self).replace("torch.", "torch.cuda.", 1)
    return named


@contextlib.contextmanager
def without_apex() -> Iterator[bool]:
    """Before 0.10.0 the distributed optimizer refuses to be made without Apex or Transformer Engine, though it works with torch's Adam as later ones do. Gives
    whether it had to be told otherwise."""
    from megatron.core.optimizer import distrib_optimizer
    refuses = "HAVE_APEX_OR_TE" in distrib_optimizer.DistributedOptimizer.__init__.__code__.co_names and not distrib_optimizer.HAVE_APEX_OR_TE
    if refuses:
        distrib_optimizer.HAVE_APEX_OR_TE = True
    try:
        yield refuses
    finally:
        if refuses:
            distrib_optimizer.HAVE_APEX_OR_TE = False


@functools.cache
def let_nothing_be_quantized() -> bool:
    """Without Transformer Engine some releases, as 0.12.0, refuse to quantize even where no parameter is of fp8, so that no step of the distributed optimizer
    ends. Later ones return there, and so do all with Transformer Engine. Returns whether it had to be made so here."""
    if importlib.util.find_spec("megatron.core.fp8_utils") is None:  # before 0.12.0
        return False
    from megatron.core import fp8_utils
    quantize = getattr(fp8_utils, "_quantize_param_shard_impl", None)
    if quantize is None or importlib.util.find_spec("transformer_engine") is not None:
        return False
    try:
        quantize([], [], [], None, None)
        return False
    except RuntimeError:
        fp8_utils._quantize_param_shard_impl = lambda parameters, *rest: quantize(parameters, *rest) if parameters else None
        return True
