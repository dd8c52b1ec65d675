"""Ranks as processes. A host process imports PyTorch and DeepSpeed once, and forks the ranks of every run from there."""
from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from .runs import Spec, gradients


class NoDeepSpeed(Exception):
    pass


class Host:
    """A context. `record` gives the line of one run; a rank that dies or hangs ends the run, and the line says so."""

    def __init__(self, deepspeed: str | None, scratch: Path) -> None:
        if deepspeed and not (Path(deepspeed) / "deepspeed").is_dir():
            raise NoDeepSpeed(f"--deepspeed {deepspeed}: has no folder deepspeed; expected that of `pip install --target`")
        self.scratch = scratch
        paths = [*([str(Path(deepspeed).resolve())] if deepspeed else []), str(Path(__file__).resolve().parents[1])]
        if os.environ.get("PYTHONPATH"):
            paths.append(os.environ["PYTHONPATH"])
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "DS_BUILD_OPS": "0",
                                    "CUDA_VISIBLE_DEVICES": ""}
        self.log = scratch / "host.log"
        self.process = subprocess.Popen([sys.executable, "-m", "recorder.host", str(scratch)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log.open("w"), env=environment, text=True, start_new_session=True)
        self.versions = self.answer()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # the host, and ranks that it may have left
        self.process.wait()

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise NoDeepSpeed("PyTorch and DeepSpeed cannot be used here:\n" + self.log.read_text()[-2000:])
        return json.loads(line)

    def record(self, spec: Spec, label: str | None) -> dict:
        task = {"spec": spec, "grads": gradients(spec)}
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        outcome = self.answer()
        return assembled(task, outcome, self.versions, label)


def assembled(task: dict, outcome: dict, versions: dict, label: str | None) -> dict:
    spec = {key: value for key, value in task["spec"].items() if key != "grads"} | {"patch": outcome["patch"]}
    line = {"name": spec["name"], "version": label or versions["deepspeed"], "deepspeed": versions["deepspeed"], "torch": versions["torch"],
            "python": versions["python"], "spec": spec, "grads": task["grads"]}
    if outcome["unfinished"]:
        line["unfinished"] = outcome["unfinished"]
    ranks = outcome["ranks"]
    join_partitions(ranks, spec["sizes"])
    return line | {"ranks": ranks}


def join_partitions(ranks: list[dict], sizes: list[int]) -> None:
    """Stage 3 ranks say what they hold of the weights. Every rank's entry gets the whole, as the other stages have it."""
    traces = [rank.get("trace", []) for rank in ranks]
    for entries in zip(*traces):
        if not all("partitions" in entry for entry in entries):
            continue
        parts = [entry.pop("partitions") for entry in entries]
        whole = [[x for part in parts for x in part[p]][:size] for p, size in enumerate(sizes)]
        for entry in entries:
            entry["params"] = whole
    for trace in traces:
        for entry in trace:
            entry.pop("partitions", None)
