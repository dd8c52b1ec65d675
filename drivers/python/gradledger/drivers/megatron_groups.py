"""Megatron's own process groups, which it keeps in variables of its module."""
from __future__ import annotations

from typing import Any, Mapping

import torch
from megatron.core import parallel_state

from ..driver import Configuration, Refused
from ..groups import Groups
from .megatron_schedule import given

STAGES_LAST, STAGES_BEFORE_DATA = "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"


def kept() -> dict[str, Any]:
    return {name: value for name, value in vars(parallel_state).items() if name.startswith("_") and name[1:].isupper()}


_unset = kept()  # destroy_model_parallel leaves some
# They outlive the engine that they were made for.
_made: dict[tuple[Any, ...], dict[str, Any]] = {}


def stages_of(engine: Mapping[str, Any], groups: Groups) -> int:
    return max(groups.size("pp") if "pp" in groups.members else 1, engine.get("pipeline_stages", 1))


def stage_of(engine: Mapping[str, Any], groups: Groups) -> int:
    """Where no group says it, stages are blocks of ranks that follow each other."""
    return groups.of("pp").index(groups.rank) if "pp" in groups.members else groups.rank // (len(groups.world) // stages_of(engine, groups))


def make(configuration: Configuration, groups: Groups, experts_over: int) -> None:
    config = configuration.config
    instances = (config.get("ddp") or {}).get("num_distributed_optimizer_instances", 1)
    sizes = {name: groups.size(name) if name in groups.members else 1 for name in ("tp", "cp", "ep", "etp")}
    sizes["pp"], sizes["ep"] = stages_of(configuration.engine, groups), max(sizes["ep"], experts_over)
    stages = groups.of("pp") if "pp" in groups.members and sizes["pp"] > 1 else None
    order = STAGES_LAST if stages is None or stages[1] - stages[0] == len(groups.world) // sizes["pp"] else STAGES_BEFORE_DATA
    chunks = len((config.get("schedule") or {}).get("model_chunks") or ())
    wanted: dict[str, Any] = {"tensor_model_parallel_size": sizes["tp"], "context_parallel_size": sizes["cp"], "expert_model_parallel_size": sizes["ep"],
                              "expert_tensor_parallel_size": sizes["etp"] if "etp" in groups.members else sizes["tp"],
                              "pipeline_model_parallel_size": sizes["pp"], "order": order}
    if chunks:
        wanted["virtual_pipeline_model_parallel_size"] = chunks
    if instances > 1:
        wanted["num_distributed_optimizer_instances"] = instances
    key, names = tuple(sorted(wanted.items())), vars(parallel_state)
    if key in _made:
        names.update(_made[key])
    else:
        names.update(_unset)  # before 0.10.0 it also destroys groups of gloo's that it finds, which are kept
        parallel_state.destroy_model_parallel()
        names.update(_unset)
        given(parallel_state.initialize_model_parallel, create_gloo_process_groups=False, **wanted)
        _made[key] = kept()
    made = {"tp": parallel_state.get_tensor_model_parallel_group, "cp": parallel_state.get_context_parallel_group,
            "pp": parallel_state.get_pipeline_model_parallel_group, "ep": parallel_state.get_expert_model_parallel_group}
    if hasattr(parallel_state, "get_expert_tensor_parallel_group"):
        made["etp"] = parallel_state.get_expert_tensor_parallel_group
    elif "etp" in groups.members:
        raise Refused("a group etp, which Megatron-Core has from 0.10.0 on")
    expected = {name: groups.of(name) for name in made if name in groups.members and sizes[name] > 1}
    if experts_over > 1 and "ep" not in groups.members:  # neighbours, which before 0.10.0 they are without context-parallel ranks alone
        first = groups.rank // experts_over * experts_over
        expected["ep"] = tuple(range(first, first + experts_over))
    for name, ranks in expected.items():
        found = tuple(torch.distributed.get_process_group_ranks(made[name]()))
        if found != ranks:
            raise Refused(f"ranks {ranks} in the group {name}; Megatron's order has {found}")
