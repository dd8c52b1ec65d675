"""Drivers by name: those of this package, or `module:factory` of the user's."""
from __future__ import annotations

import importlib
import os
import sys
from importlib import metadata
from typing import Any, Callable

from . import streams
from .driver import Driver

BUILT_IN = {"torch": "gradledger.drivers.torch:Torch", "ddp": "gradledger.drivers.ddp:Ddp", "fsdp2": "gradledger.drivers.fsdp2:Fsdp2",
            "fsdp1": "gradledger.drivers.fsdp1:Fsdp1", "deepspeed": "gradledger.drivers.deepspeed:DeepSpeedDriver", "megatron": "gradledger.drivers.megatron:Megatron",
            "megatron-fsdp": "gradledger.drivers.megatron_fsdp:MegatronFsdp",
            "megatron-fsdp-v2": "gradledger.drivers.megatron_fsdp_v2:MegatronFsdpV2"}
Factory = Callable[[int, int], Driver]


class NoSuchDriver(Exception):
    """The name leads to nothing; the text says where it ended."""


def load(name: str) -> Factory:
    if streams.are_asked_for():
        streams.install()
    place = BUILT_IN.get(name, name)
    module, colon, attribute = place.partition(":")
    if not (module and colon and attribute):
        raise NoSuchDriver(f"{name!r} is no driver; expected one of {', '.join(BUILT_IN)}, or module:factory")
    if name not in BUILT_IN and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it, whoever started us
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise NoSuchDriver(f"{name!r}: {module} has no {attribute}")
        found = getattr(found, part)
    return found


def made(factory: Factory, rank: int, world_size: int) -> Driver:
    out = factory(rank, world_size)
    if not isinstance(out, Driver):
        raise NoSuchDriver(f"{factory!r} made a {type(out).__name__}; expected a gradledger.driver.Driver")
    return out


def versions(driver: Driver) -> dict[str, str]:
    out = {"python": sys.version.split()[0]}
    for package in ("gradledger", *driver.packages):
        module = sys.modules.get(package)
        version = getattr(module, "__version__", None)
        if version is None:
            try:
                version = metadata.version(package)
            except metadata.PackageNotFoundError:
                version = "unknown"
        out[package] = str(version)
    return out
