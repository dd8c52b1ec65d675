"""The runs of each loop. Rank r of w has samples r, r + w, ..., one in each micro-batch."""
from __future__ import annotations

from typing import Any, Iterator

TOKENS = [4, 2, 8, 2, 6, 3, 5, 3]
SHORTER_END = [*TOKENS, 7, 2]  # an epoch of ten samples, whose last window is shorter


def run(name: str, loop: str, versions: dict[str, str], tokens: list[int] = TOKENS, world: int = 2, accumulation: int = 2, **more: Any) -> dict[str, Any]:
    return {"name": name, "loop": loop, "world": world, "tok": tokens, "gas": accumulation, "versions": versions} | more


def open_instruct(release: str) -> Iterator[dict[str, Any]]:
    for stage in (0, 1, 2, 3):
        for accumulation in (2, 4):
            yield run(f"grpo_fast_z{stage}_gas{accumulation}", "open-instruct", {"open-instruct": release, "deepspeed": "0.18.9"}, accumulation=accumulation,
                      engine={"framework": "deepspeed", "as_of": "0.18.9", "config": {"zero_optimization": {"stage": stage}}})


def open_instruct_finetune(release: str) -> Iterator[dict[str, Any]]:
    versions = {"open-instruct": release, "accelerate": "1.15.0"}
    for world in (1, 2):
        yield run(f"finetune_w{world}", "open-instruct-finetune", versions, world=world)
        yield run(f"finetune_w{world}_shorter_end", "open-instruct-finetune", versions, SHORTER_END, world=world)
        if release < "2025.9":
            yield run(f"finetune_w{world}_sum", "open-instruct-finetune", versions, SHORTER_END, world=world, sum_loss=True)


def nemo_rl(release: str) -> Iterator[dict[str, Any]]:
    for worker in ("first", "second"):
        for accumulation in (1, 2, 4):
            yield run(f"nemo_rl_{worker}_gas{accumulation}", "nemo-rl", {"nemo-rl": release}, accumulation=accumulation, worker=worker, engine={"framework": "fsdp2", "config": {}})


def nemo(release: str) -> Iterator[dict[str, Any]]:
    for per_token in (False, True):
        for ddp in ({}, {"overlap_grad_reduce": True}):
            for accumulation in (2, 4):
                name = f"nemo_gas{accumulation}{'_per_token' if per_token else ''}{'_overlap' if ddp else ''}"
                config = {"ddp": ddp} | ({"model": {"calculate_per_token_loss": True}} if per_token else {})
                yield run(name, "nemo", {"nemo-toolkit": release, "megatron-core": "0.14.0"}, accumulation=accumulation,
                          engine={"framework": "megatron", "as_of": "0.14.0", "config": config})


PLANS = {"open-instruct": open_instruct, "open-instruct-finetune": open_instruct_finetune, "nemo-rl": nemo_rl, "nemo": nemo}
