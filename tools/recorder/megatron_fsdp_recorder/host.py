"""Ranks as processes that are forked for each run, and what they say put together: vectors once, snapshots where they changed."""
from __future__ import annotations

import json
import socket
import sys
import tempfile
from pathlib import Path

import torch.multiprocessing

from . import rank, second

ONE_HOT = 8
FRAMEWORKS = {1: "megatron-fsdp", 2: "megatron-fsdp-v2"}


def gradients(run: dict) -> list[list[list[list[float]]]]:
    """[rank][micro-batch][parameter]: small odd multiples, so that every sum of them is exact in bf16 and tells what it was made of."""
    sizes = sizes_of(run)
    out = []
    for r in range(run["world"]):
        micro_batches = []
        for m in range(run["n_mb"]):
            code = r * run["n_mb"] + m
            micro_batches.append([[float((2 * p + 1) * ((i % ONE_HOT == code % ONE_HOT) + (i % 3) * (code + 1) % 5)) for i in range(size)] for p, size in enumerate(sizes)])
        out.append(micro_batches)
    return out


def sizes_of(run: dict) -> list[int]:
    return [*run["root"], *[size for unit in run["units"] for size in unit]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def load(package: str) -> None:
    """Ranks are forked from here, and find everything imported."""
    sys.path.insert(0, package)
    torch.set_num_threads(1)
    import megatron_fsdp  # noqa: F401


class Vectors:
    def __init__(self) -> None:
        self.all: list[list] = []
        self.number: dict[str, int] = {}

    def of(self, values: list) -> int:
        key = json.dumps(values)
        if key not in self.number:
            self.number[key] = len(self.all)
            self.all.append([int(x) if isinstance(x, float) and x.is_integer() else x for x in values])
        return self.number[key]


def compact(entry: dict, before: dict, vectors: Vectors) -> dict:
    snap = {name: held | {"raw": vectors.of(held["raw"])} for name, held in entry["snap"].items() if held["raw"]}
    out = {"op": entry["op"]}
    if "error" in entry:
        out["error"] = entry["error"]
    if entry["calls"]:
        out["calls"] = entry["calls"]
        out["io"] = {key: {"in": vectors.of(io["in"]), "out": vectors.of(io["out"])} for key, io in entry["io"].items()}
    if snap != before:
        out["snap"] = snap
    if entry.get("weights"):
        out["weights"] = [[*weights[:3], vectors.of(weights[3])] for weights in entry["weights"]]
    before.clear()
    before.update(snap)
    return out


def record(runs: list[dict], release: str, version: int) -> list[dict]:
    with tempfile.TemporaryDirectory() as scratch:
        specs = [run | {"grads": gradients(run)} for run in runs]
        for world in sorted({run["world"] for run in runs}):
            arguments = ([spec for spec in specs if spec["world"] == world], scratch, free_port())
            torch.multiprocessing.start_processes((second if version == 2 else rank).run, args=arguments, nprocs=world, start_method="fork")
        return [line_of(run, release, FRAMEWORKS[version], spec["grads"], Path(scratch)) for run, spec in zip(runs, specs)]


def line_of(run: dict, release: str, framework: str, grads: list, scratch: Path) -> dict:
    told = [json.loads((scratch / f"{run['name']}.{r}.json").read_text()) for r in range(run["world"])]
    vectors = Vectors()
    spec = {key: value for key, value in run.items() if key != "name"} | {"sizes": sizes_of(run)}
    of_ranks = {f"rank{r}": {f"mb{m}": [vectors.of(values) for values in grads[r][m]] for m in range(run["n_mb"])} for r in range(run["world"])}
    ranks = []
    for r, trace in enumerate(told):
        before: dict = {}
        ranks.append({"rank": r, "trace": [compact(entry, before, vectors) for entry in trace]} if isinstance(trace, list) else {"rank": r, "init_error": trace["init_error"]})
    refused = any("init_error" in entry for entry in ranks)
    return {"name": run["name"], "framework": framework, "version": release, "spec": spec, "vectors": vectors.all, "grads": None if refused else of_ranks, "ranks": ranks}
