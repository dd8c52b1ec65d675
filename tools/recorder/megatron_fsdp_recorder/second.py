"""One rank of a run of the second version, megatron_fsdp.experimental: modules that are sharded one by one, an optimizer with hooks, and a flag for the last micro-batch."""
from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gradledger.drivers import megatron_fsdp_cpu as cpu, megatron_fsdp_setup as setup

from . import mends
from .rank import DTYPES, Body, Plays, body_of, local, raw


class Model(Body):
    """Calls units of which it uses something, or all of them."""

    def forward(self, x: torch.Tensor, given: dict[int, torch.Tensor], calls_unused: bool = False) -> torch.Tensor:
        for number in self.numbers:
            if number in given:
                x = x + (getattr(self, f"param{number}") * given[number]).sum().float()
        for unit in self.units:
            if calls_unused or any(number in given for number in unit.numbers):
                x = unit(x, given)
        return x


class Rank(Plays):
    def __init__(self, number: int, run: dict, collectives: mends.Collectives) -> None:
        from megatron_fsdp import experimental
        self.begin(number, run, collectives)
        self.package, config = experimental, dict(run["config"])
        parameters = self.parameters_of_run(config.get("frozen", []))
        body = body_of(run, parameters)
        body.__class__ = Model
        self.model = body
        mesh, placements = setup.second_mesh(tuple(config.get("mesh", ())) or None, run["world"], "cpu")
        with contexts_of(experimental) as context:
            for module in [*self.model.units, self.model]:
                experimental.fully_shard(module, mesh, placements, policy_of(config))
        self.flagged = context or self.model
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.SGD(self.parameters, lr=1.0)
        experimental.fully_shard_optimizer(self.optimizer)
        self.groups = [group for module in [self.model, *self.model.units] for group in module.parameter_groups if group.requires_grad]
        self.written: set[int] = set()
        self.collectives.take()

    def forward(self, micro_batch: int, options: dict) -> torch.Tensor:
        return self.model(torch.zeros(()), self.given(micro_batch, options), options.get("call_unused", False))

    def no_sync(self) -> contextlib.AbstractContextManager:
        return self.package.microbatch(self.flagged, is_last=False)

    def operate_own(self, kind: str, op: list, options: dict) -> None:
        if kind == "div_grads":
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(op[1])
        elif kind in ("zero_grad", "module_zero_grad"):
            (self.optimizer if kind == "zero_grad" else self.model).zero_grad(set_to_none=options.get("set_to_none", True))
        else:
            raise NotImplementedError(f"the recorder does not know the operation {kind}")

    def snapshots(self, stepped: bool) -> dict:
        """What main_grad holds before the first reduction is whatever the memory held, and so is what lies behind its parameters."""
        out = {}
        for number, group in enumerate(self.groups):
            names, all_sharded, all_unsharded = parameters_of(group)
            if any(parameter.grad is not None for parameter in all_sharded):
                self.written.add(number)
            if number in self.written:
                out[f"main_grad[{names[0]}]"] = raw(torch.cat([group.main_grad.get_local_tensor(i) for i in range(len(names))]))
            for i, name in enumerate(names):
                sharded, unsharded = all_sharded[i].grad, all_unsharded[i].grad
                if sharded is not None:
                    out[f"{name}.grad"] = raw(local(sharded))
                if unsharded is not None:
                    out[f"{name}.unsharded.grad"] = raw(unsharded)
                if stepped and group.main_weight is not group.model_weight:
                    out[f"{name}.main_weight"] = raw(group.main_weight.get_local_tensor(i))
        return out

    def weights(self) -> list:
        """What the rank has of the weights that compute: its shard."""
        out = []
        for group in self.groups:
            for i, name in enumerate(parameters_of(group)[0]):
                held, owned = group.model_weight.get_local_tensor(i), group.model_weight._get_owned_range(i)
                if owned is not None:
                    out.append([int(name.rpartition("param")[2]), owned.tensor_relative_offset, str(held.dtype).removeprefix("torch."), held.double().flatten().tolist()])
        return sorted(out)


def contexts_of(experimental: Any) -> contextlib.AbstractContextManager:
    """Of Megatron-LM's head, where modules are made in a context, which has the flag of the last micro-batch."""
    if not hasattr(experimental, "fully_shard_context"):
        return contextlib.nullcontext()
    return experimental.fully_shard_context(torch.device("cuda", 0))


def parameters_of(group: Any) -> tuple[list[str], list, list]:
    """Their names within a module, sharded and gathered."""
    names, sharded, unsharded = setup.parameters_of(group)
    return [name.rpartition(".")[2] for name in names], sharded, unsharded


def policy_of(config: dict) -> Any:
    from megatron_fsdp import MixedPrecisionPolicy
    return MixedPrecisionPolicy(**{key: DTYPES[name] for key, name in config.get("mixed_precision", {}).items()})


def fresh_memory_is_zeros() -> None:
    """What a buffer holds behind its parameters is whatever the memory held, and never read; zeros, so that runs can be compared."""
    from megatron_fsdp.experimental import DBuffer
    native = DBuffer.__init__

    def zeroed(self: Any, *arguments: Any, **options: Any) -> None:
        native(self, *arguments, **options)
        self.local_buffer.zero_()

    DBuffer.__init__ = zeroed
    if hasattr(DBuffer, "__annotations__") and "allocation_stream" in DBuffer.__annotations__:
        DBuffer.allocation_stream = property(lambda self: torch.cuda.current_stream(), lambda self, stream: None)


def optimizers_collectives_are_recorded(collectives: mends.Collectives) -> None:
    """A gradient that replicas have not averaged is averaged by DTensor, in the optimizer's own arithmetic. Of an empty part nothing is sent."""
    from torch.distributed import _functional_collectives as functional
    native = functional.all_reduce

    def all_reduce(tensor: torch.Tensor, reduceOp: str, group: Any, *rest: Any) -> torch.Tensor:  # noqa: N803
        if tensor.numel() == 0:
            return native(tensor, reduceOp, group, *rest)
        mesh, dimension = group
        result = native(tensor, reduceOp, group, *rest)
        collectives.io[str(len(collectives.calls))] = {"in": tensor.double().flatten().tolist(), "out": result.double().flatten().tolist()}
        collectives.calls.append(["all_reduce", tensor.numel(), str(tensor.dtype).removeprefix("torch."), reduceOp.upper(), dist.get_process_group_ranks(mesh.get_group(dimension))])
        return result

    functional.all_reduce = all_reduce


def run(number: int, specs: list[dict], scratch: str, port: int) -> None:
    """All runs of one world size: processes and groups are made once."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    dist.init_process_group("gloo", rank=number, world_size=specs[0]["world"])
    fresh_memory_is_zeros()  # imports the package, whose annotations want the classes that the next line takes away
    cpu.cuda_does_nothing()
    collectives = mends.Collectives()
    optimizers_collectives_are_recorded(collectives)
    for spec in specs:
        rank = Rank(number, spec, collectives)
        told = [rank.entry(op) for op in spec["ops"]]
        (Path(scratch) / f"{spec['name']}.{number}.json").write_text(json.dumps(told))
        dist.barrier()
    dist.destroy_process_group()
