"""Megatron-FSDP, the first version: megatron_fsdp.fully_shard_model and fully_shard_optimizer of the package megatron-fsdp."""
from __future__ import annotations

import inspect
from typing import Any, Iterator, Mapping

import megatron_fsdp as package
import torch
from torch.utils._pytree import tree_map

from ..driver import Backward, Buffer, Configuration, Piece, Refused, local
from ..model import Graph, Layer
from .fsdp2_model import ShardedModel, Unit
from .megatron_fsdp_loop import OfMegatronFsdp, dtypes_of
from .megatron_fsdp_setup import first_mesh, has_policies, precision_arguments

STRATEGIES = ("optim_grads_params", "no_shard", "optim", "optim_grads")
OUTER = ("no_shard", "optim")
PASSED_ON = ("zero_dp_strategy", "outer_dp_sharding_strategy", "sync_model_each_microbatch", "overlap_grad_reduce", "average_in_collective", "calculate_per_token_loss")


class Wrapped(torch.nn.Module):
    """Hooks of the module that MegatronFSDP.forward calls itself never run: as in Megatron's own wrappers it is not the model."""

    def __init__(self, model: ShardedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, graph: Graph) -> torch.Tensor:
        return self.model(graph)


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
        package.fully_shard_optimizer(*([self.module] if takes_model else []), out)
        return out

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

    def copied(self, state: dict[str, Any]) -> dict[str, Any]:
        """Of a parameter that a rank has nothing of no storage can be copied."""
        return tree_map(lambda value: value.detach().clone() if isinstance(value, torch.Tensor) else value, state)

    # ---- what the rank holds

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
        for stepped, name in self.names.items():
            p, begin, numel = self.pieces(stepped)[0]
            group, item = self.item_of(p)
            yield Buffer(name, "parameter", self.computing(group, item, begin, numel), [(p, begin, numel)])
            if group.main_weight_buffer is not None:
                yield Buffer(f"{name}.main_weight", "master parameter", stepped, [(p, begin, numel)])

    def computing(self, group: Any, item: int, begin: int, numel: int) -> torch.Tensor:
        buffer = group.model_weight_buffer
        if buffer is None:
            return group.params[item].detach().view(-1)[begin:begin + numel]
        if not buffer.is_data_distributed:
            return buffer.get_item(item).view(-1)[begin:begin + numel]
        held = buffer.get_item(item, only_shard=True).view(-1)
        first = begin - buffer._get_item_slice_in_shard(item)[0]
        return held[first:first + numel]
