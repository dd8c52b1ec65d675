"""Every operator that PyTorch runs: what its schema says that it reads and writes, where that lies, and who called it."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from .recorder import Recorder
from .virtual import current_stream

# They change what a tensor looks at, or say something about it, and touch no element.
METADATA = {"resize_", "resize_as_", "_resize_output_", "set_", "set_data", "requires_grad_", "detach_", "as_strided_", "transpose_", "t_", "squeeze_", "unsqueeze_",
            "swapaxes_", "swapdims_", "rename_", "record_stream", "is_same_size", "is_pinned", "_version", "_backward"}
EMPTY = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "empty_quantized"}
# A device's host waits for their result, since it decides on it or on its size.
HOST_WAITS = {"_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount"}
# Collectives are told by the process group, on the streams that they would run on.
COLLECTIVES = {"c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional"}


class Plan:
    """What is the same for all calls of one operator."""

    def __init__(self, operator: Any) -> None:
        schema = operator._schema
        namespace, _, name = schema.name.partition("::")
        self.name = name if namespace == "aten" else f"{namespace}.{name}"
        self.is_nothing = bool(getattr(operator, "is_view", False)) or namespace in COLLECTIVES or namespace == "prim" or name.startswith("sym_") or name in METADATA
        self.is_empty = name in EMPTY
        self.host_waits = name in HOST_WAITS
        # Their schemas may leave out what they write. They are written in terms of others, which are looked at instead.
        self.is_opened = namespace not in COLLECTIVES | {"aten", "prims", "prim"} and operator.has_kernel_for_dispatch_key(torch._C.DispatchKey.CPU)
        self.written = [bool(argument.alias_info and argument.alias_info.is_write) for argument in schema.arguments]
        self.written_by_name = {argument.name for argument, written in zip(schema.arguments, self.written) if written}


class Watch(TorchDispatchMode):
    _plans: dict[Any, Plan] = {}

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if any(issubclass(type_, FakeTensor) for type_ in types):
            return func(*args, **kwargs)  # shapes without memory
        if any(type_.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for type_ in types):
            return NotImplemented  # what it is made of comes here in turn
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = Plan(func)
        if plan.is_nothing or self.recorder.paused:
            return func(*args, **kwargs)
        if plan.is_opened:
            with self:
                return func._op_dk(torch._C.DispatchKey.CPU, *args, **kwargs)
        out = func(*args, **kwargs)
        self.tell(plan, args, kwargs, out)
        return out

    def tell(self, plan: Plan, args: tuple, kwargs: dict[str, Any], out: Any) -> None:
        recorder, stream = self.recorder, current_stream()
        made = list(tensors_in(out))
        if plan.is_empty:
            for tensor in made:
                recorder.allocated(tensor, stream)
            return
        reads: list[torch.Tensor] = []
        writes: list[torch.Tensor] = []
        for value, written in zip(args, plan.written):
            (writes if written else reads).extend(tensors_in(value))
        for name, value in kwargs.items():
            (writes if name in plan.written_by_name else reads).extend(tensors_in(value))
        known = {tensor.untyped_storage()._cdata for tensor in reads + writes}
        fresh = [tensor for tensor in made if tensor.untyped_storage()._cdata not in known]
        if made and not fresh and not writes:
            return  # another look at what is there
        recorder.run(stream, plan.name, reads, writes + fresh)
        if plan.host_waits:
            recorder.join(None, stream)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided and value.device.type == "cpu":
            yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)
