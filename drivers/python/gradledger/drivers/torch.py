"""A bare optimizer of torch's on one process: what every wrapper is measured against."""
from __future__ import annotations

from typing import Iterable

from ..driver import Buffer, Configuration, Refused
from ..torch_loop import TorchLoop
from .ddp import CONFIG_KEYS


class Torch(TorchLoop):
    """Serves scenarios of DistributedDataParallel too, in a world of one: with nobody to average with, its arguments have nothing to decide."""

    name = "torch"
    frameworks = ("torch", "ddp")
    needs_group = False
    config_keys = CONFIG_KEYS

    def check(self, configuration: Configuration) -> None:
        super().check(configuration)
        if self.world_size != 1:
            raise Refused(f"a bare optimizer is one process; expected world_size 1, not {self.world_size}")

    def configure(self, configuration: Configuration) -> list[str]:
        left_out = sorted(configuration.config.keys() & CONFIG_KEYS)
        return super().configure(configuration) + ([f"no DistributedDataParallel: {', '.join(left_out)} left out"] if left_out else [])

    def accumulated(self) -> Iterable[Buffer]:
        for tensor, name in self.names.items():
            if tensor.grad is not None:
                yield Buffer(f"{name}.grad", "local", tensor.grad, self.pieces(tensor), scale=self.gradient_scale)
