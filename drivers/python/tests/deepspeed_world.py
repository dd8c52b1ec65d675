"""Two ranks of the driver of DeepSpeed on gloo, forked from one process that imported it: tasks as lines of JSON on standard input, what each rank answered on standard output.

A task is {"engine", "parameters": [[name, numel, ...]], "model_dtype", "linear", "events": [[name, arguments, gradients of each rank]]}.
"""
from __future__ import annotations

import gc
import json
import os
import resource
import sys
import tempfile
import time
import traceback
from typing import Any

WORLD = 2


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed prints
    import importlib

    import torch
    from gradledger.drivers import deepspeed as module

    torch.set_num_threads(1)
    for name in module.DeepSpeedDriver.preload:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    gc.freeze()
    folder = tempfile.mkdtemp()
    pipes = [(os.pipe(), os.pipe()) for _ in range(WORLD)]
    for rank, (tasks, results) in enumerate(pipes):
        if os.fork() == 0:
            try:
                run_rank(rank, folder, os.fdopen(tasks[0]), os.fdopen(results[1], "w"), module)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
    writers, readers = [os.fdopen(tasks[1], "w") for tasks, _ in pipes], [os.fdopen(results[0]) for _, results in pipes]
    for _, results in pipes:
        os.close(results[1])
    for line in sys.stdin:
        for writer in writers:
            writer.write(line)
            writer.flush()
        answers.write("[" + ",".join(reader.readline().strip() or "null" for reader in readers) + "]\n")
        answers.flush()


def run_rank(rank: int, folder: str, tasks: Any, results: Any, module: Any) -> None:
    import torch

    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    driver = module.DeepSpeedDriver(rank, WORLD)
    for run, line in enumerate(tasks):
        results.write(json.dumps(run_task(driver, run, json.loads(line))) + "\n")
        results.flush()


def run_task(driver: Any, run: int, task: dict[str, Any]) -> dict[str, Any]:
    import torch
    from gradledger.driver import DTYPES, METHODS, Configuration, Parameter, Refused

    parameters = tuple(Parameter(p["name"], p["numel"], p.get("trainable", True), p.get("tied_to"), torch.tensor(p.get("weights", [0.0] * p["numel"])))
                       for p in task["parameters"])
    begin = time.monotonic()
    out: dict[str, Any] = {"events": [], "capabilities": driver.capabilities()}
    try:
        out["notes"] = driver.configure(Configuration(run, task["engine"], parameters, DTYPES[task.get("model_dtype", "fp32")], task.get("groups", {}), task.get("linear", False)))
    except Exception as error:
        return out | {"refused": {"type": type(error).__name__, "text": str(error), "traceback": traceback.format_exc(), "by_driver": isinstance(error, Refused)}}
    out["configure_seconds"] = time.monotonic() - begin
    for number, (name, arguments, *gradients) in enumerate(task["events"]):
        answer: dict[str, Any] = {"name": name, "error": None}
        try:
            getattr(driver, METHODS[name])(*event_of(number, name, arguments, gradients[0][driver.rank] if gradients else {}))
        except Exception as error:
            answer["error"] = {"type": type(error).__name__, "text": str(error), "traceback": traceback.format_exc()}
        answer["buffers"] = [decoded(buffer.encoded()) for buffer in driver.buffers(name)]
        answer["facts"] = driver.facts() if name == "step" else {}
        out["events"].append(answer)
    out["event_seconds"] = time.monotonic() - begin - out["configure_seconds"]
    before_close = time.monotonic()
    driver.close()
    return out | {"close_seconds": time.monotonic() - before_close, "resident_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def event_of(number: int, name: str, arguments: dict[str, Any], gradients: dict[str, list[float]]) -> list[Any]:
    import torch
    from gradledger.driver import Backward, Forward

    if name not in ("forward", "backward"):
        return list(arguments.values())
    given = {int(p): torch.tensor(values) for p, values in gradients.items()}
    kind = Forward if name == "forward" else Backward
    more = dict(arguments)
    return [kind(number, more.pop("micro_batch", 0), tuple(more.pop("uses", sorted(given, reverse=True))), given, **more)]


def decoded(buffer: dict[str, Any]) -> dict[str, Any]:
    import torch
    from gradledger.driver import DTYPES

    data = bytearray(buffer.pop("data"))
    return buffer | {"values": torch.frombuffer(data, dtype=DTYPES[buffer["dtype"]]).double().tolist() if data else []}


if __name__ == "__main__":
    main()
