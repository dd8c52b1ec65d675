"""Draws training loops for a real framework: one scenario file a case, a pure function of producer, seed and number.

A case has one or two features beside an ordinary loop, so that a finding can be told from others. What comes out is no more than
documented calls in an order that the drawing makes up; whether an order is documented use, the verdict says.
"""
from __future__ import annotations

import random
from typing import Any, Callable

Event = dict[str, Any]
PARAMETERS = [{"name": "w0", "numel": 12}, {"name": "w1", "numel": 8}, {"name": "w2", "numel": 6}]
PRODUCERS = ("deepspeed", "ddp", "fsdp2", "fsdp1")


def draw(producer: str, seed: int, number: int) -> dict[str, Any]:
    rng = random.Random(f"{producer}/{seed}/{number}")
    case = (DeepSpeedCase if producer == "deepspeed" else TorchCase)(producer, rng)
    scenario = case.scenario()
    scenario["name"] = f"{producer}-{seed}-{number}"
    scenario["expect"] = {"findings": []}
    return scenario


class Case:
    """A loop of two to four windows. `features` are what it has besides."""

    possible: tuple[str, ...] = ()

    def __init__(self, producer: str, rng: random.Random) -> None:
        self.producer, self.rng = producer, rng
        self.features = set(rng.sample(self.possible, rng.choice((0, 1, 1, 2))))
        self.micro_batches = rng.choice((1, 2, 2, 3))
        self.parameters = [dict(parameter) for parameter in PARAMETERS]

    def has(self, feature: str) -> bool:
        return feature in self.features

    def sometimes(self, feature: str) -> bool:
        return self.has(feature) and self.rng.random() < 0.5

    def uses(self) -> Event:
        """What of the parameters a backward reaches: all, or with `unused` some."""
        if not self.sometimes("unused"):
            return {}
        return {"uses": [parameter["name"] for parameter in self.rng.sample(self.parameters, self.rng.choice((1, 2)))]}

    def window(self, number: int) -> list[Event]:
        raise NotImplementedError

    def script(self) -> list[Event]:
        windows = [self.window(number) for number in range(self.rng.choice((2, 3, 4)))]
        return [event for window in windows for event in window]


class DeepSpeedCase(Case):
    possible = ("unused", "direct", "forwards first", "graph twice", "extra backward", "zero_grad", "set_gradient", "coalesce", "overflow", "unscaled", "no_sync")

    def scenario(self) -> dict[str, Any]:
        config, dtype = self.config()
        contract: dict[str, Any] = {"window": "since_last_step", "average_over": "none" if config.get("gradient_allreduce_op") == "sum" else "world",
                                    "divide_by": 1 if self.has("unscaled") else "gradient_accumulation_steps"}
        if self.has("coalesce"):
            contract["window"] = "every_step_call"
        return {"world_size": 2, "parameters": self.parameters, "model_dtype": dtype,
                "engine": {"framework": "deepspeed", "as_of": "head", "config": config, "optimizer": self.optimizer()}, "contract": contract, "script": self.script()}

    def optimizer(self) -> dict[str, Any]:
        return {"type": "Adam", "lr": 0.125} if self.rng.random() < 0.15 else {"type": "SGD", "lr": 1.0}

    def config(self) -> tuple[dict[str, Any], str]:
        rng, stage = self.rng, self.rng.choice((0, 1, 2, 2, 3, 3))
        dtype = self.rng.choice(("fp32", "fp32", "bf16", "fp16"))
        config: dict[str, Any] = {"gradient_accumulation_steps": self.micro_batches, "gradient_clipping": rng.choice((0.0, 0.0, 0.0, 0.25)), "zero_optimization": {"stage": stage}}
        zero = config["zero_optimization"]
        if dtype == "fp16":
            config["fp16"] = {"enabled": True} | rng.choice(({"loss_scale": 8}, {"initial_scale_power": 8, "hysteresis": 1, "loss_scale_window": 2}))
        elif dtype == "bf16":
            config["bf16"] = {"enabled": True}
        if stage and rng.random() < 0.4:
            zero["offload_optimizer"] = {"device": "cpu"}
        if stage and dtype != "fp32" and rng.random() < 0.4:
            config["data_types"] = {"grad_accum_dtype": "fp32"}
        if stage in (1, 2) and rng.random() < 0.3:
            zero["overlap_comm"] = True
        if stage == 3 and rng.random() < 0.3:
            zero["reduce_scatter"] = False
            config["gradient_predivide_factor"] = rng.choice((1.0, 2.0))
        if stage < 3 and rng.random() < 0.1:
            config["gradient_allreduce_op"] = "sum"
        if stage and rng.random() < 0.2:
            zero["round_robin_gradients"] = True
        self.managed = rng.random() < 0.8
        if not self.managed:
            config["managed_gradient_accumulation"] = False
        return config, dtype

    def window(self, number: int) -> list[Event]:
        out: list[Event] = []
        if self.sometimes("overflow"):
            out.append({"overflow": {"rank": self.rng.randrange(2), "micro_batch": 0}})
        if self.sometimes("coalesce"):
            out += [{"coalesce": [{"backward": self.backward()} for _ in range(self.micro_batches)]}]
        elif self.sometimes("forwards first"):
            out += [{"forward": {}} for _ in range(2)] + [{"backward": self.backward() | {"of": of}} for of in range(2)]
        elif self.sometimes("graph twice"):
            out += [{"forward": {}}] + [{"backward": self.backward() | {"of": 0}}] * 2
        elif self.sometimes("no_sync") and self.micro_batches > 1:
            out += [{"no_sync": [{"backward": self.backward()} for _ in range(self.micro_batches - 1)]}, {"backward": self.backward()}]
        else:
            for m in range(self.micro_batches):
                out += [{"backward": self.backward()}] * (2 if self.sometimes("extra backward") else 1)
                if m + 1 < self.micro_batches and self.managed:
                    out.append({"step": {}})
                    if self.sometimes("zero_grad"):
                        out.append({"zero_grad": "engine"})
        if self.sometimes("set_gradient"):
            out.append({"set_gradient": {"parameter": self.rng.choice(self.parameters)["name"], "times": "1/4"}})
        return out + [{"step": {}}]

    def backward(self) -> Event:
        out = self.uses()
        if self.has("direct"):
            out["direct"] = True
        elif self.has("unscaled"):
            out["scale_wrt_gas"] = False
        return out


class TorchCase(Case):
    possible = ("unused", "forwards first", "graph twice", "zero_grad", "open window", "raise", "no step", "last in no_sync")

    def scenario(self) -> dict[str, Any]:
        return {"world_size": 2, "parameters": self.parameters, "model_dtype": "fp32",
                "engine": {"framework": self.producer, "config": self.config(), "optimizer": {"type": "SGD", "lr": 1.0}}, "script": self.script()}

    def config(self) -> dict[str, Any]:
        rng, out = self.rng, {}
        draws: dict[str, Callable[[], dict[str, Any]]] = {"ddp": self.ddp, "fsdp2": self.fsdp2, "fsdp1": self.fsdp1}
        out.update(draws[self.producer]())
        if self.producer == "ddp" and rng.random() < 0.15:
            out["grad_scaler"] = {"init_scale": 8.0}
        return out

    def ddp(self) -> dict[str, Any]:
        rng, out = self.rng, {}
        for key, chance in (("gradient_as_bucket_view", 0.4), ("find_unused_parameters", 0.4), ("static_graph", 0.2), ("batched_grad_copy", 0.2), ("skip_all_reduce_unused_params", 0.15)):
            if rng.random() < chance:
                out[key] = True
        if not out.get("find_unused_parameters"):
            out.pop("skip_all_reduce_unused_params", None)
        if rng.random() < 0.3:
            out["bucket_cap_mb"] = 0.00003
        if rng.random() < 0.2:
            out["comm_hook"] = rng.choice(("allreduce", "fp16_compress", "bf16_compress"))
        if rng.random() < 0.15:
            out["delay_all_reduce"] = {"params": ["w2"], "hook": "w0"}
        return out

    def fsdp2(self) -> dict[str, Any]:
        rng, out = self.rng, {}
        if rng.random() < 0.3:
            out["reshard_after_forward"] = False
        if rng.random() < 0.3:
            out["mixed_precision"] = rng.choice(({"param_dtype": "bf16"}, {"param_dtype": "bf16", "reduce_dtype": "fp32"}, {"reduce_dtype": "bf16"}))
        if rng.random() < 0.2:
            out["offload"] = True
        if rng.random() < 0.3:
            out["wrap"] = "root"
        return out

    def fsdp1(self) -> dict[str, Any]:
        rng, out = self.rng, {}
        if rng.random() < 0.5:
            out["use_orig_params"] = True
        if rng.random() < 0.3:
            out["sharding_strategy"] = "SHARD_GRAD_OP"
        if rng.random() < 0.3:
            out["mixed_precision"] = rng.choice(({"param_dtype": "bf16"}, {"param_dtype": "bf16", "reduce_dtype": "fp32"}, {"reduce_dtype": "bf16"}))
        return out

    def window(self, number: int) -> list[Event]:
        out: list[Event] = []
        if self.sometimes("forwards first"):
            out += [{"forward": {}}, {"forward": {}}, {"backward": {"of": 0}}, {"backward": {"of": 1}}]
        elif self.sometimes("graph twice"):
            out += [{"forward": {}}, {"backward": {"of": 0}}, {"backward": {"of": 0}}]
        else:
            synced = self.rng.random() < 0.3
            for _ in range(self.micro_batches - 1):
                out.append({"backward": self.uses()} if synced else {"no_sync": [{"backward": self.uses()}]})
            if self.sometimes("raise"):
                out.append({"raise": {"caught": True}})
            last = {"backward": self.uses()}
            out.append({"no_sync": [last]} if self.sometimes("last in no_sync") else last)
        if self.sometimes("open window"):  # an epoch ends in a window, and what it has so far is dropped
            out = [{"no_sync": [{"backward": self.uses()}]}, {"zero_grad": self.rng.choice(("optimizer", {"of": "optimizer", "set_to_none": False}))}] + out
        if self.sometimes("zero_grad"):
            out.insert(self.rng.randrange(len(out) + 1), {"zero_grad": "optimizer"})
        return out + ([] if number == 0 and self.sometimes("no step") else [{"step": {}}, {"zero_grad": "optimizer"}])
