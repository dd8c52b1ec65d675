"""Megatron-Core: DistributedDataParallel with its buffers, finalize_model_grads, the schedules, and the optimizers."""
from __future__ import annotations

import io
from contextlib import ExitStack
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
from ..model import Graph
from ..torch_loop import TorchLoop
from . import megatron_groups
from .megatron_model import HIDDEN, Stage, attributes_of
from .megatron_schedule import Ready, ScheduleCall, given, one_micro_batch, without_schedule

PARTS = {"ddp", "optimizer_config", "model", "parameters", "schedule"}
OF_THE_MODEL = {"gradient_accumulation_fusion", "used_twice"}  # of which Megatron is told nothing: a layer is as it is


class Megatron(TorchLoop):
    name = "megatron"
    frameworks = ("megatron",)
    packages = ("torch", "megatron-core")
    preload = ()
    config_keys = frozenset(PARTS)
    own_events = ("forward_backward_func", "finalize_model_grads", "start_grad_sync", "start_param_sync")
    lays_out_ranks = experts = pipelines = True
    # Of a pipeline a stage has one or several chunks of the model, each in a DistributedDataParallel of its own.
    model: torch.nn.ModuleList
    module: torch.nn.ModuleList

    def check(self, configuration: Configuration) -> None:
        super().check(configuration)
        config = configuration.config
        if "grad_scaler" in config:
            raise Refused("engine.config has grad_scaler; Megatron's optimizer has its own")
        schedule, parameters = config.get("schedule") or {}, config.get("parameters") or {}
        if schedule.get("model_chunks") and schedule.get("loss") == "sum_and_tokens":
            raise Refused("model_chunks with losses that are sums over tokens: the script says these with a backward, and the schedule counts them in a forward long before")
        if sum("shared_embedding" in attributes for attributes in parameters.values()) > 1:
            raise Refused("several shared embeddings; Megatron-Core reduces one")
        if not isinstance(configuration.engine.get("as_of"), str):
            raise Refused("switches of single behaviours are of the simulator; expected a release")
        self.engine, self.attributes = configuration.engine, {name: set(of) for name, of in parameters.items()}
        self.experts_over = configuration.engine.get("expert_parallel_size", 1)

    def holds(self, parameter: Parameter) -> bool:
        stage, stages = megatron_groups.stage_of(self.engine, self.groups), megatron_groups.stages_of(self.engine, self.groups)
        here = {0, stages - 1} if "shared_embedding" in self.attributes.get(parameter.name, ()) else {parameter.pipeline_stage}
        return stage in here and super().holds(parameter) and (parameter.expert is None or self.holds_expert(parameter.expert))

    def holds_expert(self, expert: int) -> bool:
        of = self.groups.of("ep") if "ep" in self.groups.members else None
        size = len(of) if of else self.experts_over
        return (of.index(self.rank) if of else self.rank % size) == expert % size

    def make_model(self) -> torch.nn.ModuleList:
        megatron_groups.make(self.configuration, self.groups, self.experts_over)
        self.ddp_options = dict(self.configuration.config.get("ddp") or {})
        self.schedule = self.configuration.config.get("schedule")
        self.stage, self.stage_count = parallel_state.get_pipeline_model_parallel_rank(), parallel_state.get_pipeline_model_parallel_world_size()
        self.transformer = self.transformer_config()
        chunks = (self.schedule or {}).get("model_chunks") or [None]
        out = torch.nn.ModuleList()
        for c, names in enumerate(chunks):
            ends = (self.stage == 0 and c == 0, self.stage + 1 == self.stage_count and c + 1 == len(chunks))
            out.append(Stage(self.configuration, self.device, ends, names))
            self.prepare(out[-1])
        if any(stage.fused for stage in out):
            self.notes.append("gradient_accumulation_fusion: what its kernel of CUDA's adds to main_grad is added on the CPU")
        return out

    def prepare(self, model: Stage) -> None:
        """As Megatron's own layers are: of a shared embedding the last stage has the copy."""
        model.config = self.transformer
        for p, weight in model.weights.items():
            weight.allreduce = self.configuration.parameters[p].expert is None
            untold = OF_THE_MODEL if self.stage_count > 1 and self.stage + 1 == self.stage_count else OF_THE_MODEL | {"shared"}
            for attribute in attributes_of(self.configuration, p) - untold:
                setattr(weight, attribute, True)

    def transformer_config(self) -> TransformerConfig:
        model, dtype = self.configuration.config.get("model") or {}, self.configuration.model_dtype
        of_pipeline: dict[str, Any] = {}
        chunks = len((self.schedule or {}).get("model_chunks") or ())
        if self.stage_count > 1:
            of_pipeline = {"pipeline_model_parallel_size": self.stage_count, "pipeline_dtype": torch.float32}
            self.notes.append("what stages send each other is one number in fp32")
        if chunks:
            # Megatron-LM's default, and of two stages the only one: without, what goes forward between them is taken for what goes backward.
            of_pipeline |= {"overlap_p2p_comm": True, "batch_p2p_comm": False, "virtual_pipeline_model_parallel_size": chunks}
            of_pipeline |= {key: self.schedule[key] for key in ("microbatch_group_size_per_vp_stage",) if key in self.schedule}  # from 0.10.0 on
        return TransformerConfig(num_layers=self.stage_count * max(chunks, 1), hidden_size=HIDDEN, num_attention_heads=8,
                                 tensor_model_parallel_size=parallel_state.get_tensor_model_parallel_world_size(),
                                 context_parallel_size=parallel_state.get_context_parallel_world_size(), params_dtype=dtype, bf16=dtype == torch.bfloat16,
                                 fp16=dtype == torch.float16, **of_pipeline, **model)

    def wrap(self, model: torch.nn.ModuleList) -> torch.nn.ModuleList:
        if self.device.type == "cpu":
            self.notes.append(megatron_cpu.NOTE)
        if self.ddp_options.get("bucket_size") is not None and not self.ddp_options.get("overlap_grad_reduce"):
            self.notes.append("bucket_size is not looked at without overlap_grad_reduce")
        options = DistributedDataParallelConfig(**self.ddp_options)
        out = torch.nn.ModuleList(DistributedDataParallel(self.transformer, options, stage, disable_bucketing=c > 0) for c, stage in enumerate(model))
        several = len(out) > 1
        self.transformer.no_sync_func = [chunk.no_sync for chunk in out] if several else out[0].no_sync
        if self.schedule and self.schedule.get("grad_sync_func"):
            syncs = [lambda *_, chunk=chunk: chunk.start_grad_sync() for chunk in out]
            self.transformer.grad_sync_func = syncs if several else syncs[0]
        return out

    # ---- the optimizers

    def make_optimizer(self) -> torch.optim.Optimizer:
        """torch's, that Megatron's works with. What the loop calls is `self.chained`."""
        self.call: ScheduleCall | None = None
        self.tokens: torch.Tensor | None = None  # of the window so far, where any were counted
        self.reduced = self.is_applied = False
        self.on_their_way: set[Any] = set()  # groups of buckets whose reduction has a stream and no handle
        options, distributed = self.optimizer_options(), bool(self.ddp_options.get("use_distributed_optimizer"))
        if distributed and options["optimizer"] == "sgd":
            self.notes.append("the distributed optimizer asserts that it is given Adam: here any optimizer of torch's is one")
        elif distributed and not getattr(distrib_optimizer, "HAVE_APEX_OR_TE", True):
            self.notes.append("Adam is torch's: where it is restored each weight has its own number of steps, as the fused ones have it")
        if distributed and megatron_cpu.let_nothing_be_quantized():
            self.notes.append("without Transformer Engine this release refuses to quantize no parameter: here it does nothing then")
        distrib_optimizer.Adam = torch.optim.Optimizer
        with megatron_cpu.without_apex() as told_otherwise:
            self.chained = given(get_megatron_optimizer, config=OptimizerConfig(**options), model_chunks=list(self.module), use_gloo_process_groups=False)
        if distributed and told_otherwise:
            self.notes.append("this release makes no distributed optimizer without Apex or Transformer Engine: here it does")
        self.children = [child for child in getattr(self.chained, "chained_optimizers", [self.chained]) if child.optimizer is not None]
        if not self.children:
            raise Refused("a rank without a parameter that is trained")
        self.transformer.grad_scale_func = self.chained.scale_loss
        self.masters: list[torch.Tensor] = []
        self.numbers = {weight: p for stage in self.model for p, weight in stage.weights.items()}
        self.groups_of = {weight: group for chunk in self.module for weight, group in chunk.param_to_bucket_group.items()}
        if self.ddp_options.get("num_distributed_optimizer_instances", 1) > 1 and self.ddp_options.get("overlap_grad_reduce"):
            for group in set(self.groups_of.values()):
                self.watch(group)
        for weight, main, start in self.all_pairs():
            p = self.numbers[weight]
            self.names[main], self.pieces_of[main] = self.configuration.parameters[p].name, [(p, start, main.numel())]
            if main is not weight and main.dtype != weight.dtype:
                self.masters.append(main)
        self.applied_to_experts = [optimizers.Applied(child.optimizer, self.pieces, name="param.grad of experts") for child in self.children[1:]]  # beside `applied`
        return self.children[0].optimizer

    def watch(self, group: Any) -> None:
        start, finish = group.start_grad_sync, group.finish_grad_sync

        def started(*arguments: Any, **options: Any) -> None:
            self.on_their_way.add(group)
            start(*arguments, **options)

        def finished(*arguments: Any, **options: Any) -> None:
            finish(*arguments, **options)
            self.on_their_way.discard(group)

        group.start_grad_sync, group.finish_grad_sync = started, finished

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
        ready = self.ready(event)
        if self.call is not None and not self.call.over:
            self.call.backward(ready)
            if self.call.over:
                self.count(self.call.tokens)
        elif len(self.module) > 1:
            raise Refused("a backward of model_chunks outside of forward_backward_func: a loop of its own has no order of their forwards")
        elif self.schedule:
            self.count(one_micro_batch(self.module[0], ready, self.schedule["num_microbatches"]))
        else:
            without_schedule(self.module[0], ready, self.chained.scale_loss)
            if event.tokens is not None:
                self.count(torch.tensor(event.tokens, dtype=torch.int))

    def ready(self, event: Backward) -> Ready:
        graph = Graph.of(event)
        graph.before(event)
        of_tokens = bool(self.schedule) and self.schedule.get("loss") == "sum_and_tokens"
        return Ready(graph, event.loss_factor, torch.tensor(event.tokens or 0, dtype=torch.int) if of_tokens else None)

    def count(self, tokens: torch.Tensor | None) -> None:
        if tokens is not None:
            self.tokens = tokens if self.tokens is None else self.tokens + tokens

    def forward_backward_func(self) -> None:
        self.leave_call()
        self.call = ScheduleCall(self.module, self.schedule["num_microbatches"])

    def leave_call(self) -> None:
        if self.call is not None and not self.call.over and self.stage_count > 1:
            raise Refused("a schedule of several stages is left in the middle, where stages wait for what others have yet to send")
        self.abandon_call()

    def abandon_call(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call.leave()

    def raise_(self, caught: bool = False) -> None:
        self.leave_call()
        super().raise_(caught)

    def close(self) -> None:
        if getattr(self, "call", None) is not None:
            self.abandon_call()
        super().close()

    def finalize_model_grads(self) -> None:
        tokens, self.tokens = self.tokens, None
        finalize_model_grads(list(self.module), tokens if self.transformer.calculate_per_token_loss else None)
        self.reduced = True

    def start_grad_sync(self) -> None:
        for chunk in self.module:
            chunk.start_grad_sync()

    def start_param_sync(self) -> None:
        for chunk in self.module:
            chunk.start_param_sync(force_sync=True)

    def enter_no_sync(self) -> None:
        blocks = ExitStack()
        for chunk in self.module:
            blocks.enter_context(chunk.no_sync())
        self.enter_block(blocks)

    def exit_no_sync(self, raising: bool = False) -> None:
        self.exit_block(raising)

    def zero_grad(self, of: str = "optimizer", set_to_none: bool = True) -> None:
        if of == "engine":
            self.reduced = self.is_applied = False  # buffers are cleared first, and then it may raise
            for chunk in self.module:
                chunk.zero_grad_buffer()
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
        if updated and norm is not None and self.computes_norm() and not self.configuration.linear:
            self.known["gradient_norm"] = float(norm)

    def computes_norm(self) -> bool:
        """A lone optimizer that was not chained, before 0.12.0, returns 0 for the norm that it does not clip by."""
        return hasattr(self.chained, "chained_optimizers") or self.chained.config.clip_grad > 0

    # ---- checkpoints

    def save(self) -> None:
        """Weights that the next forward would gather are gathered first, as training.py does it."""
        if self.ddp_options.get("overlap_param_gather"):
            self.start_param_sync()
        file = io.BytesIO()
        torch.save({"model": [chunk.state_dict() for chunk in self.module], "optimizers": [self.state_of(child) for child in self.children]}, file)
        self.saved = {"file": file}

    def restore(self) -> None:
        self.leave_call()
        super().restore()

    def load(self, saved: dict[str, Any]) -> None:
        saved["file"].seek(0)
        state = torch.load(saved["file"], weights_only=False)
        for chunk, of_chunk in zip(self.module, state["model"]):
            chunk.load_state_dict(of_chunk)
        for child, of_child in zip(self.children, state["optimizers"]):
            self.load_state(child, of_child)

    def state_of(self, child: Any) -> dict[str, Any]:
        """The distributed optimizer keeps what its rank owns apart, and asserts that its optimizer has taken a step."""
        if not isinstance(child, distrib_optimizer.DistributedOptimizer):
            return {"all": child.state_dict()}
        scaler = {"scaler": child.grad_scaler.state_dict()} if child.grad_scaler else {}
        counts_steps = any("step" in of_weight for of_weight in child.optimizer.state.values())  # an earlier save has left empty entries
        common = {"all": child.state_dict()} if counts_steps else scaler
        return common | {"owned": [child._get_main_param_and_optimizer_states(weight) for weight, *_ in self.pairs(child)]}

    def load_state(self, child: Any, state: dict[str, Any]) -> None:
        if "all" in state:
            child.load_state_dict(state["all"])
            for of_weight in child.optimizer.state.values():  # of the distributed optimizer they have one tensor together, in which each of them counts
                of_weight["step"] = of_weight["step"].clone()
        elif "scaler" in state:
            child.grad_scaler.load_state_dict(state["scaler"])
        with torch.no_grad():
            for (weight, *_), owned in zip(self.pairs(child), state.get("owned", ())):
                child._set_main_param_and_optimizer_states(weight, owned)

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
        if self.is_applied or of_tokens:
            return
        role = "reduced" if self.reduced else "local"
        for weight, main, start in self.all_pairs():
            group = self.groups_of[weight]
            if group.grad_reduce_handle is None and group not in self.on_their_way:
                piece: Piece = (self.numbers[weight], start, main.numel())
                yield Buffer(f"{self.names[main]}.main_grad", role, weight.main_grad.view(-1)[start:start + main.numel()], [piece], scale=self.gradient_scale)


def flat(groups: Iterable[Iterable[Any]]) -> list[Any]:
    return [each for group in groups for each in group]
