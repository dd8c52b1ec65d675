"""The runs that are to be made: read, checked, and completed with what was left out."""
from __future__ import annotations

import json
import random
import sys
from typing import Any

Spec = dict[str, Any]

DTYPES = ("float32", "bfloat16", "float16")
KNOWN = {"name", "world", "sizes", "config", "ops", "n_mb", "dtype", "optimizer", "grads", "timeout", "continue_on_error"}
OPTIMIZER = {"type", "lr", "betas", "eps", "weight_decay", "torch_adam"}
ONE_HOT = "one-hot codes"
OPTIONS = {"use", "value", "values", "inf", "scale_wrt_gas", "retain_graph"}
# Operation: how many words it has, at least and at most.
OPERATIONS = {"fb": (2, 3), "f": (2, 3), "b": (2, 3), "torch": (2, 3), "eval": (1, 2), "train": (1, 1), "boundary": (2, 2), "step": (1, 1), "zero_grad": (1, 1),
              "opt_zero_grad": (1, 1), "no_sync": (1, 1), "coalesce": (1, 1), "end": (1, 1), "set_train_batch_size": (2, 2), "safe_get_full_grad": (2, 2)}
OF_A_MICRO_BATCH = ("fb", "f", "b", "torch", "eval")
WEIGHTS = (1.0, 2.0, 4.0)


class BadInput(Exception):
    pass


def read(path: str, timeout: int) -> list[Spec]:
    """Every run of a file of JSON lines. Raises BadInput with the line and what would be right there."""
    with sys.stdin if path == "-" else open(path) as file:
        lines = file.read().splitlines()
    out: list[Spec] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            spec = json.loads(line)
        except ValueError as error:
            raise BadInput(f"{where}: is no JSON: {error}") from None
        out.append(completed(spec, where, timeout))
        if sum(spec["name"] == out[-1]["name"] for spec in out) > 1:
            raise BadInput(f"{where}: a second run named {out[-1]['name']!r}; expected another name")
    if not out:
        raise BadInput(f"{path}: holds no run; recording nothing does not pass")
    return out


def completed(spec: Any, where: str, timeout: int) -> Spec:
    def need(holds: bool, what: str) -> None:
        if not holds:
            raise BadInput(f"{where}: {what}")

    need(isinstance(spec, dict), "is no object")
    unknown = sorted(set(spec) - KNOWN)
    need(not unknown, f"unknown key {', '.join(unknown)}; expected of {', '.join(sorted(KNOWN))}")
    for key in ("name", "config", "ops"):
        need(key in spec, f"lacks \"{key}\"")
    out = {"world": 2, "sizes": [30, 21, 13], "n_mb": 4, "grads": ONE_HOT, "timeout": timeout} | spec
    need(isinstance(out["name"], str) and out["name"], "name: expected a text")
    need(is_count(out["world"], 1, 16), "world: expected a whole number from 1 to 16")
    need(is_count(out["n_mb"], 1, 64), "n_mb: expected a whole number from 1 to 64")
    need(is_count(out["timeout"], 1, 3600), "timeout: expected seconds, a whole number from 1 to 3600")
    need(isinstance(out["sizes"], list) and 0 < len(out["sizes"]) <= 32 and all(is_count(size, 0, 100000) for size in out["sizes"]),
         "sizes: expected the elements of each parameter, whole numbers from 0 to 100000")
    need(isinstance(out["config"], dict), "config: expected an object")
    out.setdefault("dtype", dtype_of(out["config"]))
    need(out["dtype"] in DTYPES, f"dtype: expected one of {', '.join(DTYPES)}")
    optimizer = out.get("optimizer", {"type": "SGD"})
    need(isinstance(optimizer, dict) and optimizer.get("type") in ("SGD", "Adam", "AdamW"), "optimizer: expected an object with type SGD, Adam or AdamW")
    need(not set(optimizer) - OPTIMIZER, f"optimizer: expected keys of {', '.join(sorted(OPTIMIZER))}")
    grads = out["grads"]
    need(grads == ONE_HOT or (isinstance(grads, dict) and set(grads) == {"seed"} and isinstance(grads["seed"], int)),
         f"grads: expected \"{ONE_HOT}\" or an object with a seed")
    need(isinstance(out["ops"], list) and out["ops"], "ops: expected a list of operations")
    for number, op in enumerate(out["ops"]):
        problem = problem_of(op, out)
        need(problem is None, f"ops/{number}: {problem}")
    return out


def is_count(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def dtype_of(config: dict) -> str:
    def enabled(key: str) -> bool:
        part = config.get(key)
        return isinstance(part, dict) and part.get("enabled") is True
    return "bfloat16" if enabled("bf16") else "float16" if enabled("fp16") else "float32"


def problem_of(op: Any, spec: Spec) -> str | None:
    if not isinstance(op, list) or not op or op[0] not in OPERATIONS:
        return f"expected a list that begins with one of {', '.join(OPERATIONS)}"
    least, most = OPERATIONS[op[0]]
    if not least <= len(op) <= most:
        return f"{op[0]} has {len(op)} words; expected {least}" + (f" or {most}" if most > least else "")
    if op[0] in OF_A_MICRO_BATCH and len(op) > 1 and not is_count(op[1], 0, spec["n_mb"] - 1):
        return f"expected a micro-batch from 0 to {spec['n_mb'] - 1}"
    if op[0] == "boundary" and not (op[1] is None or isinstance(op[1], bool)):
        return "expected true, false or null"
    if op[0] == "set_train_batch_size" and not is_count(op[1], 1, 1 << 20):
        return "expected a number of samples"
    if op[0] == "safe_get_full_grad" and not is_count(op[1], 0, len(spec["sizes"]) - 1):
        return f"expected a parameter from 0 to {len(spec['sizes']) - 1}"
    if len(op) == 3 and (not isinstance(op[2], dict) or set(op[2]) - OPTIONS):
        return f"expected an object with keys of {', '.join(sorted(OPTIONS))}"
    return None


def one_hot(code: int, codes: int, size: int) -> list[float]:
    """Blocks of codes + 1 elements: 1, 2 or 4 by block where the code is, code + 1 in the last as a check, 0 else."""
    out = []
    for element in range(size):
        block, place = divmod(element, codes + 1)
        out.append(code + 1.0 if place == codes else WEIGHTS[block % 3] if place == code else 0.0)
    return out


def gradients(spec: Spec) -> dict[str, dict[str, list[list[float]]]]:
    """What each micro-batch of each rank produces. Every value is the same in fp32, bf16 and fp16, and so are small sums of them."""
    codes = spec["world"] * spec["n_mb"]
    out: dict[str, dict[str, list[list[float]]]] = {}
    for rank in range(spec["world"]):
        for m in range(spec["n_mb"]):
            code = rank * spec["n_mb"] + m
            if spec["grads"] == ONE_HOT:
                values = [one_hot(code, codes, size) for size in spec["sizes"]]
            else:
                draw = random.Random(f"{spec['grads']['seed']}/{code}")
                values = [[draw.randint(-127, 127) / 16 for _ in range(size)] for size in spec["sizes"]]
            out.setdefault(f"rank{rank}", {})[f"mb{m}"] = values
    return out
