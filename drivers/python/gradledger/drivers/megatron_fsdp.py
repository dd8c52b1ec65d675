"""Megatron-FSDP, the first version: megatron_fsdp.fully_shard_model and fully_shard_optimizer of the package megatron-fsdp."""
from __future__ import annotations

import inspect
from typing import Any, Iterable, Iterator, Mapping

import megatron_fsdp as package
import torch
import torch.distributed as dist

from ..driver import DTYPES, Backward, Buffer, Configuration, Piece, Refused, local
from ..meshes import meshes_of
from ..model import Graph, Layer
from ..torch_loop import TorchLoop
from . import megatron_fsdp_cpu as cpu
from .fsdp2 import WRAPS
from .fsdp2_model import ShardedModel, Unit
from .megatron_fsdp_setup import Shape, first_mesh, has_policies, precision_arguments

STRATEGIES = ("optim_grads_params", "no_shard", "optim", "optim_grads")
OUTER = ("no_shard", "optim")
DTYPES_OF = ("main_params_dtype", "main_grads_dtype", "grad_comm_dtype")
PASSED_ON = ("zero_dp_strategy", "outer_dp_sharding_strategy", "sync_model_each_microbatch", "overlap_grad_reduce", "average_in_collective", "calculate_per_token_loss")


class Wrapped(torch.nn.Module):
    """Hooks of the module that MegatronFSDP.forward calls itself never run: as in Megatron's own wrappers it is not the model."""

    def __init__(self, model: ShardedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, graph: Graph) -> torch.Tensor:
        return self.model(graph)


class OfMegatronFsdp(TorchLoop):
    """What both versions have in common."""

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
        if not isinstance(configuration.engine.get("as_of", ""), str):
            raise Refused("switches of single behaviours are of the simulator; expected a release")
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

    def of_name(self, name: str) -> int:
        """Number of a parameter, by its name in the model."""
        return self.number_of[name]

    def facts(self) -> dict[str, Any]:
        return self.known


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


class MegatronFsdp(OfMegatronFsdp):
    """Sums lie in buffers of parameter groups. What of them a step applies is installed as param.grad of parameters that the optimizer alone knows."""

    name = "megatron-fsdp"
    frameworks = ("megatron-fsdp",)
    config_keys = frozenset({*PASSED_ON, "fully_shard_optimizer", "mixed_precision", "wrap", "units", "mesh"})
    own_events = ("set_model_auto_sync", "finish_grad_sync")

    def check(self, configuration: Configuration) -> None:
        super().check(configuration)
        config = configuration.config
        for key, known in (("zero_dp_strategy", STRATEGIES), ("outer_dp_sharding_strategy", OUTER)):
            if config.get(key, known[0]) not in known:
                raise Refused(f"engine.config.{key} is {config[key]!r}; expected one of {', '.join(known)}")
        dtypes = dtypes_of(configuration)
        if has_policies(package):
            return
        if dtypes.get("grad_comm_dtype") is not None:
            raise Refused("grad_comm_dtype is known from 0.4.0 on")
        if dtypes.get("main_grads_dtype") not in (None, torch.float32, configuration.model_dtype):
            raise Refused("before 0.4.0 gradients are summed in fp32 or in the dtype of the model")

    def wrap(self, model: ShardedModel) -> torch.nn.Module:
        config = self.configuration.config
        arguments = {key: config[key] for key in PASSED_ON if key in config}
        arguments |= precision_arguments(package, dtypes_of(self.configuration)) | first_mesh(self.shape, self.world_size, self.device.type)
        units = Layer if config.get("units") is None and config.get("wrap", "layers") == "layers" else Unit
        out = package.fully_shard_model(module=Wrapped(model), fsdp_unit_modules=[units], device=self.device, **arguments)
        self.strategy = config.get("zero_dp_strategy", STRATEGIES[0])
        self.raw = {weight: p for p, weight in model.weights.items()}
        self.reduced = self.partial = self.is_applied = False  # since the buffers were cleared
        return out

    def trained(self) -> Mapping[int, torch.Tensor]:
        """Of the parameters those that the optimizer is to have, which the wrapper made."""
        self.module._replace_param_with_distributed_if_needed()
        of = {self.raw[parameter.orig_param]: parameter for _, parameter in self.module.param_and_grad_buffer.optimizer_named_parameters}
        return {p: of[p] for p in self.configuration.trainable}

    def make_optimizer(self) -> torch.optim.Optimizer:
        out = super().make_optimizer()
        self.extended = self.configuration.config.get("fully_shard_optimizer", True)
        if not self.extended:
            return out
        takes_model = "model" in inspect.signature(package.fully_shard_optimizer).parameters  # up to 0.1
        return package.fully_shard_optimizer(*([self.module] if takes_model else []), out)

    def piece(self, number: int, tensor: torch.Tensor) -> Piece:
        group, item = self.item_of(number)
        begin = group.main_grad_buffer._get_item_slice_in_shard(item)[0] if self.strategy != "no_shard" else 0
        return (number, begin, local(tensor).numel())

    def item_of(self, number: int) -> tuple[Any, int]:
        buffer, raw = self.module.param_and_grad_buffer, self.model.weights[number]
        group = buffer.parameter_groups[buffer.param_to_param_group[raw]]
        return group, next(i for i, of_group in enumerate(group.params) if of_group is raw)

    # ---- events

    def backward(self, event: Backward) -> None:
        super().backward(event)
        said = self.module.model_auto_sync or getattr(self.module, "is_last_microbatch", False)
        if said or "grads" in self.strategy:
            self.partial = self.shape is not None and not said  # a sum of a shard's ranks, which the others have yet to add to
            self.reduced = not self.partial

    def enter_no_sync(self) -> None:
        if self.blocks:
            raise Refused("no_sync sets a flag, so that there is none inside another")
        self.enter_block(self.module.no_sync())

    def exit_no_sync(self, raising: bool = False) -> None:
        self.exit_block(raising)

    def set_model_auto_sync(self, value: bool = True) -> None:
        self.module.set_model_auto_sync(value)

    def finish_grad_sync(self) -> None:
        self.module.finish_grad_sync()

    def scale_gradients(self, by: float) -> None:
        self.module.scale_gradients(by)

    def step(self, past_scaler: bool = False) -> None:
        """As Megatron-Core's loop has it where the optimizer was not extended."""
        super().step(past_scaler)
        if not self.extended:
            self.module.install_optimized_model_weights()
        self.is_applied = True

    def zero_grad(self, of: str = "optimizer", set_to_none: bool = True) -> None:
        if of == "optimizer":
            self.optimizer.zero_grad(set_to_none=set_to_none)
        if of == "engine" or not self.extended:
            self.module.zero_grad_buffer()
        self.reduced = self.partial = self.is_applied = False

    # ---- what the rank holds

    def buffers(self, after: str) -> Iterable[Buffer]:
        yield from self.accumulated()
        yield from self.applied.take()[1]
        if after == "step":
            yield from self.weights_of_rank()

    def label(self, buffer: str, group: Any) -> str:
        return f"{buffer}[{self.configuration.parameters[self.raw[group.params[0]]].name}]"

    def accumulated(self) -> Iterator[Buffer]:
        role = "scratch" if self.is_applied or self.partial else "reduced" if self.reduced else "local"
        for group in self.module.param_and_grad_buffer.parameter_groups:
            if group.main_grad_buffer is None:
                continue
            yield self.shown("main_grad_buffer", group, group.main_grad_buffer, role, only_shard=self.strategy != "no_shard")
            helper = getattr(group, "hfsdp_helper_gbuf", None) or getattr(group, "hsdp_gbuf", None)
            if helper is not None:
                yield self.shown("hfsdp_helper_gbuf", group, helper, "scratch", only_shard=helper.is_data_distributed)

    def shown(self, name: str, group: Any, buffer: Any, role: str, only_shard: bool) -> Buffer:
        tensors, pieces = [], []
        for item, parameter in enumerate(group.params):
            tensors.append(buffer.get_item(item, only_shard=only_shard))
            pieces.append((self.raw[parameter], buffer._get_item_slice_in_shard(item)[0] if only_shard else 0, tensors[-1].numel()))
        return Buffer(self.label(name, group), role, tensors, pieces)

    def weights_of_rank(self) -> Iterator[Buffer]:
        """What the rank steps of the weights that compute, and what it is that the optimizer steps."""
        from ..optimizers import moments
        for stepped, name in self.names.items():
            p, begin, numel = self.pieces(stepped)[0]
            group, item = self.item_of(p)
            yield Buffer(name, "parameter", self.computing(group, item, begin, numel), [(p, begin, numel)])
            if group.main_weight_buffer is not None:
                yield Buffer(f"{name}.main_weight", "master parameter", stepped, [(p, begin, numel)])
        yield from moments(self.optimizer, self.names, self.pieces)

    def computing(self, group: Any, item: int, begin: int, numel: int) -> torch.Tensor:
        buffer = group.model_weight_buffer
        if buffer is None:
            return group.params[item].detach().view(-1)[begin:begin + numel]
        if not buffer.is_data_distributed:
            return buffer.get_item(item).view(-1)[begin:begin + numel]
        held = buffer.get_item(item, only_shard=True).view(-1)
        first = begin - buffer._get_item_slice_in_shard(item)[0]
        return held[first:first + numel]
