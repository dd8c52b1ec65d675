"""PyTorch's fully_shard (FSDP2): each parameter is cut along its first dimension."""
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Iterable, Iterator

import torch

from ..driver import DTYPES, Buffer, Configuration, Piece, Refused, local
from ..inside_backwards import InsideBackwards, in_hooks
from ..meshes import meshes_of
from ..model import Graph
from ..streams import virtual
from ..torch_loop import TorchLoop
from .fsdp2_model import ShardedModel

try:
    from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
except ImportError:  # PyTorch 2.4 and 2.5 have it here alone
    from torch.distributed._composable.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard

WRAPS = ("layers", "root")
OVERRIDES = "param_dtype_override_fn"

without_events = not hasattr(FSDPModule, "set_force_sum_reduction_for_comms")  # up to 2.7


def stand_in_for_a_device() -> None:
    """fully_shard asks a device for streams and events; on a CPU it does without since 2.8. And the end of a backward may ask for a stream of an
    accelerator, wherever the weights are."""
    if without_events:
        virtual.install()
    for asked in (torch.cuda, getattr(torch, "accelerator", None)):
        if asked is not None and not asked.is_available():
            asked.current_stream = virtual.current_stream


stand_in_for_a_device()


class Fsdp2(TorchLoop):
    """Whether a backward is reduced is decided while it runs. Sums that were not reduced stay where no zero_grad reaches them."""

    name = "fsdp2"
    frameworks = ("fsdp2",)
    preload = ("torch._dynamo", "torch.distributed.tensor")
    config_keys = frozenset({"reshard_after_forward", "mixed_precision", "offload", "wrap", "units", "nested", "rows", "mesh", "gradient_divide_factor",
                             "force_sum_reduction_for_comms", "reduce_scatter_unused_params", "calls_unused_units", "input_requires_grad", "root_parameters_last", "plain",
                             "grad_dtype", "optimizer_in_backward", "clips_a_used_up_generator"})
    streams = True
    own_events = ("set_requires_gradient_sync", "set_requires_all_reduce", "set_is_last_backward", "set_reshard_after_forward", "set_reshard_after_backward",
                  "set_reduce_scatter_unused_params", "set_gradient_divide_factor", "set_force_sum_reduction_for_comms", "set_manual_backward_finalization",
                  "unshard", "reshard", "reset_iter_state", "finalize_backward", "wait_for_gradient_reduction")
    lays_out_ranks = True
    reduction: Any = None  # what finalize_backward(async_op=True) returned last

    def check(self, configuration: Configuration) -> None:
        super().check(configuration)
        if configuration.config.get("wrap", "layers") not in WRAPS:
            raise Refused(f"engine.config.wrap is {configuration.config['wrap']!r}; expected one of {', '.join(WRAPS)}")
        if self.device.type == "cpu" and not hasattr(FSDPModule, "set_unshard_in_backward"):
            raise Refused(f"fully_shard of PyTorch {torch.__version__} asks for CUDA; expected PyTorch 2.6 or later, or a GPU")
        mixed_precision(configuration)
        if unknown := sorted(overrides(configuration).keys() - {parameter.name for parameter in configuration.parameters}):
            raise Refused(f"engine.config.mixed_precision.{OVERRIDES} names {', '.join(unknown)}; expected parameters")
        if overrides(configuration) and OVERRIDES not in MixedPrecisionPolicy.__dataclass_fields__:
            raise Refused(f"MixedPrecisionPolicy of PyTorch {torch.__version__} has no {OVERRIDES}")

    def make_model(self) -> ShardedModel:
        meshes = meshes_of(self.groups, self.device.type, self.configuration.config.get("mesh"))
        self.mesh, self.shards, self.place = meshes.data, meshes.shards, meshes.place
        return ShardedModel(self.configuration, self.device, meshes.tensor_parallel)

    def loss(self, graph: Graph) -> torch.Tensor:
        if not self.configuration.config.get("input_requires_grad"):
            return self.module(graph)
        return self.module(graph, torch.zeros((), device=self.device, requires_grad=True))

    def wrap(self, model: ShardedModel) -> torch.nn.Module:
        config = self.configuration.config
        if without_events:
            self.notes.append(f"torch.cpu of PyTorch {torch.__version__} has no events of streams: gradledger's stand in, which order nothing")
        arguments: dict[str, Any] = {"mesh": self.mesh, "mp_policy": self.policy(model)}
        if config.get("reshard_after_forward") is not None:
            arguments["reshard_after_forward"] = config["reshard_after_forward"]
        if config.get("offload"):
            arguments["offload_policy"] = CPUOffloadPolicy(pin_memory=self.device.type != "cpu")
        if any(parameter.tied_to is not None for parameter in self.configuration.parameters) and config.get("wrap", "layers") == "layers":
            self.notes.append("layers with tied weights are sharded with the root, as fully_shard wants them in one group")
        if (dtype := config.get("grad_dtype")) is not None:
            self.set_dtype_of_gradients(model, dtype)
        for module in model.sharded():
            fully_shard(module, **arguments)
        fully_shard(model, **arguments)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                self.set_reductions(module)
        numbers = {model.layers[p].weight: p for p in model.weights}
        self.sharded = [(numbers[each.sharded_param], each) for module in model.modules() if isinstance(module, FSDPModule) for each in parameters_of(module)]
        return model

    def policy(self, model: ShardedModel) -> MixedPrecisionPolicy:
        given: dict[str, Any] = mixed_precision(self.configuration)
        if said := overrides(self.configuration):
            names = {id(model.layers[p].weight): self.configuration.parameters[p].name for p in model.weights}
            given[OVERRIDES] = lambda parameter: said.get(names[id(parameter)])
        return MixedPrecisionPolicy(**given, cast_forward_inputs=False)

    def set_dtype_of_gradients(self, model: ShardedModel, dtype: str) -> None:
        if not hasattr(torch.Tensor, "grad_dtype"):
            raise Refused(f"PyTorch {torch.__version__} has no Tensor.grad_dtype")
        if dtype not in DTYPES:
            raise Refused(f"engine.config.grad_dtype is {dtype!r}; expected one of {', '.join(DTYPES)}")
        for parameter in model.parameters():
            parameter.grad_dtype = DTYPES[dtype]

    def set_reductions(self, module: FSDPModule) -> None:
        config = self.configuration.config
        if (factor := config.get("gradient_divide_factor")) is not None:
            self.divide_by(module, factor)
        if config.get("force_sum_reduction_for_comms"):
            self.known_of(module, "set_force_sum_reduction_for_comms")(True)
        if config.get("reduce_scatter_unused_params"):
            self.known_of(module, "set_reduce_scatter_unused_params")(True)

    def divide_by(self, module: FSDPModule, factor: float) -> None:
        self.known_of(module, "set_gradient_divide_factor", "set_reduce_scatter_divide_factor")(factor)

    def known_of(self, module: FSDPModule, *names: str) -> Any:
        for name in names:
            if hasattr(module, name):
                return getattr(module, name)
        raise Refused(f"fully_shard of PyTorch {torch.__version__} has no {names[0]}")

    def piece(self, number: int, tensor: torch.Tensor) -> Piece:
        numel, rows = self.configuration.parameters[number].numel, self.model.shape(self.configuration, number)[0]
        per_rank = -(-rows // self.shards) * (numel // max(1, rows))
        return (number, min(self.place % self.shards * per_rank, numel), local(tensor).numel())

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.module.set_requires_gradient_sync(True)

    def enter_no_sync(self) -> None:
        if self.blocks:
            raise Refused("fully_shard has a switch and no block, so that there is none inside another")
        self.enter_block(self.no_sync())

    def exit_no_sync(self, raising: bool = False) -> None:
        self.exit_block(raising)

    def of(self, unit: int | None) -> FSDPModule:
        return self.module if unit is None else self.module.called[unit]

    def set_requires_gradient_sync(self, value: bool, unit: int | None = None, recurse: bool = True) -> None:
        self.of(unit).set_requires_gradient_sync(value, recurse=recurse)

    def set_requires_all_reduce(self, value: bool, unit: int | None = None, recurse: bool = True) -> None:
        self.of(unit).set_requires_all_reduce(value, recurse=recurse)

    def set_is_last_backward(self, value: bool, unit: int | None = None) -> None:
        self.of(unit).set_is_last_backward(value)

    def set_reshard_after_forward(self, value: bool, unit: int | None = None, recurse: bool = True) -> None:
        self.known_of(self.of(unit), "set_reshard_after_forward")(value, recurse=recurse)

    def set_reshard_after_backward(self, value: bool, unit: int | None = None, recurse: bool = True) -> None:
        self.of(unit).set_reshard_after_backward(value, recurse=recurse)

    def set_reduce_scatter_unused_params(self, value: bool, unit: int | None = None, recurse: bool = True) -> None:
        self.known_of(self.of(unit), "set_reduce_scatter_unused_params")(value, recurse=recurse)

    def set_gradient_divide_factor(self, value: float, unit: int | None = None) -> None:
        self.divide_by(self.of(unit), value)

    def set_force_sum_reduction_for_comms(self, value: bool, unit: int | None = None) -> None:
        self.known_of(self.of(unit), "set_force_sum_reduction_for_comms")(value)

    def unshard(self, unit: int | None = None) -> None:
        self.of(unit).unshard()

    def reshard(self, unit: int | None = None) -> None:
        self.of(unit).reshard()

    def reset_iter_state(self, unit: int | None = None) -> None:
        self.known_of(self.of(unit), "reset_iter_state")()

    def set_manual_backward_finalization(self, value: bool, unit: int | None = None) -> None:
        self.known_of(self.of(unit), "set_manual_backward_finalization")(value)

    def finalize_backward(self, async_op: bool = False, unit: int | None = None) -> None:
        handle = self.known_of(self.of(unit), "finalize_backward")(async_op=async_op)
        if handle is not None:
            self.reduction = handle

    def wait_for_gradient_reduction(self) -> None:
        if self.reduction is not None:
            self.reduction.wait()

    def make_inside(self) -> InsideBackwards | None:
        return in_hooks(self.configuration, self.trained(), self.names, self.pieces) if self.configuration.config.get("optimizer_in_backward") else None

    def clip(self, max_norm: float, group: str) -> torch.Tensor:
        """clip_grad_norm_ takes the norm over all ranks by itself. The norm of a rank alone is what a loop has that looks at its shards."""
        parameters = [parameter for parameter, _ in self.gradients()]
        if self.configuration.config.get("clips_a_used_up_generator"):
            return torch.nn.utils.clip_grad_norm_(used_up(parameters), max_norm)
        if self.groups.size(group) == self.world_size:
            norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
            return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        if self.groups.size(group) > 1:
            raise Refused(f"a norm over the group {group!r} of shards that belong to all ranks")
        shards = [gradient.to_local() for _, gradient in self.gradients()]
        norm = torch.nn.utils.get_total_norm(shards)
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # torch's own constant
        for shard in shards:
            shard.mul_(factor)
        return norm

    def buffers(self, after: str) -> Iterable[Buffer]:
        for buffer in super().buffers(after):
            yield replace(buffer, space="host") if self.configuration.config.get("offload") and buffer.role != "local" else buffer

    def accumulated(self) -> Iterable[Buffer]:
        for p, parameter in self.sharded:
            name, whole = self.configuration.parameters[p].name, [(p, 0, self.configuration.parameters[p].numel)]
            unsharded = getattr(getattr(parameter, "_unsharded_param", None), "grad", None)
            beside = parameter.unsharded_accumulated_grad
            if beside is unsharded:  # as of 2.15 it is another name of the same sum
                beside = None
            for own, of in ((unsharded, "unsharded_param.grad"), (beside, "unsharded_accumulated_grad")):
                if own is not None:
                    yield Buffer(f"{name}.{of}", "local", own, whole, scale=self.backward_scale)
            reduced = parameter.sharded_param.grad
            if reduced is not None:
                yield Buffer(f"{name}.grad", "reduced", reduced, self.pieces(parameter.sharded_param), scale=self.gradient_scale)


def used_up(parameters: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """What is left of a generator that something went through before the clip: a count of parameters, say."""
    out = iter(parameters)
    for _ in out:
        pass
    return out


def mixed_precision(configuration: Configuration) -> dict[str, torch.dtype]:
    given = dict(configuration.config.get("mixed_precision") or {})
    given.pop(OVERRIDES, None)
    if unknown := sorted(given.keys() - {"param_dtype", "reduce_dtype"}):
        raise Refused(f"engine.config.mixed_precision has {', '.join(unknown)}; expected param_dtype, reduce_dtype and {OVERRIDES}")
    if wrong := [value for value in given.values() if value is not None and value not in DTYPES]:
        raise Refused(f"engine.config.mixed_precision has {wrong[0]!r}; expected one of {', '.join(DTYPES)}")
    return {key: DTYPES[value] for key, value in given.items() if value is not None}


def overrides(configuration: Configuration) -> dict[str, torch.dtype]:
    """What the function returns for parameters, by their names; None for the others."""
    given = (configuration.config.get("mixed_precision") or {}).get(OVERRIDES) or {}
    if wrong := [value for value in given.values() if value not in DTYPES]:
        raise Refused(f"engine.config.mixed_precision.{OVERRIDES} has {wrong[0]!r}; expected one of {', '.join(DTYPES)}")
    return {name: DTYPES[value] for name, value in given.items()}


def parameters_of(module: FSDPModule) -> Iterator[Any]:
    """Earlier releases have one group of parameters for each module."""
    state = module._get_fsdp_state()
    groups = state._fsdp_param_groups if hasattr(state, "_fsdp_param_groups") else [state._fsdp_param_group]
    for group in groups:
        yield from group.fsdp_params if group is not None else ()
