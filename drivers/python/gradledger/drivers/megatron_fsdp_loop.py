"""What the drivers of both versions of Megatron-FSDP have in common."""
from __future__ import annotations

from typing import Iterable

import torch
import torch.distributed as dist

from .. import optimizers
from ..driver import DTYPES, Buffer, Configuration, Refused
from ..meshes import meshes_of
from ..torch_loop import TorchLoop
from . import megatron_fsdp_cpu as cpu
from .fsdp2 import WRAPS
from .fsdp2_model import ShardedModel
from .megatron_fsdp_setup import Shape

DTYPES_OF = ("main_params_dtype", "main_grads_dtype", "grad_comm_dtype")


class OfMegatronFsdp(TorchLoop):
    """A loop around a model whose modules share their parameters out."""

    packages = ("torch", "megatron-fsdp")
    preload = ("torch._dynamo", "torch.distributed.tensor")
    model: ShardedModel

    def check(self, configuration: Configuration) -> None:
        super().check(configuration)
        if "grad_scaler" in configuration.config:
            raise Refused("engine.config has grad_scaler, and a loop of Megatron-FSDP's scales no loss")
        if configuration.config.get("wrap", "layers") not in WRAPS:
            raise Refused(f"engine.config.wrap is {configuration.config['wrap']!r}; expected one of {', '.join(WRAPS)}")
        if any(parameter.tied_to is not None for parameter in configuration.parameters):
            raise Refused("tied parameters; expected each of them used once")
        dtypes_of(configuration)

    def make_model(self) -> ShardedModel:
        names = self.configuration.config.get("mesh")
        self.shape: Shape = (self.groups.size(names[0]), self.groups.size(names[1])) if names else None
        if names:
            meshes_of(self.groups, self.device.type, names)  # refuses what no mesh of ranks in order is
        if self.device.type == "cpu":
            self.stand_in_for_cuda()
            self.notes.append(cpu.NOTE)
        return ShardedModel(self.configuration, self.device)

    def stand_in_for_cuda(self) -> None:
        cpu.cuda_does_nothing()
        cpu.meshes_without_children()
        if not hasattr(dist, "_make_nccl_premul_sum") or dist.get_backend() == "gloo":
            without_nccl()

    # ---- what the rank holds

    def buffers(self, after: str) -> Iterable[Buffer]:
        yield from self.accumulated()
        yield from self.applied.take()[1]
        if after == "step":
            yield from self.weights_of_rank()
            yield from optimizers.moments(self.optimizer, self.names, self.pieces)

    def weights_of_rank(self) -> Iterable[Buffer]:
        """What the rank steps of the weights that compute, and what it is that the optimizer steps."""
        raise NotImplementedError


_collectives: list[cpu.Collectives] = []


def without_nccl() -> None:
    """Once for each process: the next engine finds what the last one put there."""
    if not _collectives:
        _collectives.append(cpu.Collectives())
        cpu.collectives_one_by_one()


def dtypes_of(configuration: Configuration) -> dict[str, torch.dtype | None]:
    given = configuration.config.get("mixed_precision") or {}
    if unknown := sorted(given.keys() - set(DTYPES_OF)):
        raise Refused(f"engine.config.mixed_precision has {', '.join(unknown)}; expected {', '.join(DTYPES_OF)}")
    if wrong := [value for value in given.values() if value is not None and value not in DTYPES]:
        raise Refused(f"engine.config.mixed_precision has {wrong[0]!r}; expected one of {', '.join(DTYPES)}, or null")
    return {key: None if value is None else DTYPES[value] for key, value in given.items()}
