"""The runs that the repository's recordings of the second version are made of: by hand what its lifecycle hinges on, and drawn ones."""
from __future__ import annotations

import random
from collections.abc import Iterator

MIXED = {"mixed_precision": {"main_grads_dtype": "float32"}}
CALLED = {"call_unused": True}


def spec(name: str, ops: list[list], config: dict | None = None, **more) -> dict:
    base = {"name": name, "config": config or {}, "ops": ops, "world": 2, "root": [5], "units": [[7, 4], [6]], "n_mb": 4, "dtype": "float32"}
    return base | more


def windows(count: int, *, set_to_none: bool = True, of: str = "zero_grad", before_last: bool = False, windows_count: int = 2) -> list[list]:
    """`before_last`: all but the last backward stand in microbatch(is_last=False)."""
    out: list[list] = []
    for window in range(windows_count):
        backwards = [["fb", (window * count + i) % 4] for i in range(count)]
        if before_last and count > 1:
            backwards = [["no_sync"], *backwards[:-1], ["end"], backwards[-1]]
        out += [*backwards, ["step"], [of] if set_to_none else [of, {"set_to_none": False}]]
    return out


# Of parameters 0, 1, 2 and 3 the second and the third are one module's.
LEFT_OUT = {
    "part_of_a_module": [["fb", 0], ["fb", 1, {"use": [0, 1, 3]}], ["step"], ["zero_grad"], ["fb", 2], ["step"], ["zero_grad"], ["fb", 3], ["step"]],
    "part_of_a_module_in_between": [["fb", 0, {"use": [0, 2, 3]}], ["fb", 1], ["step"], ["zero_grad"], ["fb", 2, {"use": [0, 1, 3]}], ["step"], ["zero_grad"], ["fb", 3, {"use": [0, 2, 3]}],
                                    ["fb", 1], ["step"]],
    "a_module": [["fb", 0], ["fb", 1, {"use": [0, 1, 2]}], ["step"], ["zero_grad"], ["fb", 2], ["fb", 3, {"use": [0, 3]}], ["step"], ["zero_grad"], ["fb", 0], ["step"]],
    "all_modules": [["fb", 0], ["fb", 1, {"use": [0]}], ["step"], ["zero_grad"], ["fb", 2], ["step"], ["zero_grad"]],
    "the_root": [["fb", 0], ["fb", 1, {"use": [1, 2, 3]}], ["step"], ["zero_grad"], ["fb", 2], ["step"], ["zero_grad"]],
}
REMADE = {
    "by_optimizer": lambda op: op,
    "by_module": lambda op: ["module_zero_grad"] if op == ["zero_grad"] else op,
    "by_optimizer_to_zeros": lambda op: ["zero_grad", {"set_to_none": False}] if op == ["zero_grad"] else op,
    "by_module_to_zeros": lambda op: ["module_zero_grad", {"set_to_none": False}] if op == ["zero_grad"] else op,
}


def called(op: list) -> list:
    return [*op[:-1], op[-1] | CALLED] if isinstance(op[-1], dict) and "use" in op[-1] else op


def by_hand() -> Iterator[dict]:
    for world in (1, 2, 3):
        yield spec(f"ga1_{world}", windows(1), world=world)
        yield spec(f"ga3_{world}", windows(3), world=world)
        yield spec(f"ga3_zeros_{world}", windows(3, set_to_none=False), world=world)
        yield spec(f"bf16_{world}", windows(2), world=world, dtype="bfloat16")
        yield spec(f"bf16_sums_in_fp32_{world}", windows(3), MIXED, world=world, dtype="bfloat16")
        yield spec(f"bf16_sums_in_fp32_zeros_{world}", windows(2, set_to_none=False), MIXED, world=world, dtype="bfloat16")
    yield spec("module_zero_grad", windows(2, of="module_zero_grad"))
    yield spec("module_zeros", windows(2, of="module_zero_grad", set_to_none=False))
    yield spec("without_zero", [["fb", 0], ["fb", 1], ["step"], ["fb", 2], ["step"], ["zero_grad"], ["fb", 3], ["step"]])
    yield spec("zero_in_window", [["fb", 0], ["zero_grad"], ["fb", 1], ["step"], ["step"], ["zero_grad"], ["step"], ["fb", 2], ["step"]])
    yield spec("flag_without_replicas", windows(3, before_last=True))
    yield spec("divided", [["fb", 0], ["fb", 1], ["div_grads", 4], ["step"], ["zero_grad"], ["fb", 2], ["div_grads", 2], ["step"]])
    yield spec("frozen", windows(2), {"frozen": [1]})
    yield spec("frozen_module", windows(2), {"frozen": [3]})
    yield spec("dtypes", windows(2), dtypes=["bfloat16", "float32", "bfloat16", "float32"])
    yield spec("dtypes_of_a_module_left_out", LEFT_OUT["part_of_a_module"], dtypes=["float32", "bfloat16", "float32", "bfloat16"])
    yield spec("empty_root", windows(2), root=[])
    yield spec("sums_in_bf16", windows(2), {"mixed_precision": {"main_grads_dtype": "bfloat16"}})
    yield spec("wire_dtype", windows(2), {"mixed_precision": {"main_grads_dtype": "float32", "grad_comm_dtype": "float32"}}, dtype="bfloat16")
    yield spec("small", windows(2), root=[1], units=[[1, 1], [1]], world=3)
    for name, ops in LEFT_OUT.items():
        for how, remake in REMADE.items():
            yield spec(f"without_{name}_{how}", [remake(op) for op in ops])
            yield spec(f"called_without_{name}_{how}", [called(remake(op)) for op in ops])
    yield from replicas()


def replicas() -> Iterator[dict]:
    for world, mesh in ((2, [2, 1]), (3, [3, 1]), (4, [2, 2])):
        config, name = {"mesh": mesh}, f"replicas_{mesh[0]}_{mesh[1]}"
        for dtype in ("float32", "bfloat16"):
            more = {"world": world, "dtype": dtype}
            yield spec(f"{name}_marked_{dtype}", windows(3, before_last=True), config, **more)
            yield spec(f"{name}_each_{dtype}", windows(2), config, **more)
            yield spec(f"{name}_never_{dtype}", [["no_sync"], ["fb", 0], ["fb", 1], ["end"], ["step"], ["zero_grad"], ["fb", 2], ["step"], ["zero_grad"]], config, **more)
            yield spec(f"{name}_early_{dtype}", [["fb", 0], ["no_sync"], ["fb", 1], ["end"], ["step"], ["zero_grad"], ["no_sync"], ["fb", 2], ["end"], ["fb", 3], ["step"]], config, **more)
        yield spec(f"{name}_zeros", windows(2, before_last=True, set_to_none=False), config, world=world)
        yield spec(f"{name}_sums_in_fp32", windows(2, before_last=True), config | MIXED, world=world, dtype="bfloat16")
        yield spec(f"{name}_sums_in_fp32_never", [["no_sync"], ["fb", 0], ["fb", 1], ["end"], ["step"]], config | MIXED, world=world, dtype="bfloat16")
        yield spec(f"{name}_left_out", [["no_sync"], ["fb", 0], ["end"], ["fb", 1, {"use": [0, 1]}], ["step"], ["zero_grad"], ["fb", 2], ["step"], ["zero_grad"]], config, world=world)
        yield spec(f"{name}_left_out_by_module", [["no_sync"], ["fb", 0], ["end"], ["fb", 1, {"use": [0, 1]}], ["step"], ["module_zero_grad"], ["fb", 2], ["step"]], config, world=world)


def drawn(seed: int) -> dict:
    draw = random.Random(seed)
    world, mesh = draw.choice([(1, None), (2, None), (2, None), (3, None), (2, [2, 1]), (3, [3, 1])])
    config: dict = {} if mesh is None else {"mesh": mesh}
    dtype = draw.choice(["float32", "float32", "bfloat16"])
    if draw.random() < 0.3:
        config |= MIXED
    options = {"call_unused": True} if draw.random() < 0.3 else {}
    ops: list[list] = []
    for _ in range(draw.randint(1, 3)):
        for _ in range(draw.randint(1, 3)):
            use = sorted(draw.sample(range(4), draw.randint(1, 4)))
            backward = ["fb", draw.randrange(4), {"use": use} | options] if draw.random() < 0.4 and len(use) < 4 else ["fb", draw.randrange(4)]
            ops += [["no_sync"], backward, ["end"]] if draw.random() < 0.3 else [backward]
        if draw.random() < 0.9:
            ops.append(["step"])
        if draw.random() < 0.8:
            ops.append([draw.choice(["zero_grad", "module_zero_grad"]), {"set_to_none": draw.random() < 0.6}])
    return spec(f"drawn_{seed}", ops, config, world=world, dtype=dtype)


def runs(_release: str) -> Iterator[dict]:
    yield from by_hand()
    yield from (drawn(seed) for seed in range(80))
