"""How the two versions of megatron-fsdp are called: meshes, and dtypes, by the releases of the package. tools/recorder uses this too."""
from __future__ import annotations

import functools
import inspect
from typing import Any, Mapping

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

Shape = tuple[int, int] | None  # ranks that have the same shard, and ranks that share one


@functools.cache
def first_mesh(shape: Shape, world: int, device: str) -> dict[str, Any]:
    """Arguments of the first version's fully_shard. A mesh outlives the engine that it was made for, as its groups do."""
    if shape is None:
        return {"device_mesh": init_device_mesh(device, (world, 1), mesh_dim_names=("dp", "tp")), "dp_shard_dim": "dp", "tp_dim": "tp"}
    made = init_device_mesh(device, (*shape, 1), mesh_dim_names=("outer", "dp", "tp"))
    made[("outer", "dp")]._flatten("hybrid")
    return {"device_mesh": made, "dp_shard_dim": "dp", "dp_outer_dim": "outer", "tp_dim": "tp", "hybrid_fsdp_group": made["hybrid"].get_group()}


@functools.cache
def second_mesh(shape: Shape, world: int, device: str) -> tuple[DeviceMesh, Any]:
    """That of the second version, and what lies on it how: everything sharded, and copied over what is outside of a shard."""
    from megatron_fsdp import experimental
    from torch.distributed import tensor
    if hasattr(experimental, "Flat"):
        flat, copied, part_of_average = experimental.Flat(), experimental.Replicate(), experimental.Partial(dist.ReduceOp.AVG)
    else:
        flat, copied, part_of_average = tensor.Shard(0), tensor.Replicate(), tensor.Partial("avg")
    if shape is None:
        return init_device_mesh(device, (world,), mesh_dim_names=("dp",)), experimental.Placements(["dp"], [flat], [flat], [flat])
    made = init_device_mesh(device, shape, mesh_dim_names=("outer", "dp"))
    return made, experimental.Placements(["outer", "dp"], [copied, flat], [part_of_average, flat], [copied, flat])


def has_policies(package: Any) -> bool:
    return hasattr(package, "MixedPrecisionPolicy") and "mixed_precision_policy" in inspect.signature(package.fully_shard).parameters


def precision_arguments(package: Any, dtypes: Mapping[str, torch.dtype | None]) -> dict[str, Any]:
    """Dtypes are a policy from 0.4.0 on, and two flags before."""
    if has_policies(package):
        return {"mixed_precision_policy": package.MixedPrecisionPolicy(**dtypes)}
    return {"grad_reduce_in_fp32": dtypes.get("main_grads_dtype") == torch.float32, "preserve_fp32_weights": dtypes.get("main_params_dtype", torch.float32) is not None}


def parameters_of(group: Any) -> tuple[list[str], list[torch.Tensor], list[torch.Tensor]]:
    """Of a group of the second version: names, sharded and gathered parameters."""
    if hasattr(group, "fsdp_parameters"):
        named = [(parameter.fqns[0], parameter.sharded, parameter.unsharded) for parameter in group.fsdp_parameters]
    else:
        named = list(zip(group.parameter_names, group.sharded_parameters, group.unsharded_parameters))
    names, sharded, unsharded = (list(column) for column in zip(*named))
    return names, sharded, unsharded
