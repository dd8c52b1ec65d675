"""DeepSpeed as it runs without a GPU and with nothing compiled: what an environment needs, a configuration for it, and base optimizers of PyTorch."""
from __future__ import annotations

import contextlib
import copy
import functools
import logging
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .. import optimizers, streams
from ..driver import Configuration, Refused
from ..streams import deepspeed_accelerator

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # else it looks for compilers and drivers of other devices
os.environ.setdefault("DS_BUILD_OPS", "0")

import deepspeed  # noqa: E402
from deepspeed.accelerator import get_accelerator  # noqa: E402
from deepspeed.ops.adam import FusedAdam  # noqa: E402

STEPS_PER_PRINT = 1 << 30
MUON_NOTE = "Muon's orthogonalization is left out: the gradient that its momentum takes in stands where the update would, and nothing is clipped by the norm of that"


def mend() -> None:
    """Gates of the CPU, and what costs time and shows nothing. What makes, moves or uses a gradient stays as it is."""
    silence()
    keep_norms()
    if get_accelerator().device_name() != "cpu":
        return
    if streams.are_asked_for():
        deepspeed_accelerator.install(get_accelerator())
    accelerator = type(get_accelerator())
    accelerator.is_fp16_supported = lambda self: True
    accelerator.FloatTensor = property(lambda self: functools.partial(torch.tensor, dtype=torch.float))  # as that of CUDA, which takes a number too
    accelerator.supported_dtypes = lambda self: [torch.float, torch.half, torch.bfloat16]
    backend = sys.modules["deepspeed.comm.torch"]  # the package's attribute of that name is PyTorch itself
    if hasattr(backend, "build_shm_op"):
        backend.build_shm_op = lambda: None  # collectives in shared memory, which would be compiled
    if hasattr(backend, "has_coalescing_manager"):
        known = backend.has_coalescing_manager
        backend.has_coalescing_manager = lambda: known() and not is_gloo()
    sort_by_types_of_a_device("deepspeed.runtime.zero.stage_1_and_2", accelerator)
    let_record_of_no_stream()


sorts_by_types = False  # the release, where that was mended


class OfDevice:
    """A gradient that names its type as it would on a device."""

    def __init__(self, tensor: torch.Tensor, device: str) -> None:
        self.tensor, self.device = tensor, device

    def type(self) -> str:
        return self.tensor.type().replace("torch.", f"torch.{self.device}.")


def sort_by_types_of_a_device(module: str, accelerator: type) -> None:
    """Older releases sort gradients that lie apart by types like torch.cuda.FloatTensor. Those of a CPU do not name it, and were never reduced."""
    zero, name = sys.modules.get(module), "split_half_float_double"
    own = getattr(zero, name, None)
    if own is None or own([torch.zeros(1)]):
        return
    device = accelerator().device_name()
    setattr(zero, name, lambda tensors: [[one.tensor for one in bucket] for bucket in own([OfDevice(tensor, device) for tensor in tensors])])
    global sorts_by_types
    sorts_by_types = True


norms: list[float] = []  # by which stage 0 in fp32 has clipped, whose engine does not keep them


def keep_norms() -> None:
    engine = sys.modules["deepspeed.runtime.engine"]
    own = engine.clip_grad_norm_

    def kept(*arguments: Any, **named: Any) -> Any:
        norm = own(*arguments, **named)
        norms.append(float(norm))
        return norm

    engine.clip_grad_norm_ = kept


def let_record_of_no_stream() -> None:
    """The current stream of a CPU is None, which record_stream() refuses; stage 3 asks it of what is left in param.grad."""
    own = torch.Tensor.record_stream
    torch.Tensor.record_stream = lambda self, stream: None if stream is None else own(self, stream)


def is_gloo() -> bool:
    """Which has no coalescing manager, though PyTorch has."""
    return torch.distributed.is_initialized() and torch.distributed.get_backend() == "gloo"


def mended(configuration: Configuration, config: Mapping[str, Any]) -> list[str]:
    """What of it matters to a configuration."""
    out = []
    if configuration.model_dtype == torch.float16 and get_accelerator().device_name() == "cpu":
        out.append("DeepSpeed is told that the CPU does fp16")
    zero = config.get("zero_optimization") or {}
    if zero.get("stage") in (1, 2) and not zero.get("contiguous_gradients", True) and sorts_by_types:
        out.append("gradients that lie apart are sorted by the types that a GPU's have, since those of a CPU are never reduced")
    if zero.get("stage") == 3 and is_gloo():
        out.append("collectives that DeepSpeed would coalesce are issued one by one, as gloo has no manager for them")
    return out


def silence() -> None:
    """Reports of memory collect garbage and read /proc, several times for each engine."""
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    reporter = getattr(sys.modules["deepspeed.runtime.utils"], "see_memory_usage", None)
    for name, module in list(sys.modules.items()):
        if name.startswith("deepspeed") and reporter is not None and getattr(module, "see_memory_usage", None) is reporter:
            module.see_memory_usage = lambda message, force=False: None


def join_group() -> None:
    """DeepSpeed takes over the process group that there is. It reads ranks from the environment, as of a launcher."""
    rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    for name, value in (("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", world_size), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", 29500)):
        os.environ.setdefault(name, str(value))
    if not deepspeed.comm.is_initialized():
        deepspeed.init_distributed(torch.distributed.get_backend(), auto_mpi_discovery=False, dist_init_required=False, verbose=False)


class SequenceParallelUnit:
    """DeepSpeed's own mpu for ranks that share a sequence, of a model that nobody has cut: its own calls those ranks model-parallel too."""

    def __init__(self, unit: Any) -> None:
        self.unit = unit
        alone = [torch.distributed.new_group([rank]) for rank in range(torch.distributed.get_world_size())]
        self.alone = alone[torch.distributed.get_rank()]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unit, name)

    def get_model_parallel_rank(self) -> int:
        return 0

    def get_model_parallel_world_size(self) -> int:
        return 1

    def get_model_parallel_group(self) -> Any:
        return self.alone


def sequence_parallel_unit(shared: int) -> SequenceParallelUnit:
    try:
        from deepspeed.runtime.sequence_parallel import parallel_state_sp as unit
    except ImportError as error:
        raise Refused(f"ranks that share a sequence, for which this release has no mpu: {error}") from error
    unit._SEQUENCE_PARALLEL_GROUP = unit._SEQUENCE_DATA_PARALLEL_GROUP = None  # of an engine before
    unit.initialize_sequence_parallel(shared)
    return SequenceParallelUnit(unit)


def autotp_size(configuration: Configuration) -> int:
    return max(1, (configuration.config.get("tensor_parallel") or {}).get("autotp_size", 0))


def tensor_parallel_ranks() -> list[int]:
    return torch.distributed.get_process_group_ranks(sys.modules["deepspeed.utils.groups"].get_tensor_model_parallel_group())


def leave_group() -> None:
    """Groups that DeepSpeed keeps for the next engine are of no use where the process group is another one by then."""
    groups = sys.modules["deepspeed.utils.groups"]
    for name in ("_WORLD_GROUP", "_ZERO_PARAM_INTRA_PARALLEL_GROUP"):
        if hasattr(groups, name):
            setattr(groups, name, None)
    sys.modules["deepspeed.comm.comm"].cdb = None


def take_down(engine: Any) -> None:
    """Nothing of it stays: neither its hooks, nor what keeps it from being collected. Stage 3 remembers every module that it ever hooked."""
    wrapper = getattr(engine, "optimizer", None)
    groups = sys.modules["deepspeed.utils.groups"]
    groups.mpu = None  # else the next engine has it too, and groups that AutoTP made
    for name in ("_TENSOR_MODEL_PARALLEL_GROUP", "_MODEL_PARALLEL_GROUP", "_DATA_PARALLEL_GROUP"):
        if hasattr(groups, name):
            setattr(groups, name, None)
    with contextlib.suppress(Exception):
        engine.destroy()
    if hasattr(wrapper, "grad_accs"):
        wrapper.grad_accs.clear()  # nodes of autograd: a cycle through them is none that Python sees
    stack = getattr(sys.modules.get("deepspeed.runtime.zero.parameter_offload"), "FWD_MODULE_STACK", None)
    if stack is not None:
        stack.clear()
    for cache in caches_of("deepspeed.runtime.zero.partitioned_param_coordinator", "PartitionedParameterCoordinator"):
        cache.cache_clear()


def caches_of(module: str, name: str) -> Iterator[Any]:
    """Of the methods of a class, as they stand there or in the closure of what wraps them."""
    for method in vars(getattr(sys.modules.get(module), name, object)).values():
        for function in (method, *(cell.cell_contents for cell in getattr(method, "__closure__", None) or ())):
            if hasattr(function, "cache_clear"):
                yield function


# ---- the configuration --------------------------------------------------------------------------------------------------------------------


def config_of(configuration: Configuration) -> dict[str, Any]:
    """The scenario's, and what runs outside of a launcher need. The base optimizer is made here and not by DeepSpeed, who would compile it."""
    out = copy.deepcopy(dict(configuration.config))
    ranks, shared, stages = torch.distributed.get_world_size(), configuration.engine.get("sequence_parallel_size", 1), configuration.engine.get("pipeline_stages", 1)
    if shared > 1 and (stages > 1 or any(parameter.expert is not None or parameter.part for parameter in configuration.parameters)):
        raise Refused("ranks that share a sequence beside pipelines, experts or tensor-parallel ranks")
    out.pop("optimizer", None)
    if uses_muon(configuration):
        out["optimizer"] = muon(configuration, out)
    out.setdefault("train_micro_batch_size_per_gpu", micro_batch_size(out, ranks // (stages * shared)))
    out |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "steps_per_print": STEPS_PER_PRINT, "wall_clock_breakdown": False,
            "dump_state": False, "memory_breakdown": False}
    for dtype, section in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        if configuration.model_dtype == dtype:
            out[section] = {"enabled": True} | dict(out.get(section) or {})
    if configuration.linear or uses_muon(configuration):
        out["gradient_clipping"] = 0.0
    zero = out.get("zero_optimization") or {}
    for key in ("offload_optimizer", "offload_param"):
        if (zero.get(key) or {}).get("device") not in (None, "none", "cpu"):
            raise Refused(f"the driver of DeepSpeed has no {key} to {zero[key]['device']}")
    return out


def micro_batch_size(config: Mapping[str, Any], ranks: int) -> int:
    """What is left of the whole batch where the scenario states that alone."""
    whole = config.get("train_batch_size")
    if whole is None:
        return 1
    return max(1, whole // (config.get("gradient_accumulation_steps", 1) * ranks))


def offloads_optimizer(config: Mapping[str, Any]) -> bool:
    return ((config.get("zero_optimization") or {}).get("offload_optimizer") or {}).get("device") == "cpu"


# ---- base optimizers ----------------------------------------------------------------------------------------------------------------------


def base_optimizer(configuration: Configuration, parameters: Mapping[int, torch.nn.Parameter]) -> tuple[torch.optim.Optimizer | None, list[str]]:
    """`parameters` are those that have a gradient, by number. None: DeepSpeed makes its own. Also says what was taken instead of what the scenario means."""
    if uses_muon(configuration):
        return None, [MUON_NOTE]
    settings = optimizers.settings(configuration)
    type_ = settings["type"]
    groups, arguments = param_groups(configuration, parameters), optimizers.arguments(configuration)
    if type_ == "SGD" or settings.get("torch_adam"):
        return optimizers.KINDS[type_][0](groups, **arguments), []
    if offloads_optimizer(configuration.config):
        return optimizers.KINDS[type_][0](groups, **arguments), [f"torch.optim.{type_} in place of DeepSpeedCPUAdam, which would be compiled"]
    made = UncompiledFusedAdam(groups, adam_w_mode=type_ == "AdamW", **arguments)
    return made, ["FusedAdam's arithmetic is done by PyTorch, as its kernel would be compiled"]


def param_groups(configuration: Configuration, parameters: Mapping[int, torch.nn.Parameter]) -> list[dict[str, Any]]:
    """Experts have groups of their own, which DeepSpeed's function for that splits off."""
    groups = optimizers.param_groups(configuration, parameters)
    if all(parameter.expert is None for parameter in configuration.parameters):
        return groups
    split = sys.modules["deepspeed.moe.utils"].split_params_into_different_moe_groups_for_optimizer
    return split([group | {"name": f"group {number}"} for number, group in enumerate(groups)])


def uses_muon(configuration: Configuration) -> bool:
    return (configuration.engine.get("optimizer") or configuration.config.get("optimizer") or {}).get("type") == "Muon"


def muon(configuration: Configuration, config: Mapping[str, Any]) -> dict[str, Any]:
    """As a configuration has it, where DeepSpeed makes the optimizer itself."""
    if configuration.engine.get("param_groups"):
        raise Refused("Muon with param_groups: DeepSpeed makes its groups itself")
    if offloads_optimizer(config) or not (config.get("zero_optimization") or {}).get("stage"):
        raise Refused("Muon without stage 1, 2 or 3, or with offload")
    of_config = configuration.config.get("optimizer") or {}
    given = configuration.engine.get("optimizer") or of_config.get("params", {})
    return {"type": "Muon", "params": {"lr": 1.0} | {key: given[key] for key in ("lr", "momentum", "weight_decay") if key in given}}


class UncompiledFusedAdam(FusedAdam):
    """A FusedAdam to whoever asks, since wrappers are chosen by that, with its own step, which counts as it does; the kernel's formulas are written out."""

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float, weight_decay: float, adam_w_mode: bool) -> None:
        torch.optim.Optimizer.__init__(self, params, {"lr": lr, "bias_correction": True, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.adam_w_mode = int(adam_w_mode)
        self.set_grad_none = True
        self._dummy_overflow_buf = torch.zeros(1, dtype=torch.int)
        self.multi_tensor_adam = adam_of_lists


@torch.no_grad()
def adam_of_lists(_chunk: int, _flag: torch.Tensor, lists: Sequence[Sequence[torch.Tensor]], lr: float, beta1: float, beta2: float, eps: float, step: int,
                  adam_w_mode: int, _bias_correction: int, weight_decay: float) -> None:
    """As the kernel is called: gradients, parameters, both moments, and one number of the step for all of them."""
    for gradient, parameter, average, of_squares in zip(*lists):
        if not adam_w_mode and weight_decay:
            gradient = gradient + weight_decay * parameter
        average.mul_(beta1).add_(gradient * (1 - beta1))
        of_squares.mul_(beta2).add_(gradient * (1 - beta2) * gradient)
        denominator = (of_squares / (1 - math.pow(beta2, step))).sqrt() + eps
        change = average / (1 - math.pow(beta1, step)) / denominator
        if adam_w_mode and weight_decay:
            change = change + weight_decay * parameter
        parameter.sub_(change * lr)


# ---- what a release has -------------------------------------------------------------------------------------------------------------------

# Modules with the wrappers that DeepSpeed may choose. What masters and the gradients of their steps are read off, and what sums of gradients are.
WRAPPERS = {
    "deepspeed.runtime.zero.stage_1_and_2": ("bit16_groups", "bit16_groups_flat", "single_partition_of_fp32_groups", "real_dp_process_group"),
    "deepspeed.runtime.zero.stage3": ("fp16_groups", "fp32_partitioned_groups_flat", "dp_process_group"),
    "deepspeed.runtime.bf16_optimizer": ("bf16_groups", "bf16_groups_flat", "fp32_groups_flat_partition", "real_dp_process_group"),
    "deepspeed.runtime.fp16.fused_optimizer": ("fp16_groups", "fp16_groups_flat", "fp32_groups_flat"),
    "deepspeed.runtime.fp16.unfused_optimizer": ("fp16_groups", "fp32_groups"),
}
SUMS = {
    "deepspeed.runtime.zero.stage_1_and_2": ("params_in_partition", "averaged_gradients", "accumulated_grads_in_cpu"),
    "deepspeed.runtime.zero.stage3": ("__param_id_to_grad_partition",),
    "deepspeed.runtime.bf16_optimizer": ("fp32_groups_gradients_flat",),
}


def has(attributes: Mapping[str, Iterable[str]]) -> bool:
    """Whether this release names them in its source. Known releases do; of a later one nobody knows."""
    try:
        return all(f"self.{name}" in Path(sys.modules[module].__file__).read_text() for module, names in attributes.items() for name in names)
    except (KeyError, OSError, TypeError):
        return False


def uses_fp16(engine: Any) -> bool:
    return bool(engine.fp16_enabled()) and hasattr(engine.optimizer, "loss_scale")


def scale_in_gradients(engine: Any) -> float:
    """By which a backward multiplies the loss. Since the engine does that itself it leaves out the wrappers of stage 0, though their step divides."""
    wrapper = engine.optimizer
    # BF16_Optimizer has one that is None in some releases: it does not scale.
    if isinstance(wrapper, torch.optim.Optimizer) or getattr(wrapper, "loss_scale", None) is None:
        return 1.0
    base = sys.modules.get("deepspeed.runtime.base_optimizer")
    zero = getattr(base, "ZeROOptimizer", None)
    engine_scales = zero is not None and hasattr(zero, "scale_if_loss")
    return float(wrapper.loss_scale) if not engine_scales or isinstance(wrapper, zero) else 1.0


def counts_micro_batches(engine: Any) -> bool:
    managed = getattr(type(engine), "managed_gradient_accumulation", None)
    return managed is None or bool(managed(engine))
