"""Meshes of ranks, of groups that a scenario names."""
from __future__ import annotations

from typing import NamedTuple, Sequence

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from .driver import Refused
from .groups import Groups

# A mesh outlives the engine that it was made for, as its groups do: by its shape.
_made: dict[tuple[tuple[int, ...], int], DeviceMesh] = {}


class Meshes(NamedTuple):
    data: DeviceMesh  # of ranks that shard and replicate
    tensor_parallel: DeviceMesh | None
    shards: int  # ranks that have a parameter together
    place: int  # of this rank among those of `data`


def meshes_of(groups: Groups, device: str, names: Sequence[str] | None) -> Meshes:
    """That of the wrapper, of the groups of replicas and of shards where they are named, and that of parallelize_module. In a mesh of replicas, shards and
    tensor-parallel ranks the ranks stand in order."""
    tensor = groups.size("tp") if "tp" in groups.members else 1
    ranks = len(groups.world) // tensor
    shape = tuple(groups.size(name) for name in names) if names else (ranks,)
    shards, place = shape[-1], groups.rank // tensor
    first = place // shards * shards
    shard = tuple((first + i) * tensor + groups.rank % tensor for i in range(shards))
    if names and (shape[0] * shape[-1] != ranks or groups.of(names[1]) != shard):
        raise Refused(f"a mesh whose shards are ranks {groups.of(names[1])}; expected ranks that follow each other, and all of them")
    if tensor > 1 and groups.of("tp") != tuple(range(place * tensor, (place + 1) * tensor)):
        raise Refused(f"tensor-parallel ranks {groups.of('tp')}; expected ranks that follow each other")
    data = tuple(names) if names else ("dp",)
    if (shape, tensor) not in _made:
        _made[shape, tensor] = init_device_mesh(device, (*shape, tensor) if tensor > 1 else shape,
                                                mesh_dim_names=(*data, "tp") if tensor > 1 else tuple(names) if names else None)
    mesh = _made[shape, tensor]
    return Meshes(mesh[data if names else "dp"], mesh["tp"], shards, place) if tensor > 1 else Meshes(mesh, None, shards, place)
