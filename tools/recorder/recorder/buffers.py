"""Gradient buffers that are alive in a DeepSpeed engine, under the framework's own names."""
from __future__ import annotations

import math
from typing import Any, Iterable

import torch


def numbers(tensors: Iterable[torch.Tensor]) -> list:
    """As they are stored; what JSON has no form for becomes a text."""
    out: list = []
    for tensor in tensors:
        for x in tensor.detach().reshape(-1).double().tolist():
            out.append(x if math.isfinite(x) else "nan" if math.isnan(x) else "inf" if x > 0 else "-inf")
    return out


def entry(tensors: list[torch.Tensor]) -> dict:
    return {"dtype": str(tensors[0].dtype).removeprefix("torch."), "raw": numbers(tensors)}


def alive(engine: Any, parameters: list[torch.nn.Parameter]) -> dict[str, dict]:
    """By name, in the form of the recorder's `snap`. A buffer that was freed or set to None is left out."""
    found: dict[str, list] = {}
    for p, parameter in enumerate(parameters):
        found[f"param{p}.grad"] = [parameter.grad]
        found[f"param{p}.grad_accum"] = [getattr(parameter, "grad_accum", None)]
    optimizer = engine.optimizer
    number = {id(parameter): p for p, parameter in enumerate(parameters)}
    found |= of_stages_1_and_2(optimizer, number)
    found |= of_bf16_optimizer(optimizer)
    found |= of_stage_3(optimizer, parameters)
    out = {}
    for name, tensors in found.items():
        present = [tensor for tensor in tensors or [] if tensor is not None]
        if present:
            out[name] = entry(present)
    return out


def of_stages_1_and_2(optimizer: Any, number: dict[int, int]) -> dict[str, list]:
    out: dict[str, list] = {}
    if not hasattr(optimizer, "single_partition_of_fp32_groups"):
        return out
    for group, tensors in optimizer.averaged_gradients.items():
        out[f"averaged_gradients[{group}]"] = tensors
    for group, tensors in getattr(optimizer, "all_grad_tensors", {}).items():
        for parameter, tensor in zip(optimizer.params_in_partition[group], tensors or []):
            out[f"all_grad_tensors[{group}][param{number[id(parameter)]}]"] = [tensor]
    names = {id_: name for name, id_ in ((number[id(p)], optimizer.get_param_id(p)) for group in optimizer.bit16_groups for p in group)}
    for id_, tensor in getattr(optimizer, "accumulated_grads_in_cpu", {}).items():
        out[f"accumulated_grads_in_cpu[param{names[id_]}]"] = [tensor]
    for group, partition in enumerate(optimizer.single_partition_of_fp32_groups):
        out[f"single_partition_of_fp32_groups[{group}].grad"] = [partition.grad]
    return out


def of_bf16_optimizer(optimizer: Any) -> dict[str, list]:
    out: dict[str, list] = {}
    for name in ("fp32_groups_gradients_flat", "fp32_groups_gradient_flat_partition"):
        for group, tensor in enumerate(getattr(optimizer, name, None) or []):
            out[f"{name}[{group}]"] = [tensor]
    return out


def of_stage_3(optimizer: Any, parameters: list[torch.nn.Parameter]) -> dict[str, list]:
    out: dict[str, list] = {}
    partitions = getattr(optimizer, "_DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition", None)
    if partitions is None:
        return out
    for p, parameter in enumerate(parameters):
        out[f"grad_partition[param{p}]"] = [partitions.get(parameter.ds_id)]
    for group, partition in enumerate(optimizer.fp32_partitioned_groups_flat):
        out[f"fp32_partition.grad[{group}]"] = [partition.grad]
    return out
