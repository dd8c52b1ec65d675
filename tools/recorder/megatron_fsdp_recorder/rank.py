"""One rank of a run: a model whose loss is linear in its weights, so that gradients are given exactly; the operations; what the rank holds after each."""
from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist

from gradledger.drivers import megatron_fsdp_cpu as cpu
from gradledger.drivers.megatron_fsdp_setup import first_mesh, precision_arguments

from . import mends

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, None: None}


class Linear(torch.nn.Module):
    """The sum of its parameters times what is given for each; others get no gradient."""

    def __init__(self, parameters: list[tuple[int, torch.nn.Parameter]]) -> None:
        super().__init__()
        self.numbers = [number for number, _ in parameters]
        for number, parameter in parameters:
            self.register_parameter(f"param{number}", parameter)

    def forward(self, x: torch.Tensor, given: dict[int, torch.Tensor]) -> torch.Tensor:
        for number in self.numbers:
            if number in given:
                x = x + (getattr(self, f"param{number}") * given[number]).sum().float()
        return x


class Unit(Linear):
    pass


class Body(Linear):
    def __init__(self, root: list, units: list[list]) -> None:
        super().__init__(root)
        self.units = torch.nn.ModuleList([Unit(unit) for unit in units])

    def forward(self, x: torch.Tensor, given: dict[int, torch.Tensor]) -> torch.Tensor:
        x = super().forward(x, given)
        for unit in self.units:
            x = unit(x, given)
        return x


class Model(torch.nn.Module):
    """Hooks are on the first module that has all parameters and is called as a module, which the outermost one is not."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor, given: dict[int, torch.Tensor]) -> torch.Tensor:
        return self.body(x, given)


class Plays:
    """What a rank of either version does alike: the gradients that are given, the operations, and what is told of each."""

    def begin(self, number: int, run: dict, collectives: mends.Collectives) -> None:
        self.number, self.run, self.grads, self.collectives = number, run, run["grads"][number], collectives
        self.dtypes = [DTYPES[name] for name in run.get("dtypes", [run["dtype"]] * len(run_sizes(run)))]
        self.blocks: list = []

    def parameters_of_run(self, frozen: list) -> list[torch.nn.Parameter]:
        return [torch.nn.Parameter(torch.zeros(size, dtype=self.dtypes[p]), requires_grad=p not in frozen) for p, size in enumerate(run_sizes(self.run))]

    def given(self, micro_batch: int, options: dict) -> dict[int, torch.Tensor]:
        use = options.get("use", list(range(len(self.dtypes))))
        use = use[str(self.number)] if isinstance(use, dict) else use
        return {p: torch.tensor(self.grads[micro_batch][p], dtype=self.dtypes[p]) for p in use}

    def operate(self, op: list) -> None:
        kind = op[0]
        options = op[-1] if isinstance(op[-1], dict) else {}
        if kind == "fb":
            self.forward(op[1], options).backward()
        elif kind == "no_sync":
            self.blocks.append(self.no_sync())
            self.blocks[-1].__enter__()
        elif kind == "end":
            self.blocks.pop().__exit__(None, None, None)
        elif kind == "step":
            self.optimizer.step()
        else:
            self.operate_own(kind, op, options)

    def entry(self, op: list) -> dict:
        out = {"op": op}
        try:
            self.operate(op)
        except Exception as error:  # noqa: BLE001
            out["error"] = f"{type(error).__name__}: {error}"[:600]
        out["calls"], out["io"] = self.collectives.take()
        out["snap"] = self.snapshots(op[0] == "step")
        if op[0] == "step":
            out["weights"] = self.weights()
        return out


class Rank(Plays):
    def __init__(self, number: int, run: dict, collectives: mends.Collectives) -> None:
        import megatron_fsdp
        self.begin(number, run, collectives)
        config = dict(run["config"])
        parameters = self.parameters_of_run(config.pop("frozen", []))
        optimizer = torch.optim.SGD(parameters, lr=1.0)
        self.model, self.optimizer = megatron_fsdp.fully_shard(
            module=Model(body_of(run, parameters)), optimizer=optimizer, fsdp_unit_modules=[Unit], device=torch.device("cpu"), **first_mesh(tuple(config.pop("mesh", ())) or None, run["world"], "cpu"),
            **arguments_of(config, megatron_fsdp))
        self.collectives.take()

    @property
    def buffer(self):
        return self.model.param_and_grad_buffer

    def forward(self, micro_batch: int, options: dict) -> torch.Tensor:
        return self.model(torch.zeros(()), self.given(micro_batch, options))

    def no_sync(self) -> contextlib.AbstractContextManager:
        return self.model.no_sync()

    def operate_own(self, kind: str, op: list, options: dict) -> None:
        if kind == "set":
            getattr(self.model, op[1])(op[2])
        elif kind == "finish_grad_sync":
            self.model.finish_grad_sync()
        elif kind == "div_grads":
            self.model.scale_gradients(1.0 / op[1])
        elif kind == "zero_grad":
            self.optimizer.zero_grad()
        else:
            raise NotImplementedError(f"the recorder does not know the operation {kind}")

    def name(self, parameter: torch.nn.Parameter) -> str:
        return self.buffer.param_to_name[parameter].rpartition(".")[2]

    def snapshots(self, stepped: bool) -> dict:
        out = {}
        sharded = self.run["config"]["zero_dp_strategy"] != "no_shard"
        for group in self.buffer.parameter_groups:
            buffer, first = group.main_grad_buffer, self.name(group.params[0])
            if buffer is None:
                continue
            items = range(len(group.params))
            out[f"main_grad_buffer[{first}]"] = raw(torch.cat([buffer.get_item(i, only_shard=sharded) for i in items]))
            if sharded and not buffer.is_data_distributed:
                out[f"main_grad_buffer[{first}] of others"] = raw(torch.cat([without(buffer.get_item(i), *buffer._get_item_slice_in_shard(i)) for i in items]))
            helper = getattr(group, "hfsdp_helper_gbuf", None) or getattr(group, "hsdp_gbuf", None)
            if helper is not None:
                out[f"hfsdp_helper_gbuf[{first}]"] = raw(torch.cat([helper.get_item(i) for i in items]))
        for name, parameter in self.buffer.optimizer_named_parameters:
            short = name.rpartition(".")[2]
            if parameter.grad is not None:
                out[f"{short}.grad"] = raw(local(parameter.grad))
            group = self.buffer.parameter_groups[self.buffer.param_to_param_group[parameter.orig_param]]
            if stepped and group.main_weight_buffer is not None and local(parameter).numel() > 0:
                out[f"{short}.main_weight"] = raw(local(parameter))
        return out

    def weights(self) -> list:
        """What the rank has of the model's weights: its shard, or all of them where nothing is sharded."""
        out = []
        for name, parameter in self.buffer.optimizer_named_parameters:
            group = self.buffer.parameter_groups[self.buffer.param_to_param_group[parameter.orig_param]]
            item = next(i for i, of_group in enumerate(group.params) if of_group is parameter.orig_param)
            sharded = self.run["config"]["zero_dp_strategy"] != "no_shard"
            held, begin = parameter.orig_param.data, 0
            if group.model_weight_buffer is not None:
                held = group.model_weight_buffer.get_item(item, only_shard=sharded)
                begin = group.model_weight_buffer._get_item_slice_in_shard(item)[0] if sharded else 0
            number = int(name.rpartition("param")[2])
            if parameter.requires_grad and held.numel() > 0:
                out.append([number, begin, str(held.dtype).removeprefix("torch."), held.double().flatten().tolist()])
        return sorted(out)


def run_sizes(run: dict) -> list[int]:
    return [*run["root"], *[size for unit in run["units"] for size in unit]]


def body_of(run: dict, parameters: list) -> Body:
    numbered = list(enumerate(parameters))
    at = len(run["root"])
    units = []
    for unit in run["units"]:
        units.append(numbered[at:at + len(unit)])
        at += len(unit)
    return Body(numbered[:len(run["root"])], units)


def arguments_of(config: dict, package) -> dict:
    precision = config.pop("mixed_precision", None)
    return config if precision is None else config | precision_arguments(package, {key: DTYPES[name] for key, name in precision.items()})


def without(tensor: torch.Tensor, begin: int, end: int) -> torch.Tensor:
    return torch.cat([tensor[:begin], tensor[end:]])


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def raw(tensor: torch.Tensor) -> dict:
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "raw": tensor.detach().double().flatten().tolist()}


def run(number: int, specs: list[dict], scratch: str, port: int) -> None:
    """All runs of one world size: processes and groups are made once."""
    world = specs[0]["world"]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    dist.init_process_group("gloo", rank=number, world_size=world)
    cpu.cuda_does_nothing()
    cpu.meshes_without_children()
    collectives = mends.Collectives()
    from megatron_fsdp import param_and_grad_buffer
    cpu.collectives_one_by_one()
    mends.fresh_memory_is_zeros(param_and_grad_buffer)
    for spec in specs:
        try:
            rank = Rank(number, spec, collectives)
        except Exception as error:  # noqa: BLE001
            told = {"init_error": f"{type(error).__name__}: {error}"[:600]}
            collectives.take()
        else:
            told = [rank.entry(op) for op in spec["ops"]]
        (Path(scratch) / f"{spec['name']}.{number}.json").write_text(json.dumps(told))
        dist.barrier()
    dist.destroy_process_group()
