"""What the tests of the driver of DeepSpeed share: releases, two ranks of each that stay, and gradients that tell which contributions are in a sum."""
from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Command, by_element, ok

WORLD, MICRO_BATCHES, SCALE = 2, 2, 8
SIZES = (7, 4, 2)
PARAMETERS = [{"name": name, "numel": numel} for name, numel in zip("abc", SIZES)]
ELEMENTS = [(p, e) for p, numel in enumerate(SIZES) for e in range(numel)]
RELEASES = ("0.16.0", "0.17.5", "0.18.3", "0.19.0", "0.19.8")


def available() -> list[str | None]:
    folder = os.environ.get("GRADLEDGER_DEEPSPEED")
    if folder:
        return [release for release in RELEASES if (Path(folder) / release / "deepspeed").is_dir()]
    return [None] if importlib.util.find_spec("deepspeed") else []


def skip_without_deepspeed() -> None:
    if not available():
        why = "NOT RUN: there is no deepspeed to import, and GRADLEDGER_DEEPSPEED names no folder of releases"
        warnings.warn(why, stacklevel=2)
        pytest.skip(why, allow_module_level=True)


class Session:
    """Two ranks of a release that stay for all tests of it."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.version = tuple(int(part) for part in command.host.hello["versions"]["deepspeed"].split("+")[0].split("."))

    def configure(self, config: dict[str, Any], dtype: str = "fp32", parameters: list[dict[str, Any]] = PARAMETERS, engine: dict[str, Any] | None = None,
                  **more: Any) -> dict[int, dict[str, Any]]:
        section = {} if dtype == "fp32" or dtype in config else {dtype: {"enabled": True} | ({"loss_scale": SCALE} if dtype == "fp16" else {})}
        return self.command.configure(parameters, {"framework": "deepspeed", "config": {"gradient_clipping": 0.0} | section | config} | (engine or {}),
                                      model_dtype=dtype, **more)

    def event(self, name: str, **arguments: Any) -> dict[int, dict[str, Any]]:
        return self.command.event(name, **arguments)

    def backward(self, micro_batch: int = 0, uses: tuple[int, ...] = (2, 1, 0), **arguments: Any) -> dict[int, dict[str, Any]]:
        gradients = {rank: {p: values for p, values in gradient(rank, micro_batch).items() if p in uses} for rank in range(WORLD)}
        return self.command.event("backward", gradients, micro_batch=micro_batch, uses=list(uses), **arguments)


def sessions(release: str | None) -> Iterator[Session]:
    paths = [Path(os.environ["GRADLEDGER_DEEPSPEED"]) / release] if release else []
    with Command("deepspeed", WORLD, paths=paths) as command:
        command.start_ranks()
        yield Session(command)


# One contribution alone has a gradient on an element, so that the sum tells which ones are in it.
def gradient(rank: int, micro_batch: int) -> dict[int, list[float]]:
    out: dict[int, list[float]] = {p: [0.0] * numel for p, numel in enumerate(SIZES)}
    for place, (p, e) in enumerate(ELEMENTS):
        if place % (WORLD * MICRO_BATCHES) == rank * MICRO_BATCHES + micro_batch:
            out[p][e] = float(value_at(place))
    return out


def value_at(place: int) -> int:
    return 4 * (place + 1)


def mean(weights: dict[int, float] | None = None) -> dict[tuple[int, int], float]:
    """Of all contributions; `weights` by micro-batch, 1/4 by default."""
    return {element: value_at(place) * (weights or {}).get(place % MICRO_BATCHES, 0.25 if weights is None else 0.0) for place, element in enumerate(ELEMENTS)}


def zero(stage: int, offload: bool = False, **more: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage} | ({"offload_optimizer": {"device": "cpu", "pin_memory": True}} if offload else {}) | more}


def window(session: Session, micro_batches: int = MICRO_BATCHES) -> dict[int, dict[str, Any]]:
    """As a loop with gradient_accumulation_steps has it. Returns the answers to the last step."""
    for micro_batch in range(micro_batches):
        ok(session.backward(micro_batch))
        answers = ok(session.event("step"))
    return answers


def together(answers: dict[int, dict[str, Any]], role: str) -> dict[tuple[int, int], list[float]]:
    """What all ranks show of each element."""
    out: dict[tuple[int, int], list[float]] = {}
    for answer in answers.values():
        for element, value in by_element(answer, role).items():
            out.setdefault(element, []).append(value)
    return out


def known_factor(version: tuple[int, ...], stage: int, dtype: str) -> float:
    """Defects of stage 0: from DeepSpeed#7665 on the loss is not multiplied by the scale that the step divides by. Up to DeepSpeed#7839 bf16 had one too."""
    if stage or version < (0, 18, 3) or dtype == "fp32":
        return 1.0
    if dtype == "fp16":
        return 1 / SCALE
    return 1 / 65536 if version < (0, 18, 6) else 1.0
