"""One rank of the bare framework, for cost.py: python bare_ranks.py deepspeed|ddp FOLDER ROUNDS WORLD_SIZE RANK. Prints the seconds of each run, script by script."""
from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from cost import UNTIMED
from gradledger import messages, optimizers
from gradledger.model import Graph, LinearModel


def main() -> None:
    framework, folder, rounds, world_size, rank = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
    torch.set_num_threads(1)
    store = folder / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    make = {"deepspeed": DeepSpeed, "ddp": DDP}[framework]
    make.prepare()
    scripts = [script[str(rank)] for script in json.loads((folder / "scripts.json").read_text())]
    seconds = []
    for script in scripts:
        for _ in range(rounds):
            if len(seconds) == 1:
                gc.collect()
                gc.freeze()  # what is imported by now, at the first use of it too: collections need not look at it, as in the host's ranks
            if len(seconds) == UNTIMED:
                processor = time.process_time()
            dist.barrier()
            began = time.perf_counter()
            play(make, script)
            dist.barrier()
            seconds.append(time.perf_counter() - began)
    if rank == 0:
        store.unlink()
    print(json.dumps({"seconds": seconds, "processor": time.process_time() - processor}), flush=True)
    os._exit(0)


def play(make: type[DeepSpeed] | type[DDP], script: list[dict[str, Any]]) -> None:
    engine: Any = None
    for message in script:
        if message["type"] == "configure":
            close(engine)
            engine = make(message)
        else:
            engine.do(message["name"], message["arguments"] | {"number": message["number"]})
    close(engine)


def close(engine: Any) -> None:
    if engine is not None:
        engine.close()
        gc.collect()  # engines are full of cycles


class Bare:
    def __init__(self, message: dict[str, Any]) -> None:
        for parameter in message["parameters"]:
            parameter["weights"] = bytes(4 * parameter["numel"])  # a log has the size of data
        self.configuration = messages.configuration(message)
        self.model = LinearModel(self.configuration)
        self.learned = {p: self.model.weights[p] for p in self.configuration.trainable}
        self.given = {p: torch.ones(parameter.numel) for p, parameter in enumerate(self.configuration.parameters)}
        self.blocks: list[contextlib.AbstractContextManager] = []
        self.losses: dict[int, torch.Tensor] = {}  # by the number of the forward's event

    def loss_of(self, module: torch.nn.Module, arguments: dict[str, Any]) -> torch.Tensor:
        return module(self.graph(arguments)) if arguments.get("of") is None else self.losses[arguments["of"]]

    def graph(self, arguments: dict[str, Any]) -> Graph:
        return Graph(arguments["uses"], self.given, arguments.get("phases", 1))

    def do(self, name: str, arguments: dict[str, Any]) -> None:
        if not hasattr(self, name):
            raise SystemExit(f"{name} is none of the events that are measured")
        getattr(self, name)(arguments)

    def enter(self, block: contextlib.AbstractContextManager) -> None:
        block.__enter__()
        self.blocks.append(block)

    def exit_no_sync(self, arguments: dict[str, Any]) -> None:
        self.blocks.pop().__exit__(None, None, None)

    exit_coalesce = exit_no_sync


class DeepSpeed(Bare):
    @staticmethod
    def prepare() -> None:
        from gradledger.drivers import deepspeed, deepspeed_setup as setup  # mends what a CPU lacks
        for module in deepspeed.DeepSpeedDriver.preload:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        setup.join_group()

    def __init__(self, message: dict[str, Any]) -> None:
        from gradledger.drivers import deepspeed_setup as setup
        super().__init__(message)
        self.setup = setup
        base, _ = setup.base_optimizer(self.configuration, self.learned)
        self.engine, *_ = setup.deepspeed.initialize(model=self.model, optimizer=base, model_parameters=list(self.learned.values()),
                                                     config=setup.config_of(self.configuration), dist_init_required=False)

    def close(self) -> None:
        self.setup.take_down(self.engine)

    def forward(self, arguments: dict[str, Any]) -> None:
        self.losses[arguments["number"]] = self.engine(self.graph(arguments))

    def backward(self, arguments: dict[str, Any]) -> None:
        loss = self.loss_of(self.engine, arguments)
        if arguments.get("direct"):
            loss.backward()
        else:
            self.engine.backward(loss, **({} if arguments.get("scale_wrt_gas", True) else {"scale_wrt_gas": False}))

    def step(self, arguments: dict[str, Any]) -> None:
        self.engine.step()

    def set_boundary(self, arguments: dict[str, Any]) -> None:
        self.engine.set_gradient_accumulation_boundary(arguments["boundary"])

    def zero_grad(self, arguments: dict[str, Any]) -> None:
        (self.engine if arguments.get("of") == "engine" else self.engine.optimizer).zero_grad()

    def enter_no_sync(self, arguments: dict[str, Any]) -> None:
        self.enter(self.engine.no_sync())

    def enter_coalesce(self, arguments: dict[str, Any]) -> None:
        self.enter(self.engine.coalesce_grad_reduction())


class DDP(Bare):
    @staticmethod
    def prepare() -> None:
        pass

    def __init__(self, message: dict[str, Any]) -> None:
        super().__init__(message)
        settings = self.configuration.engine.get("ddp") or {}
        self.wrapped = torch.nn.parallel.DistributedDataParallel(self.model, find_unused_parameters=bool(settings.get("find_unused_parameters")))
        self.optimizer = optimizers.make(self.configuration, self.learned)

    def close(self) -> None:
        pass

    def forward(self, arguments: dict[str, Any]) -> None:
        self.losses[arguments["number"]] = self.wrapped(self.graph(arguments))

    def backward(self, arguments: dict[str, Any]) -> None:
        self.loss_of(self.wrapped, arguments).backward()

    def step(self, arguments: dict[str, Any]) -> None:
        self.optimizer.step()

    def zero_grad(self, arguments: dict[str, Any]) -> None:
        self.optimizer.zero_grad()

    def enter_no_sync(self, arguments: dict[str, Any]) -> None:
        self.enter(self.wrapped.no_sync())


if __name__ == "__main__":
    main()
