"""The state of a training loop, kept before a window and put back behind it: whatever can be reached from what is trained, and random states."""
from __future__ import annotations

import enum
import gc
import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import torch

Undo = Callable[[], None]
# What is left as it is: it has no state of the training, or one that cannot be taken back (threads, connections, files, iterators over data). So is a Trainer,
# which leads to its data.
LEFT_ALONE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.GeneratorType, enum.Enum, torch.distributed.ProcessGroup,
              torch.distributed.Store, torch.distributed.Work, torch.dtype, torch.device, torch.Size, torch.utils.data.DataLoader, torch.utils.data.Dataset,
              torch.utils.data.Sampler)
PLAIN = (type(None), bool, int, float, complex, str, bytes)
FOUND_BY_CLASS = {"torch.optim.lr_scheduler": ("LRScheduler", "ReduceLROnPlateau"), "torch.amp.grad_scaler": ("GradScaler",), "accelerate": ("Accelerator",),
                  "accelerate.state": ("GradientState",)}


# Of DeepSpeed: memory that a window writes before it reads it, of as many elements as a bucket may have.
SCRATCH = ("ipg_buffer", "_DeepSpeedZeroOptimizer_Stage3__ipg_bucket_flat_buffer")


class KeptState:
    """Of everything that can be reached from `roots`: contents of tensors (through their memory, so that views are kept once), gradients, attributes, lists and dicts.

    Beside it are learning rate schedules and gradient scalers of the process, and random states of PyTorch, its devices, Python and NumPy.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        self.kept: dict[int, Any] = {}  # so that no id is used twice
        self.memory: dict[tuple[Any, int], tuple[Any, int, torch.Tensor]] = {}
        self.undo: list[Undo] = [*random_states()]
        waiting = [*roots, *found_in_process()]
        while waiting:
            waiting.extend(self.keep(waiting.pop()))

    def put_back(self) -> None:
        """May be called once."""
        for storage, size, content in self.memory.values():
            if storage.nbytes() != size:
                storage.resize_(size)
            if size:
                as_bytes(storage).copy_(content)
        for undo in reversed(self.undo):
            undo()

    @property
    def nbytes(self) -> int:
        return sum(size for _, size, _ in self.memory.values())

    def keep(self, thing: Any) -> Iterator[Any]:
        """What it leads to."""
        if isinstance(thing, PLAIN) or id(thing) in self.kept or isinstance(thing, LEFT_ALONE) or type(thing).__name__ == "Trainer":
            return
        self.kept[id(thing)] = thing
        if isinstance(thing, torch.Tensor):
            yield from self.keep_tensor(thing)
        elif isinstance(thing, torch.Generator):
            self.undo.append(lambda state=thing.get_state(): thing.set_state(state))
        elif isinstance(thing, random.Random):
            self.undo.append(lambda state=thing.getstate(): thing.setstate(state))
        elif type(thing).__module__.partition(".")[0] == "numpy":
            self.keep_of_numpy(thing)
        elif isinstance(thing, dict):
            kind = OrderedDict if isinstance(thing, OrderedDict) else dict
            yield from self.keep_entries(thing, kind)
        elif isinstance(thing, (list, deque)):
            entries = list(thing)
            self.undo.append(lambda: restored_list(thing, entries))
            yield from entries
        elif isinstance(thing, set):
            members = set(thing)
            self.undo.append(lambda: None if set.__eq__(thing, members) else (thing.clear(), thing.update(members)))
            yield from members
        elif isinstance(thing, (tuple, frozenset)):
            yield from thing
        yield from self.keep_attributes(thing)

    def keep_entries(self, entries: dict[Any, Any], kind: type[dict]) -> Iterator[Any]:
        """Through the class of Python: frameworks have dicts that do something when they are asked."""
        items = list(kind.items(entries))

        def put_back() -> None:
            now = list(kind.items(entries))
            if len(now) != len(items) or any(a is not c or b is not d for (a, b), (c, d) in zip(now, items)):
                kind.clear(entries)
                for key, value in items:
                    kind.__setitem__(entries, key, value)
        self.undo.append(put_back)
        for _, value in items:
            yield value

    def keep_attributes(self, thing: Any) -> Iterator[Any]:
        if type(thing).__module__.partition(".")[0] in sys.stdlib_module_names and not isinstance(thing, (types.SimpleNamespace, dict, list)):
            return
        attributes = getattr(thing, "__dict__", None)
        if isinstance(attributes, dict):
            scratch = {id(attributes[name]) for name in SCRATCH if name in attributes}
            if type(thing).__name__.startswith("IPGBucket"):
                scratch.add(id(attributes.get("buffer")))
            yield from (value for value in self.keep_entries(attributes, dict) if id(value) not in scratch)
        for name in slots(type(thing)):
            try:
                value = getattr(thing, name)
            except AttributeError:
                continue  # a slot that nothing was put into
            self.undo.append(lambda name=name, value=value: restored_slot(thing, name, value))
            yield value

    def keep_tensor(self, tensor: torch.Tensor) -> Iterator[Any]:
        own = getattr(tensor, "_local_tensor", None)  # of a DTensor, which has no memory itself
        if own is not None:
            self.undo.append(lambda: None if tensor._local_tensor is own else setattr(tensor, "_local_tensor", own))
            yield own
        elif tensor.layout == torch.strided and tensor.device.type != "meta":
            self.keep_memory(tensor)
        if is_leaf(tensor):
            gradient = tensor.grad
            self.undo.append(lambda: None if tensor.grad is gradient else setattr(tensor, "grad", gradient))
            yield gradient

    def keep_memory(self, tensor: torch.Tensor) -> None:
        try:
            storage = tensor.untyped_storage()
            key = (tensor.device, storage._cdata)
        except (NotImplementedError, RuntimeError):
            return  # wrappers without memory
        if key not in self.memory:
            self.memory[key] = (storage, storage.nbytes(), as_bytes(storage).to("cpu", copy=True) if storage.nbytes() else torch.empty(0, dtype=torch.uint8))
        if is_leaf(tensor):
            alias = tensor.detach()
            self.undo.append(lambda: None if same_place(tensor, alias) else setattr(tensor, "data", alias))

    def keep_of_numpy(self, thing: Any) -> None:
        if hasattr(thing, "bit_generator"):
            self.undo.append(lambda state=thing.bit_generator.state: setattr(thing.bit_generator, "state", state))
        elif hasattr(thing, "get_state") and hasattr(thing, "set_state"):
            self.undo.append(lambda state=thing.get_state(): thing.set_state(state))
        elif hasattr(thing, "dtype") and hasattr(thing, "copy") and getattr(thing, "shape", None) and thing.flags.writeable and thing.dtype != object:
            content = thing.copy()
            self.undo.append(lambda: thing.__setitem__(Ellipsis, content))


def is_leaf(tensor: torch.Tensor) -> bool:
    """Autograd does not say so of a view that was made together with others and whose memory was written since."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


def as_bytes(storage: Any) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def same_place(tensor: torch.Tensor, alias: torch.Tensor) -> bool:
    return (tensor.untyped_storage()._cdata == alias.untyped_storage()._cdata and tensor.storage_offset() == alias.storage_offset() and tensor.shape == alias.shape
            and tensor.stride() == alias.stride() and tensor.dtype == alias.dtype)


def restored_list(thing: Any, entries: list[Any]) -> None:
    if len(thing) == len(entries) and all(a is b for a, b in zip(thing, entries)):
        return
    if isinstance(thing, deque):
        thing.clear()
        thing.extend(entries)
    else:
        list.__setitem__(thing, slice(None), entries)


def restored_slot(thing: Any, name: str, value: Any) -> None:
    try:
        if getattr(thing, name, None) is not value:
            object.__setattr__(thing, name, value)
    except (AttributeError, TypeError):
        pass  # one that can only be read


def slots(kind: type) -> Iterator[str]:
    for each in kind.__mro__:
        own = each.__dict__.get("__slots__", ())
        for name in (own,) if isinstance(own, str) else own:
            if name not in ("__dict__", "__weakref__"):
                yield f"_{each.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name


def found_in_process() -> list[Any]:
    """What a loop has beside model and optimizer, and need not be told of."""
    kinds = [getattr(sys.modules[module], name) for module, names in FOUND_BY_CLASS.items() if module in sys.modules for name in names if hasattr(sys.modules[module], name)]
    return [thing for thing in gc.get_objects() if any(kind in type(thing).__mro__ for kind in kinds)]


def random_states() -> Iterator[Undo]:
    yield lambda state=torch.get_rng_state(): torch.set_rng_state(state)
    for name in ("cuda", "xpu", "mps"):
        device = getattr(torch, name, None)
        if device is None or not device.is_available():
            continue
        if hasattr(device, "get_rng_state_all"):
            if getattr(device, "is_initialized", lambda: True)():
                yield lambda states=device.get_rng_state_all(), put=device.set_rng_state_all: put(states)
        else:
            yield lambda state=device.get_rng_state(), put=device.set_rng_state: put(state)
    yield lambda state=random.getstate(): random.setstate(state)
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        yield lambda state=numpy.random.get_state(): numpy.random.set_state(state)
