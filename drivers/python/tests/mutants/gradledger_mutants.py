"""Drivers of frameworks with one fault in their source: a text of a module is replaced while it is imported, so that nothing that is installed changes."""
from __future__ import annotations

import importlib.machinery
import os
import sys
from types import CodeType

sys.path.insert(0, os.path.dirname(__file__))
from catalogue import MUTANTS  # noqa: E402
from removed_waits import REMOVED_WAITS  # noqa: E402

NAME = os.environ.get("GRADLEDGER_MUTANT", "")
MUTANT = next((mutant for mutant in MUTANTS + REMOVED_WAITS if mutant.name == NAME), None)
if NAME and MUTANT is None:
    raise ValueError(f"{NAME!r} is no mutant")
DONE: list[str] = []
_get_code = importlib.machinery.SourceFileLoader.get_code


def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
    if MUTANT is None or fullname != MUTANT.module:
        return _get_code(self, fullname)
    text = self.get_data(self.path).decode()
    if text.count(MUTANT.old) != 1:
        raise ValueError(f"mutant {NAME}: {self.path} has its text {text.count(MUTANT.old)} times; expected once")
    DONE.append(fullname)
    return compile(text.replace(MUTANT.old, MUTANT.new), self.path, "exec")


importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def deepspeed(rank: int, world_size: int):
    from gradledger.drivers.deepspeed import DeepSpeedDriver
    return checked(DeepSpeedDriver(rank, world_size))


def fsdp2(rank: int, world_size: int):
    import torch.distributed.fsdp  # noqa: F401  (what is mutated is imported by it)
    from gradledger.drivers.fsdp2 import Fsdp2
    return checked(Fsdp2(rank, world_size))


def checked(driver):
    if MUTANT is not None and MUTANT.module not in DONE and MUTANT.module in sys.modules:
        raise ValueError(f"mutant {NAME}: {MUTANT.module} was imported before it could be changed")
    return driver
