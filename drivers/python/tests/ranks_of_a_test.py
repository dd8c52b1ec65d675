"""Runs a function as each rank of a process group, in processes that are forked, and gives back what it returned."""
from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from coordinator import Coordinator

SECONDS_MAX = 300  # for whatever hangs; machines that tests share are slow


@dataclass
class Outcome:
    """`returned` by rank; a string that begins with the exception's type where one left the function. `coordinator` is None for other backends."""
    returned: list[Any]
    coordinator: Coordinator | None


def run(world_size: int, function: Callable[[int], Any], backend: str = "gradledger", deliver: str = "eager", seed: int = 0) -> Outcome:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        coordinator = Coordinator(folder, world_size) if backend == "gradledger" else None
        sys.stdout.flush()
        processes = [start(rank, world_size, function, backend, folder, coordinator, {"GRADLEDGER_DELIVER": deliver, "GRADLEDGER_SEED": str(seed)})
                     for rank in range(world_size)]
        if coordinator is not None:
            coordinator.serve()
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        if coordinator is not None:
            coordinator.close()
            assert not coordinator.problems, coordinator.problems
        assert codes == [0] * world_size, f"the ranks ended with {codes}"
        return Outcome([torch.load(folder / f"rank{rank}", weights_only=False) for rank in range(world_size)], coordinator)


def start(rank: int, world_size: int, function: Callable[[int], Any], backend: str, folder: Path, coordinator: Coordinator | None,
          environment: dict[str, str]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.alarm(SECONDS_MAX)
        os.environ |= environment | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        torch.set_num_threads(1)
        if coordinator is not None:
            os.environ |= {"GRADLEDGER_ADDRESS": coordinator.address, "GRADLEDGER_TOKEN": coordinator.token}
            import gradledger.process_group  # registers the backend
            dist.init_process_group(backend, store=dist.HashStore(), rank=rank, world_size=world_size)
        else:
            dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=world_size, timeout=timedelta(seconds=SECONDS_MAX))
        try:
            returned = function(rank)
        except Exception as error:
            if os.environ.get("SHOW_TRACEBACKS"):
                traceback.print_exc()
            returned = f"{type(error).__name__}: {error}"
        torch.save(returned, folder / f"rank{rank}")
        if coordinator is None:
            dist.barrier()  # gloo's connections break where one of the ranks is gone
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
