"""One rank of one run: a linear loss whose gradients are given, the operations one after another, an entry of the trace for each."""
from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import deepspeed
import torch

from . import buffers
from .collectives import Recorder


class Layer(torch.nn.Module):
    """Its weight's gradient is what it is called with."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(size))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        return (self.weight * gradient.to(self.weight.dtype)).sum()


class Model(torch.nn.Module):
    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(size) for size in sizes)

    def forward(self, gradients: list[list[float]], used: list[int]) -> torch.Tensor:
        terms = [self.layers[p](torch.tensor(gradients[p], dtype=torch.float32)) for p in used]
        loss = terms[0]
        for term in terms[1:]:
            loss = loss + term
        return loss


class Rank:
    def __init__(self, task: dict, rank: int, recorder: Recorder) -> None:
        self.spec, self.rank, self.recorder = task["spec"], rank, recorder
        self.gradients = task["grads"][f"rank{rank}"]
        self.losses: dict[int, torch.Tensor] = {}
        self.block: Any = None
        torch.manual_seed(0)
        model = Model(self.spec["sizes"])
        self.parameters = [layer.weight for layer in model.layers]
        optimizer, config = self.optimizer()
        self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, model_parameters=self.parameters, config=config, dist_init_required=False)
        self.recorder.take()

    def optimizer(self) -> tuple[torch.optim.Optimizer | None, dict]:
        """PyTorch's, handed over; DeepSpeed's own are asked for in the configuration."""
        given = dict(self.spec.get("optimizer", {"type": "SGD"}))
        kind, of_torch = given.pop("type"), given.pop("torch_adam", False)
        if kind == "SGD":
            return torch.optim.SGD(self.parameters, lr=given.pop("lr", 1.0), **given), self.spec["config"]
        if of_torch:
            return {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}[kind](self.parameters, **given), self.spec["config"]
        own = {"type": kind, "params": given | ({"adam_w_mode": False} if kind == "Adam" else {})}
        return None, self.spec["config"] | {"optimizer": own}

    def entry(self, op: list) -> dict:
        out: dict[str, Any] = {"op": op}
        try:
            self.do(op)
        except Exception as error:  # whatever the framework raises is what is recorded
            out["error"] = f"{type(error).__name__}: {error}"
        out["calls"] = self.recorder.take()
        out["snap"] = buffers.alive(self.engine, self.parameters)
        if op[0] == "step" and "error" not in out:
            out |= self.after_step()
        return out

    def do(self, op: list) -> None:
        kind, options = op[0], op[2] if len(op) > 2 else {}
        if kind == "fb":
            self.backward(self.engine(*self.inputs(op[1], options)), options)
        elif kind == "torch":
            self.engine(*self.inputs(op[1], options)).backward()
        elif kind == "f":
            self.losses[op[1]] = self.engine(*self.inputs(op[1], options))
        elif kind == "eval" and len(op) > 1:
            self.evaluate(self.inputs(op[1], options))
        elif kind in ("eval", "train"):
            getattr(self.engine, kind)()
        elif kind == "set_train_batch_size":
            self.engine.set_train_batch_size(op[1])
        elif kind == "safe_get_full_grad":
            deepspeed.utils.safe_get_full_grad(self.parameters[op[1]])
        elif kind == "b":
            self.backward(self.losses[op[1]], options)
        elif kind == "boundary":
            self.engine.set_gradient_accumulation_boundary(op[1])
        elif kind == "step":
            self.engine.step()
        elif kind == "zero_grad":
            self.engine.zero_grad()
        elif kind == "opt_zero_grad":
            self.engine.optimizer.zero_grad()
        elif kind == "end":
            block, self.block = self.block, None
            block.__exit__(None, None, None)
        else:
            self.block = self.engine.no_sync() if kind == "no_sync" else self.engine.coalesce_grad_reduction()
            self.block.__enter__()

    def evaluate(self, inputs: tuple[list[list[float]], list[int]]) -> None:
        self.engine.eval()
        with torch.no_grad():
            self.engine(*inputs)
        self.engine.train()

    def inputs(self, micro_batch: int, options: dict) -> tuple[list[list[float]], list[int]]:
        values = [list(of_parameter) for of_parameter in self.gradients[f"mb{micro_batch}"]]
        fixed = options["values"][self.rank] if "values" in options else options.get("value")
        if fixed is not None:
            values = [[float(fixed)] * len(of_parameter) for of_parameter in values]
        if self.rank in options.get("inf", []):
            values[0][0] = float("inf")
        used = options.get("use", list(range(len(values))))
        return values, used[str(self.rank)] if isinstance(used, dict) else used

    def backward(self, loss: torch.Tensor, options: dict) -> None:
        more = {key: options[key] for key in ("scale_wrt_gas", "retain_graph") if key in options}
        self.engine.backward(loss, **more)

    def after_step(self) -> dict:
        optimizer, out = self.engine.optimizer, {}
        norm = self.engine.get_global_grad_norm()
        out["global_grad_norm"] = None if norm is None else buffers.numbers([torch.as_tensor(norm)])[0]
        scale = getattr(optimizer, "loss_scale", getattr(optimizer, "cur_scale", None))
        if scale is not None:
            out["loss_scale"] = float(scale)
        if hasattr(optimizer, "overflow"):
            out["overflow"] = bool(optimizer.overflow)
        if hasattr(self.parameters[0], "ds_tensor"):
            out["partitions"] = [buffers.numbers([p.ds_tensor]) for p in self.parameters]
        else:
            out["params"] = [buffers.numbers([p]) for p in self.parameters]
        return out


def run(task: dict, rank: int, folder: Path) -> None:
    """Writes an entry a line, so that what there is stays when the process is ended."""
    world = task["spec"]["world"]
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world,
                                         timeout=timedelta(seconds=task["spec"]["timeout"] + 60))
    recorder = Recorder()
    deepspeed.init_distributed("gloo", dist_init_required=False)
    with (folder / f"rank{rank}.jsonl").open("w") as file:
        def write(entry: dict) -> None:
            file.write(json.dumps(entry) + "\n")
            file.flush()

        try:
            state = Rank(task, rank, recorder)
        except Exception as error:  # a configuration that is refused is a result
            write({"init_error": f"{type(error).__name__}: {error}"})
        else:
            for op in task["spec"]["ops"]:
                entry = state.entry(op)
                write(entry)
                if "error" in entry and not task["spec"].get("continue_on_error"):
                    break
    (folder / f"rank{rank}.end").touch()
    while not (folder / "done").exists():  # others may still need this rank's connections
        time.sleep(0.01)
