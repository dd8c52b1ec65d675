"""The runs that the repository's recordings of megatron-fsdp are made of."""
from __future__ import annotations

from collections.abc import Iterator

STRATEGIES = ("no_shard", "optim", "optim_grads", "optim_grads_params")


def windows(count: int, synchronised: list[list], before: list[list], windows_count: int = 2) -> list[list]:
    """`before` stands before each window, `synchronised` before its last backward."""
    out: list[list] = []
    micro_batch = 0
    for _ in range(windows_count):
        out += before
        for i in range(count):
            out += synchronised if i == count - 1 else []
            out.append(["fb", micro_batch % 4])
            micro_batch += 1
        out += [["step"], ["zero_grad"]]
    return out


def auto_sync(count: int) -> list[list]:
    return windows(count, [["set", "set_model_auto_sync", True]], [["set", "set_model_auto_sync", False]])


def megatrons(count: int) -> list[list]:
    """As Megatron-Core's schedule calls it: all but the last backward of a window in no_sync(), then finish_grad_sync()."""
    out: list[list] = []
    for window in range(2):
        out += [["no_sync"], *[["fb", (window * count + i) % 4] for i in range(count - 1)], ["end"], ["fb", (window * count + count - 1) % 4], ["finish_grad_sync"], ["step"], ["zero_grad"]]
    return out


def spec(name: str, strategy: str, ops: list[list], config: dict | None = None, **more) -> dict:
    base = {"name": f"{name}_{strategy}", "config": {"zero_dp_strategy": strategy} | (config or {}), "ops": ops, "world": 2, "root": [5], "units": [[7, 4], [6]], "n_mb": 4,
            "dtype": "float32"}
    return base | more


UNSYNCED = {"sync_model_each_microbatch": False}


def runs_of(strategy: str) -> Iterator[dict]:
    each_step = [op for m in range(2) for op in (["fb", m], ["step"], ["zero_grad"])]
    without_zero = [["fb", 0], ["fb", 1], ["step"], ["fb", 2], ["step"], ["zero_grad"], ["fb", 3], ["step"]]
    yield spec("ga1", strategy, each_step)
    yield spec("ga4_auto_sync", strategy, auto_sync(4))
    yield spec("ga1_megatron", strategy, megatrons(1), UNSYNCED)
    yield spec("ga4_megatron", strategy, megatrons(4), UNSYNCED)
    yield spec("without_zero", strategy, without_zero)
    yield spec("no_sync_with_auto_sync", strategy, [["no_sync"], ["fb", 0], ["fb", 1], ["end"], ["fb", 2], ["step"], ["zero_grad"], ["fb", 3], ["step"]])
    yield spec("never_synced", strategy, [["fb", 0], ["fb", 1], ["step"], ["zero_grad"], ["fb", 2], ["finish_grad_sync"], ["step"]], UNSYNCED)
    yield spec("finish_twice", strategy, [["no_sync"], ["fb", 0], ["end"], ["fb", 1], ["finish_grad_sync"], ["finish_grad_sync"], ["step"], ["step"], ["zero_grad"]], UNSYNCED)
    yield spec("average", strategy, megatrons(2), UNSYNCED | {"average_in_collective": True})
    tokens = [["no_sync"], ["fb", 0], ["end"], ["fb", 1], ["finish_grad_sync"], ["div_grads", 8], ["step"], ["zero_grad"], ["no_sync"], ["end"], ["fb", 2], ["div_grads", 4],
              ["finish_grad_sync"], ["step"]]
    yield spec("per_token", strategy, tokens, UNSYNCED | {"calculate_per_token_loss": True})
    unused = [["no_sync"], ["fb", 0, {"use": [0, 2]}], ["end"], ["fb", 1, {"use": [1]}], ["finish_grad_sync"], ["step"], ["zero_grad"],
              ["fb", 2, {"use": [1, 3]}], ["finish_grad_sync"], ["step"]]
    yield spec("unused", strategy, unused, UNSYNCED)
    yield spec("frozen", strategy, auto_sync(2), {"frozen": [1]})
    if strategy in ("no_shard", "optim"):  # it is switched on with the others
        yield spec("no_overlap", strategy, megatrons(2), UNSYNCED | {"overlap_grad_reduce": False})
        yield spec("no_overlap_per_token", strategy, tokens, UNSYNCED | {"overlap_grad_reduce": False, "calculate_per_token_loss": True})
    yield spec("three_ranks", strategy, megatrons(2), UNSYNCED, world=3)
    yield spec("one_rank", strategy, megatrons(3), UNSYNCED, world=1)
    yield spec("no_units", strategy, auto_sync(2), root=[5, 9], units=[])
    for precision, policy in (("bf16", {}), ("bf16_fp32_grads", {"main_grads_dtype": "float32"})):
        yield spec(f"{precision}_ga4", strategy, megatrons(4), UNSYNCED | {"mixed_precision": policy}, dtype="bfloat16")
        yield spec(f"{precision}_auto_sync", strategy, auto_sync(2), {"mixed_precision": policy}, dtype="bfloat16")
        yield spec(f"{precision}_one_rank", strategy, megatrons(3), UNSYNCED | {"mixed_precision": policy}, dtype="bfloat16", world=1)
    yield spec("bf16_weights_ga2", strategy, megatrons(2), UNSYNCED | {"mixed_precision": {"main_params_dtype": None}}, dtype="bfloat16")
    mixed = {"main_grads_dtype": "float32", "grad_comm_dtype": "bfloat16"}
    yield spec("bf16_on_the_wire_ga4", strategy, megatrons(4), UNSYNCED | {"mixed_precision": mixed}, dtype="bfloat16")
    yield spec("bf16_on_the_wire_one_rank", strategy, megatrons(3), UNSYNCED | {"mixed_precision": mixed}, dtype="bfloat16", world=1)
    yield spec("dtypes", strategy, megatrons(2), UNSYNCED, dtypes=["bfloat16", "float32", "bfloat16", "float32"])
    if strategy != "no_shard":
        yield spec("hybrid_shards_of_one", strategy, megatrons(3), UNSYNCED | {"mesh": [2, 1]})
    for outer in ("no_shard", "optim"):
        if outer == "optim" and strategy != "optim_grads_params":
            continue
        if strategy == "no_shard":
            continue  # DTensor of PyTorch 2.13 refuses the optimizer's first step
        mesh = {"mesh": [2, 2], "outer_dp_sharding_strategy": outer}
        yield spec(f"hybrid_{outer}_ga3", strategy, megatrons(3), UNSYNCED | mesh, world=4)
        yield spec(f"hybrid_{outer}_auto_sync", strategy, auto_sync(2), mesh, world=4)
        yield spec(f"hybrid_{outer}_every_backward", strategy, [["fb", 0], ["fb", 1], ["step"], ["zero_grad"], ["fb", 2], ["step"], ["zero_grad"]], mesh, world=4)
        yield spec(f"hybrid_{outer}_per_token", strategy, tokens, UNSYNCED | mesh | {"calculate_per_token_loss": True}, world=4)
        yield spec(f"hybrid_{outer}_bf16", strategy, megatrons(2), UNSYNCED | mesh, world=4, dtype="bfloat16")


# What earlier releases do otherwise, and what they may.
TOLD_APART = ("ga4_megatron", "average", "unused", "frozen", "no_overlap", "one_rank", "bf16_ga4", "bf16_one_rank", "bf16_on_the_wire", "hybrid")
NEWEST = (0, 6)


def runs(release: str) -> Iterator[dict]:
    """grad_comm_dtype is known from 0.4.0 on. Before 0.3.0 gradients are handled module by module, which decides the order of what a backward leaves out."""
    number = tuple(int(part) for part in release.split("."))
    for strategy in STRATEGIES:
        for run in runs_of(strategy):
            if number[:2] < NEWEST and not run["name"].startswith(TOLD_APART):
                continue
            if number < (0, 4, 0) and "grad_comm_dtype" in run["config"].get("mixed_precision", {}):
                continue
            if number < (0, 3, 0) and run["name"].startswith("unused"):
                continue
            yield run
