"""Random runs that a user might write. The same seed gives the same runs, whatever release they are made with."""
from __future__ import annotations

import random
from collections.abc import Iterator

from .runs import Spec


def runs(seed: int, count: int, prefix: str) -> Iterator[Spec]:
    for number in range(count):
        draw = random.Random(f"{seed}/{number}")
        config = drawn_config(draw)
        world = draw.choice((2, 2, 2, 3))
        sizes = draw.choice(([30, 21, 13], [8, 5], [17, 40, 9]))
        yield {"name": f"{prefix}_{seed}_{number}", "world": world, "sizes": sizes, "n_mb": 4, "config": config,
               "ops": drawn_operations(draw, config, len(sizes))}


def base_config(stage: int, steps: int, **more) -> dict:
    """What every run has: sizes that fit parameters of a few dozen elements, and no message for each step."""
    zero: dict = {"stage": stage}
    if stage:
        zero |= {"reduce_bucket_size": 1000, "allgather_bucket_size": 1000}
    if stage == 3:
        zero["stage3_param_persistence_threshold"] = 0
    return {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": steps, "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False, "zero_optimization": zero, "steps_per_print": 10 ** 9, "gradient_clipping": 0} | more


def drawn_config(draw: random.Random) -> dict:
    stage = draw.randint(0, 3)
    config = base_config(stage, draw.choice((1, 2, 4)))
    dtype = draw.choice(("fp32", "bf16", "bf16", "fp16"))
    if dtype != "fp32":
        config[dtype] = {"enabled": True}
    if dtype == "fp16":
        config["fp16"] |= {"loss_scale": draw.choice((0, 8)), "initial_scale_power": 4, "loss_scale_window": draw.choice((2, 1000)), "hysteresis": 1,
                           "min_loss_scale": 1}
    zero = config["zero_optimization"]
    if dtype == "bf16":
        acc = "bf16" if stage != 1 else draw.choice(("bf16", "fp32"))
        config["data_types"] = {"grad_accum_dtype": acc}
    if stage and draw.random() < 0.3:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    if stage in (1, 2) and draw.random() < 0.3:
        zero["reduce_bucket_size"] = 25
    if stage in (1, 2) and draw.random() < 0.2:
        zero["overlap_comm"] = True
    if draw.random() < 0.25:
        config["gradient_clipping"] = 2
    return config


def drawn_operations(draw: random.Random, config: dict, parameters: int) -> list:
    steps, explicit = config["gradient_accumulation_steps"], draw.random() < 0.4
    out: list = []
    for _ in range(draw.randint(2, 3)):
        micro_batches = draw.randint(2, 4) if explicit else steps
        for m in range(micro_batches):
            if explicit:
                out.append(["boundary", m == micro_batches - 1])
            out.append(drawn_backward(draw, config, m % 4, parameters))
            if not explicit:
                out.append(["step"])
        if explicit:
            out.append(["step"])
        if draw.random() < 0.2:
            out.append([draw.choice(("zero_grad", "opt_zero_grad"))])
    return out


def drawn_backward(draw: random.Random, config: dict, micro_batch: int, parameters: int) -> list:
    if draw.random() < 0.15:
        return ["fb", micro_batch, {"use": sorted(draw.sample(range(parameters), parameters - 1))}]
    if "fp16" in config and draw.random() < 0.15:
        return ["fb", micro_batch, {"inf": [0]}]
    return ["fb", micro_batch]
