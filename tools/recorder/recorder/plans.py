"""The runs of the repository's own recordings, by name of the plan. The same for every release."""
from __future__ import annotations

from collections.abc import Iterator

from .draw import base_config
from .runs import Spec

MANAGED = {n: [op for _ in range(2) for m in range(n) for op in (["fb", m], ["step"])] for n in (1, 2, 4)}
MARKED = [op for _ in range(2) for op in ([["boundary", False], ["fb", 0], ["fb", 1], ["boundary", True], ["fb", 2], ["step"]])]


def named(name: str, config: dict, ops: list, **more) -> Spec:
    return {"name": name, "config": config, "ops": ops} | more


def config_of(stage: int, steps: int, dtype: str, accumulation: str | None = None, offload: bool = False, **more) -> dict:
    config = base_config(stage, steps, **more)
    if dtype != "fp32":
        config[dtype] = {"enabled": True}
    if accumulation:
        config["data_types"] = {"grad_accum_dtype": accumulation}
    if offload:
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    return config


def bf16(stage: int, steps: int, **more) -> dict:
    """Accumulates in bf16, but at stage 0, where releases differ in what they take: there in fp32."""
    return config_of(stage, steps, "bf16", "bf16" if stage else "fp32", **more)


def lifecycle() -> Iterator[Spec]:
    """Stages 0 to 3, with and without offload: windows by counter and by boundary, unused parameters, clipping, three ranks."""
    for stage in range(4):
        yield named(f"fp32_ga4_z{stage}", config_of(stage, 4, "fp32"), MANAGED[4])
        yield named(f"bf16_ga4_z{stage}", bf16(stage, 4), MANAGED[4])
        yield named(f"bf16_boundary_z{stage}", bf16(stage, 1), MARKED)
        yield named(f"fp32_ga1_z{stage}", config_of(stage, 1, "fp32"), [op for op in MARKED if op[0] != "boundary"])
        yield named(f"bf16_clip_z{stage}", bf16(stage, 2, gradient_clipping=2), MANAGED[2])
        unused = [["fb", 0, {"use": [0, 2]}], ["step"], ["fb", 1], ["step"], ["fb", 2, {"use": [0, 1]}], ["step"], ["fb", 3, {"use": [0, 1]}], ["step"]]
        yield named(f"fp32_unused_z{stage}", config_of(stage, 2, "fp32"), unused)
        yield named(f"fp32_three_ranks_z{stage}", config_of(stage, 2, "fp32"), MANAGED[2], world=3, n_mb=2, grads={"seed": 3})
        yield named(f"bf16_zero_grad_z{stage}", bf16(stage, 2), [["fb", 0], ["step"], ["zero_grad"], ["fb", 1], ["step"], ["fb", 2], ["step"], ["fb", 3], ["step"],
                                                                *([["opt_zero_grad"]] if stage else [])])
    for stage in (1, 2, 3):
        yield named(f"bf16_ga4_z{stage}_off", bf16(stage, 4, offload=True), MANAGED[4])
        yield named(f"bf16_boundary_z{stage}_off", bf16(stage, 1, offload=True), MARKED)
        yield named(f"bf16_fp32acc_ga4_z{stage}", config_of(stage, 4, "bf16", "fp32"), MANAGED[4])
        buckets = config_of(stage, 2, "fp32")
        buckets["zero_optimization"] |= {"reduce_bucket_size": 25, "overlap_comm": True}
        yield named(f"fp32_small_buckets_overlap_z{stage}", buckets, MANAGED[2])


def loss_scale() -> Iterator[Spec]:
    """fp16: static and dynamic scales, overflow on one rank, growth, hysteresis, clipping."""
    for stage in range(4):
        for name, part in (("static", {"loss_scale": 8}), ("dynamic", {"loss_scale": 0, "loss_scale_window": 2}),
                           ("hysteresis", {"loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2})):
            config = config_of(stage, 2, "fp16")
            config["fp16"] |= {"initial_scale_power": 4, "hysteresis": 1, "min_loss_scale": 1} | part
            overflow = [["fb", 0, {"inf": [0]}], ["step"], ["fb", 1], ["step"]]
            good = [["fb", 2], ["step"], ["fb", 3], ["step"]]
            yield named(f"fp16_{name}_good_z{stage}", config, good * 4)
            yield named(f"fp16_{name}_overflow_z{stage}", config, good + overflow + good + overflow + overflow + good)
        if stage:
            config = config_of(stage, 2, "fp16", offload=True, gradient_clipping=2)
            config["fp16"] |= {"loss_scale": 0, "initial_scale_power": 4, "loss_scale_window": 2, "hysteresis": 1, "min_loss_scale": 1}
            yield named(f"fp16_dynamic_clip_z{stage}_off", config, good + overflow + good)


BETAS = {"lr": 0.01, "betas": [0.9, 0.99], "eps": 1e-8}  # no tolerance: the defaults of Adam, but for lr and the second beta


def adam() -> Iterator[Spec]:
    """Adam and AdamW of PyTorch, handed to deepspeed.initialize."""
    for stage in range(4):
        for dtype in ("fp32", "bf16"):
            config = bf16(stage, 2) if dtype == "bf16" else config_of(stage, 2, dtype)
            yield named(f"torch_adam_{dtype}_z{stage}", config, MANAGED[2] * 2, optimizer={"type": "Adam", "torch_adam": True} | BETAS, grads={"seed": 7})
        yield named(f"torch_adamw_decay_z{stage}", config_of(stage, 2, "fp32", gradient_clipping=2), MANAGED[2] * 2,
                    optimizer={"type": "AdamW", "torch_adam": True, "weight_decay": 0.1} | BETAS, grads={"seed": 7})


def first_step() -> Iterator[Spec]:
    """Adam and AdamW of PyTorch with masters at stage 0, whose wrapper takes a step with zeros when it is made."""
    for dtype in ("bf16", "fp16"):
        config = config_of(0, 2, dtype)
        if dtype == "fp16":
            config["fp16"] |= {"loss_scale": 8}  # a dynamic one skips the first steps
        for kind, settings in (("adam", {"type": "Adam"}), ("adamw_decay", {"type": "AdamW", "weight_decay": 0.1})):
            yield named(f"first_step_{kind}_{dtype}_z0", config, MANAGED[2], optimizer=settings | {"torch_adam": True} | BETAS, grads={"seed": 7})


def own_adam() -> Iterator[Spec]:
    """Adam and AdamW of DeepSpeed, asked for in the configuration. They are compiled at first use, which takes minutes."""
    for stage in range(4):
        yield named(f"own_adam_fp32_z{stage}", config_of(stage, 2, "fp32"), MANAGED[2] * 2, optimizer={"type": "Adam", "weight_decay": 0.1} | BETAS,
                    grads={"seed": 7}, timeout=1800)
        if stage:
            yield named(f"own_adamw_bf16_z{stage}_off", bf16(stage, 2, offload=True), MANAGED[2] * 2,
                        optimizer={"type": "AdamW", "weight_decay": 0.1} | BETAS, grads={"seed": 7}, timeout=1800)


def other_calls() -> Iterator[Spec]:
    """What a loop may call beside the usual: batch sizes that change, loss.backward(), evaluation, the flag given back to the counter, ranks that differ."""
    kinds = [(f"fp32_z{stage}", config_of(stage, 2, "fp32")) for stage in range(4)]
    kinds += [(f"bf16_z{stage}", bf16(stage, 2)) for stage in (0, 2, 3)] + [("bf16opt", config_of(1, 2, "bf16", "fp32"))]
    kinds += [(f"bf16_z{stage}_off", bf16(stage, 2, offload=True)) for stage in (1, 2, 3)]
    window = [["fb", 0], ["step"], ["fb", 1], ["step"]]
    for name, config in kinds:
        longer = [op for m in range(4) for op in (["fb", m], ["step"])]
        yield named(f"batch_grows_{name}", config, window + [["set_train_batch_size", 8]] + longer + [["set_train_batch_size", 2], ["fb", 2], ["step"]])
        yield named(f"batch_grows_in_a_window_{name}", config, [["fb", 0], ["step"], ["set_train_batch_size", 8]] + [op for m in (1, 2, 3) for op in (["fb", m], ["step"])])
        yield named(f"torch_{name}", config, [["torch", 0], ["step"], ["fb", 1], ["step"], ["torch", 2], ["step"], ["torch", 3], ["step"]])
        yield named(f"torch_batch_grows_{name}", config, [["set_train_batch_size", 8]] + [op for m in range(4) for op in (["torch", m], ["step"])])
        yield named(f"eval_{name}", config, [["eval", 3], ["fb", 0], ["step"], ["eval", 2], ["f", 1], ["eval", 3], ["b", 1], ["step"], ["eval"], ["train"]] + window)
        flags = [["boundary", True], ["fb", 0], ["step"], ["boundary", None], ["fb", 1], ["step"], ["boundary", False], ["fb", 2], ["boundary", None], ["fb", 3], ["step"]]
        yield named(f"boundary_none_{name}", config, flags + window)
        reads = [["fb", 0], ["safe_get_full_grad", 0], ["step"], ["fb", 1], ["safe_get_full_grad", 1], ["safe_get_full_grad", 2], ["step"], ["fb", 2], ["step"]]
        yield named(f"safe_get_{name}", config, reads)
        yield named(f"empty_{name}", config, window + window, sizes=[10, 0, 13])
        yield named(f"orders_differ_{name}", config, [["fb", 0, {"use": {"0": [0, 1, 2], "1": [2, 1, 0]}}], ["step"], ["fb", 1, {"use": [1, 2, 0]}], ["step"]] + window)
        yield named(f"uses_differ_{name}", config, [["fb", 0, {"use": {"0": [0, 1, 2], "1": [0, 2]}}], ["step"], ["fb", 1, {"use": {"0": [1], "1": [0, 2]}}], ["step"]] + window)


PLANS = {"lifecycle": lifecycle, "other_calls": other_calls, "loss_scale": loss_scale, "adam": adam, "first_step": first_step, "own_adam": own_adam}
