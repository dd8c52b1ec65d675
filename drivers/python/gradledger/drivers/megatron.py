"""Megatron-Core: DistributedDataParallel with its buffers, finalize_model_grads, the schedules without a pipeline, and the optimizers."""
from __future__ import annotations

from typing import Any, Iterable, Iterator

import torch

from . import megatron_cpu

if not torch.cuda.is_available():
    megatron_cpu.install()

from megatron.core import optimizer as megatron_optimizer, parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, distrib_optimizer, get_megatron_optimizer
from megatron.core.transformer import TransformerConfig

from .. import optimizers
from ..driver import Backward, Buffer, Configuration, Parameter, Piece, Refused
from ..model import Graph, Layer, LinearModel, Term, rounded_once
from ..torch_loop import TorchLoop
from .megatron_schedule import Ready, ScheduleCall, given, one_micro_batch

PARTS = {"ddp", "optimizer_config", "model", "parameters", "schedule"}
OF_THE_MODEL = {"gradient_accumulation_fusion", "used_twice"}  # of which Megatron is told nothing: a layer is as it is
Groups = tuple[int, int, int, int, int]  # sizes of tp, cp, ep and etp, and instances


class Stage(LinearModel):
    """What Megatron asks of a model."""
    model_type = None
    share_embeddings_and_output_weights = False
    pre_process = post_process = True

    def shape(self, configuration: Configuration, p: int) -> tuple[int, ...]:
        return (1, configuration.parameters[p].numel)  # one dimension would make it a bias, whose weight does not decay

    def __init__(self, configuration: Configuration, device: torch.device) -> None:
        super().__init__(configuration, device)
        of = {p: attributes_of(configuration, p) for p in self.weights}
        self.fused = {p for p in of if "gradient_accumulation_fusion" in of[p]}
        self.twice = {p for p in of if "used_twice" in of[p]}
        for p in self.fused:
            self.layers[p] = FusedLayer(self.weights[p])

    def set_input_tensor(self, tensors: Any) -> None:
        pass

    def terms(self, graph: Graph) -> list[Term]:
        """Of two uses in one forward each has half of the gradient."""
        return [half for term in super().terms(graph) for half in ([term._replace(share=term.share / 2)] * 2 if term.parameter in self.twice else [term])]


class FusedLayer(Layer):
    """A linear layer whose kernel adds to main_grad itself; what autograd is given is not looked at."""

    def forward(self, loss: torch.Tensor, *use: Any) -> torch.Tensor:
        return _FusedTerm.apply(loss, self.weight, *use) if use else loss


class _FusedTerm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, weight: torch.Tensor, given: torch.Tensor, share: float, graph: Graph, place: int, owner: int) -> torch.Tensor:
        ctx.weight, ctx.share, ctx.graph, ctx.owner = weight, share, graph, owner
        return loss + (weight.float() * given.view(weight.shape)).sum() * share

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        weight, given = ctx.weight, ctx.graph.gradients[ctx.owner].double().view(ctx.weight.shape)
        weight.main_grad.add_(rounded_once(given * (gradient.double() * ctx.share), weight.main_grad.dtype))
        weight.grad_added_to_main_grad = True
        return gradient, torch.zeros_like(weight), *[None] * 5


class Megatron(TorchLoop):
    name = "megatron"
    frameworks = ("megatron",)
    packages = ("torch", "megatron-core")
    preload = ()
    config_keys = frozenset(PARTS)
    own_events = ("forward_backward_func", "finalize_model_grads", "start_grad_sync", "start_param_sync")
    lays_out_ranks = experts = True
    # Process groups outlive the engine that they were made for: Megatron keeps them in variables of its module.
    made_groups: dict[Groups, dict[str, Any]] = {}

    def check(self, configuration: Configuration) -> None:
        super().check(configuration)
        config = configuration.config
        if "grad_scaler" in config:
            raise Refused("engine.config has grad_scaler; Megatron's optimizer has its own")
        if any("shared_embedding" in attributes for attributes in (config.get("parameters") or {}).values()):
            raise Refused("shared_embedding is of a pipeline, and the driver has one stage")
        if (config.get("schedule") or {}).get("model_chunks"):
            raise Refused("model_chunks are of a pipeline, and the driver has one stage")
        if not isinstance(configuration.engine.get("as_of"), str):
            raise Refused("switches of single behaviours are of the simulator; expected a release")
        self.experts_over = configuration.engine.get("expert_parallel_size", 1)

    def holds(self, parameter: Parameter) -> bool:
        if parameter.expert is None:
            return super().holds(parameter)
        of = self.groups.of("ep") if "ep" in self.groups.members else None
        size = len(of) if of else self.experts_over
        return super().holds(parameter) and (of.index(self.rank) if of else self.rank % size) == parameter.expert % size

    def make_model(self) -> Stage:
        self.make_groups()
        self.ddp_options = dict(self.configuration.config.get("ddp") or {})
        self.schedule = self.configuration.config.get("schedule")
        self.transformer = self.transformer_config()
        model = Stage(self.configuration, self.device)
        for p, weight in model.weights.items():
            weight.allreduce = self.configuration.parameters[p].expert is None
            for attribute in attributes_of(self.configuration, p) - OF_THE_MODEL:
                setattr(weight, attribute, True)
        if model.fused:
            self.notes.append("gradient_accumulation_fusion: what its kernel of CUDA's adds to main_grad is added on the CPU")
        model.config = self.transformer
        return model

    # ---- Megatron's own process groups

    def make_groups(self) -> None:
        config = self.configuration.config
        instances = (config.get("ddp") or {}).get("num_distributed_optimizer_instances", 1)
        sizes = {name: self.groups.size(name) if name in self.groups.members else 1 for name in ("tp", "cp", "pp", "ep", "etp")}
        if sizes["pp"] > 1:
            raise Refused("a group pp of several ranks: the driver has one stage")
        sizes["ep"] = max(sizes["ep"], self.experts_over)
        key: Groups = (sizes["tp"], sizes["cp"], sizes["ep"], sizes["etp"] if "etp" in self.groups.members else sizes["tp"], instances)
        names = vars(parallel_state)
        if key in self.made_groups:
            names.update(self.made_groups[key])
        else:
            parallel_state.destroy_model_parallel()
            given(parallel_state.initialize_model_parallel, tensor_model_parallel_size=key[0], context_parallel_size=key[1], expert_model_parallel_size=key[2],
                  expert_tensor_parallel_size=key[3], create_gloo_process_groups=False, **({"num_distributed_optimizer_instances": instances} if instances > 1 else {}))
            self.made_groups[key] = {name: value for name, value in names.items() if name.startswith("_") and name[1:].isupper()}
        for name, group in (("tp", parallel_state.get_tensor_model_parallel_group()), ("cp", parallel_state.get_context_parallel_group()),
                            ("ep", parallel_state.get_expert_model_parallel_group()), ("etp", parallel_state.get_expert_tensor_parallel_group())):
            found = tuple(torch.distributed.get_process_group_ranks(group))
            if name in self.groups.members and sizes[name] > 1 and found != self.groups.of(name):
                raise Refused(f"ranks {self.groups.of(name)} in the group {name}; Megatron's order has {found}")

    def transformer_config(self) -> TransformerConfig:
        model, dtype = self.configuration.config.get("model") or {}, self.configuration.model_dtype
        return TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=8, tensor_model_parallel_size=parallel_state.get_tensor_model_parallel_world_size(),
                                 context_parallel_size=parallel_state.get_context_parallel_world_size(), params_dtype=dtype, bf16=dtype == torch.bfloat16,
                                 fp16=dtype == torch.float16, **model)

    def wrap(self, model: Stage) -> DistributedDataParallel:
        if self.device.type == "cpu":
            self.notes.append(megatron_cpu.NOTE)
        if self.ddp_options.get("bucket_size") is not None and not self.ddp_options.get("overlap_grad_reduce"):
            self.notes.append("bucket_size is not looked at without overlap_grad_reduce")
        out = DistributedDataParallel(self.transformer, DistributedDataParallelConfig(**self.ddp_options), model)
        self.transformer.no_sync_func = out.no_sync
        if self.schedule and self.schedule.get("grad_sync_func"):
            self.transformer.grad_sync_func = out.start_grad_sync
        return out

    # ---- the optimizers

    def make_optimizer(self) -> torch.optim.Optimizer:
        """torch's, that Megatron's works with. What the loop calls is `self.chained`."""
        self.call: ScheduleCall | None = None
        self.tokens: torch.Tensor | None = None  # of the window so far, where any were counted
        self.reduced = self.is_applied = self.may_reduce = False
        options, distributed = self.optimizer_options(), bool(self.ddp_options.get("use_distributed_optimizer"))
        if distributed and options["optimizer"] == "sgd":
            self.notes.append("the distributed optimizer asserts that it is given Adam: here any optimizer of torch's is one")
        distrib_optimizer.Adam = torch.optim.Optimizer
        self.chained = given(get_megatron_optimizer, config=OptimizerConfig(**options), model_chunks=[self.module], use_gloo_process_groups=False)
        self.children = [child for child in getattr(self.chained, "chained_optimizers", [self.chained]) if child.optimizer is not None]
        if not self.children:
            raise Refused("a rank without a parameter that is trained")
        self.transformer.grad_scale_func = self.chained.scale_loss
        self.masters: list[torch.Tensor] = []
        self.numbers = {weight: p for p, weight in self.model.weights.items()}
        for weight, main, start in self.all_pairs():
            p = self.numbers[weight]
            self.names[main], self.pieces_of[main] = self.configuration.parameters[p].name, [(p, start, main.numel())]
            if main is not weight and main.dtype != weight.dtype:
                self.masters.append(main)
        self.applied_to_experts = [optimizers.Applied(child.optimizer, self.pieces) for child in self.children[1:]]  # beside `applied`
        return self.children[0].optimizer

    def optimizer_options(self) -> dict[str, Any]:
        arguments, kind = optimizers.arguments(self.configuration), optimizers.settings(self.configuration)["type"]
        given_options = dict(self.configuration.config.get("optimizer_config") or {})
        if self.configuration.linear:
            given_options["clip_grad"] = 0.0
        out = {"optimizer": "sgd" if kind == "SGD" else "adam", "lr": arguments["lr"], "min_lr": arguments["lr"], "weight_decay": arguments["weight_decay"],
               "sgd_momentum": 0.0, "bf16": self.configuration.model_dtype == torch.bfloat16, "fp16": self.configuration.model_dtype == torch.float16,
               "params_dtype": self.configuration.model_dtype, "use_distributed_optimizer": bool(self.ddp_options.get("use_distributed_optimizer")),
               "overlap_param_gather": bool(self.ddp_options.get("overlap_param_gather"))} | given_options
        if kind != "SGD":
            out |= {"adam_beta1": arguments["betas"][0], "adam_beta2": arguments["betas"][1], "adam_eps": arguments["eps"]}
            adam = optimizers.KINDS[kind][0]
            if hasattr(OptimizerConfig, "decoupled_weight_decay"):
                out["decoupled_weight_decay"] = kind == "AdamW"
            else:
                megatron_optimizer.Adam = adam
        return {key: value for key, value in out.items() if key in OptimizerConfig.__dataclass_fields__}

    def all_pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, int]]:
        for child in self.children:
            yield from self.pairs(child)

    def pairs(self, child: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor, int]]:
        """A weight of the model, what torch's optimizer has of it, and where that begins."""
        if isinstance(child, distrib_optimizer.DistributedOptimizer):
            of = ((child.model_float16_groups, child.shard_fp32_from_float16_groups), (child.model_fp32_groups, child.shard_fp32_groups))
            for weights, mains in of:
                for weight, main in zip(flat(weights), flat(mains)):
                    yield weight, main, child._get_model_param_range_map(weight)["param"].start
        elif hasattr(child, "fp32_from_float16_groups"):
            yield from ((weight, main, 0) for weight, main in zip(flat(child.float16_groups), flat(child.fp32_from_float16_groups)))
            yield from ((weight, weight, 0) for weight in flat(child.fp32_from_fp32_groups))
        else:
            yield from ((weight, weight, 0) for group in child.optimizer.param_groups for weight in group["params"])

    # ---- events

    def backward(self, event: Backward) -> None:
        if event.of is not None:
            raise Refused("a backward of a forward before it: the schedule has both in one")
        self.gradient_scale = float(self.chained.get_loss_scale())
        self.may_reduce |= any(group.is_last_microbatch for group in self.module.bucket_groups + self.module.expert_parallel_bucket_groups)
        ready = self.ready(event)
        if self.call is not None and not self.call.over:
            self.call.backward(ready)
            if self.call.over:
                self.count(self.call.tokens)
        elif self.schedule:
            self.count(one_micro_batch(self.module, ready, self.schedule["num_microbatches"], parallel_state.get_context_parallel_world_size()))
        else:
            self.chained.scale_loss(self.module(ready[0]) * event.loss_factor).backward()
            if event.tokens is not None:
                self.count(torch.tensor(event.tokens, dtype=torch.int))

    def ready(self, event: Backward) -> Ready:
        graph = Graph.of(event)
        graph.before(event)
        of_tokens = bool(self.schedule) and self.schedule.get("loss") == "sum_and_tokens"

        def losses(loss: torch.Tensor) -> tuple:
            loss = loss * event.loss_factor
            return (loss, torch.tensor(event.tokens or 0, dtype=torch.int), {}) if of_tokens else (loss, {})
        return graph, losses

    def count(self, tokens: torch.Tensor | None) -> None:
        if tokens is not None:
            self.tokens = tokens if self.tokens is None else self.tokens + tokens

    def forward_backward_func(self) -> None:
        self.leave_call()
        self.call = ScheduleCall(self.module, self.schedule["num_microbatches"])

    def leave_call(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call.leave()

    def raise_(self, caught: bool = False) -> None:
        self.leave_call()
        super().raise_(caught)

    def close(self) -> None:
        if getattr(self, "call", None) is not None:
            self.leave_call()
        super().close()

    def finalize_model_grads(self) -> None:
        tokens, self.tokens = self.tokens, None
        finalize_model_grads([self.module], tokens if self.transformer.calculate_per_token_loss else None)
        self.reduced, self.may_reduce = True, False

    def start_grad_sync(self) -> None:
        self.may_reduce = True
        self.module.start_grad_sync()

    def start_param_sync(self) -> None:
        self.module.start_param_sync(force_sync=True)

    def enter_no_sync(self) -> None:
        self.enter_block(self.module.no_sync())

    def exit_no_sync(self, raising: bool = False) -> None:
        self.exit_block(raising)

    def zero_grad(self, of: str = "optimizer", set_to_none: bool = True) -> None:
        if of == "engine":
            self.module.zero_grad_buffer()
            self.reduced = self.is_applied = self.may_reduce = False
        else:
            self.chained.zero_grad(set_to_none)

    def step(self, past_scaler: bool = False) -> None:
        self.is_applied = True
        child = self.children[0]
        self.gradient_scale = 1.0  # the optimizer divides before its step
        updated, norm, _ = self.chained.step()
        updated = bool(updated) and any(each.steps for each in (self.applied, *self.applied_to_experts))
        self.known = {"updated": int(updated)}
        if getattr(child, "grad_scaler", None) is not None:
            self.known |= {"skipped": int(not updated), "loss_scale": float(self.chained.get_loss_scale())}
        if updated and norm is not None and not self.configuration.linear and self.children[0].config.clip_grad > 0:
            self.known["gradient_norm"] = float(norm)

    def save(self) -> None:
        raise self.cannot("save")

    def restore(self) -> None:
        raise self.cannot("restore")

    # ---- what the rank holds

    def buffers(self, after: str) -> Iterable[Buffer]:
        yield from self.accumulated()
        for each in (self.applied, *self.applied_to_experts):
            yield from each.take()[1]
        if after == "step":
            if not self.ddp_options.get("overlap_param_gather"):
                for weight, p in self.numbers.items():
                    yield Buffer(self.configuration.parameters[p].name, "parameter", weight, [(p, 0, weight.numel())])
            for main in self.masters:
                yield Buffer(f"main_param[{self.names[main]}]", "master parameter", main, self.pieces(main))
            for child in self.children:
                yield from optimizers.moments(child.optimizer, self.names, self.pieces)

    def accumulated(self) -> Iterable[Buffer]:
        """What the optimizer reads of each main_grad, but while a reduction is on its way, behind a step, and while it is a sum over tokens."""
        of_tokens = self.transformer.calculate_per_token_loss or (self.schedule or {}).get("loss") == "sum_and_tokens"
        untold = self.ddp_options.get("num_distributed_optimizer_instances", 1) > 1 and self.ddp_options.get("overlap_grad_reduce")  # a stream, and no handle
        if self.is_applied or of_tokens or (untold and self.may_reduce):
            return
        role = "reduced" if self.reduced else "local"
        for weight, main, start in self.all_pairs():
            group = self.module.param_to_bucket_group[weight]
            if group.grad_reduce_handle is None:
                piece: Piece = (self.numbers[weight], start, main.numel())
                yield Buffer(f"{self.names[main]}.main_grad", role, weight.main_grad.view(-1)[start:start + main.numel()], [piece], scale=self.gradient_scale)


def attributes_of(configuration: Configuration, p: int) -> set[str]:
    return set((configuration.config.get("parameters") or {}).get(configuration.parameters[p].name, []))


def flat(groups: Iterable[Iterable[Any]]) -> list[Any]:
    return [each for group in groups for each in group]
