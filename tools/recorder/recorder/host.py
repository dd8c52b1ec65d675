"""The host process: imports once, forks the ranks of a run, ends those that are too late. Tasks on stdin, outcomes on stdout."""
from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

# What DeepSpeed imports while it makes an engine: seconds for each rank of each run, unless the host has it.
LATE = ("torch._dynamo", "torch.distributed.fsdp", "deepspeed.module_inject.auto_ep_layer")


def main() -> None:
    scratch = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what DeepSpeed prints goes to the log
    import torch
    from . import mends
    import deepspeed
    patch = mends.after_import()
    from . import rank
    torch.set_num_threads(1)
    for module in LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.freeze()  # DeepSpeed collects garbage ten times for each engine, and what is imported by now is none

    def answer(value: dict) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer({"deepspeed": deepspeed.__version__.split("+")[0], "torch": torch.__version__, "python": sys.version.split()[0]})
    for number, line in enumerate(sys.stdin):
        task = json.loads(line)
        folder = scratch / f"run{number}"
        folder.mkdir()
        answer(record(task, folder, rank.run) | {"patch": ". ".join(patch)})


def record(task: dict, folder: Path, run) -> dict:
    world, deadline = task["spec"]["world"], task["spec"]["timeout"]
    ranks = [forked(task, r, folder, run) for r in range(world)]
    late, codes = waited(ranks, time.monotonic() + deadline, folder)
    traces = [read_trace(folder / f"rank{r}.jsonl") for r in range(world)]
    problems = [f"rank {r} was ended after {deadline} s, at operation {len(traces[r].get('trace', []))}" for r in late]
    problems += [f"rank {r} ended with {code}{said(folder / f'rank{r}.error')}" for r, code in enumerate(codes) if code != 0 and r not in late]
    return {"ranks": traces, "unfinished": "; ".join(problems)}


def said(error: Path) -> str:
    return f" ({error.read_text()[:300]})" if error.exists() else ""


def forked(task: dict, rank: int, folder: Path, run) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        run(task, rank, folder)
        code = 0
    except BaseException as error:  # the process ends here, whatever it was
        traceback.print_exc()
        (folder / f"rank{rank}.error").write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def waited(ranks: list[int], deadline: float, folder: Path) -> tuple[list[int], list[int]]:
    """Ranks that are done wait for the others, whose connections would break: `done` tells them that all are there."""
    codes: list[int | None] = [None] * len(ranks)
    late: list[int] = []
    while None in codes:
        for r, child in enumerate(ranks):
            if codes[r] is None and (ended := os.waitpid(child, os.WNOHANG))[0]:
                codes[r] = os.waitstatus_to_exitcode(ended[1])
        at_end = [codes[r] is not None or (folder / f"rank{r}.end").exists() for r in range(len(ranks))]
        died = any(code not in (None, 0) for code in codes)
        if all(at_end):
            (folder / "done").touch()
        if (died and None in codes) or time.monotonic() > deadline:
            late = [r for r in range(len(ranks)) if not at_end[r]]
            for r, code in enumerate(codes):
                if code is None:
                    os.kill(ranks[r], signal.SIGKILL)
                    codes[r] = os.waitstatus_to_exitcode(os.waitpid(ranks[r], 0)[1]) if r in late else 0
                    if r not in late:
                        os.waitpid(ranks[r], 0)
            break
        time.sleep(0.01)
    return late, [code or 0 for code in codes]


def read_trace(path: Path) -> dict:
    out: dict = {"trace": []}
    if not path.exists():
        return out
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if "init_error" in entry:
            return entry
        out["trace"].append(entry)
    return out


if __name__ == "__main__":
    main()
