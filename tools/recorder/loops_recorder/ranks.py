"""Processes of one run, its model, and what is noted of it."""
from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.utils._pytree

IGNORED = -100


class Output(dict):
    """What a forward returns: fully_shard looks for tensors in it, and must know its class."""

    def __getattr__(self, name: str) -> torch.Tensor:
        if name not in self:
            raise AttributeError(name)
        return self[name]


torch.utils._pytree.register_pytree_node(Output, lambda output: (list(output.values()), list(output)), lambda values, keys: Output(zip(keys, values)))


class Samples(torch.nn.Module):
    """One weight for each sample. The first token of an input is the sample's number, and the others are 0. Their log probability falls by 1 for each unit of the weight, from
    0 on, where the two outcomes are equally likely."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(samples))

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Output:
        falls = -2 * self.weight[input_ids[:, 0]].unsqueeze(1).expand(*input_ids.shape)
        return Output(logits=torch.stack([falls, torch.zeros_like(falls)], -1))


class Notes:
    """Of one rank: which sample each backward had, whether a step followed, and what each step took off the weights."""

    def __init__(self, run: dict[str, Any], rank: int) -> None:
        self.tokens, self.rank, self.world = run["tok"], rank, run["world"]
        self.backwards: list[list[Any]] = []
        self.updates: list[torch.Tensor] = []

    def samples(self) -> list[int]:
        return list(range(self.rank, len(self.tokens), self.world))

    def backward(self) -> None:
        self.backwards.append([False, self.samples()[len(self.backwards) % len(self.samples())], None])

    def step(self, weights: Callable[[], torch.Tensor], inner: Callable[[], Any]) -> Any:
        before = weights().clone()
        out = inner()
        self.backwards[-1][0] = True
        self.updates.append(before - weights())
        return out

    def told(self) -> dict[str, Any]:
        steps = [[float(x) + 0.0 for x in update] for update in self.updates]
        return {"steps": steps, "sync": self.backwards, "weights_per_token": [[round(x / n, 6) for x, n in zip(step, self.tokens)] for step in steps]}


class Noted(torch.optim.SGD):
    """Notes what each step takes off the weight, whole."""

    def __init__(self, notes: Notes, parameters: Any) -> None:
        super().__init__(parameters, lr=1.0)
        self.notes = notes

    def whole(self) -> torch.Tensor:
        weight = self.param_groups[0]["params"][0].detach()
        return weight.full_tensor() if hasattr(weight, "full_tensor") else weight

    def step(self, *arguments: Any) -> Any:
        return self.notes.step(self.whole, super().step)


def note_backwards(notes: Notes) -> None:
    inner = torch.Tensor.backward

    def backward(self: torch.Tensor, *arguments: Any, **named: Any) -> None:
        notes.backward()
        inner(self, *arguments, **named)
    torch.Tensor.backward = backward


def on_rank(rank: int, run: dict[str, Any], loop: Callable[[dict[str, Any], Notes], None], folder: str) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(run["world"]), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=run["world"])
    notes = Notes(run, rank)
    try:
        loop(run, notes)
        said = notes.told()
    except Exception as error:
        if os.environ.get("SHOW_TRACEBACKS"):
            traceback.print_exc()
        said = {"error": f"{type(error).__name__}: {error}"}
    torch.save(said, Path(folder) / f"rank{rank}")
    if "error" not in said:
        dist.barrier()
    os._exit(0)


def record(run: dict[str, Any], loop: Callable[[dict[str, Any], Notes], None]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(on_rank, (run, loop, folder), nprocs=run["world"])
        return run | {"ranks": [torch.load(Path(folder) / f"rank{rank}", weights_only=False) for rank in range(run["world"])]}
