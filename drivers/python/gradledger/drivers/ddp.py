"""PyTorch's DistributedDataParallel."""
from __future__ import annotations

import inspect
from typing import Any, Callable, Iterable

import torch
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from .. import optimizers
from ..driver import Backward, Buffer, Configuration, Refused
from ..inside_backwards import InsideBackwards, in_hooks
from ..meshes import meshes_of
from ..model import Graph, LinearModel
from ..parallelized import ParallelizedModel
from ..streams import virtual
from ..torch_loop import TorchLoop

ARGUMENTS = ("bucket_cap_mb", "bucket_cap_mb_list", "find_unused_parameters", "gradient_as_bucket_view", "static_graph", "batched_grad_copy",
             "lazy_bucket_allocation", "skip_all_reduce_unused_params")
CONFIG_KEYS = frozenset(ARGUMENTS) | {"comm_hook", "PowerSGDState", "rows", "optimizer_in_backward", "post_accumulate_grad_hook", "delay_all_reduce", "plain",
                                       "backward_in_forward"}


def summing_hook(state, bucket):  # no annotations: PyTorch compares them, and here they would be texts
    """What people write who do not know that a hook is given undivided gradients."""
    return torch.distributed.all_reduce(bucket.buffer(), group=state, async_op=True).get_future().then(lambda future: future.value()[0])


HOOKS: dict[str, Callable] = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16_compress": default_hooks.fp16_compress_hook,
    "bf16_compress": default_hooks.bf16_compress_hook,
    "fp16_wrapper": default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook),
    "bf16_wrapper": default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook),
    "noop": debugging_hooks.noop_hook,
    "sum": summing_hook,
    "powerSGD": powerSGD_hook.powerSGD_hook,
}


class OptimizerStream(virtual.Stream):
    """torch.Stream is a context as well."""

    def __enter__(self) -> OptimizerStream:
        virtual.streams().append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        virtual.streams().pop()


class Ddp(TorchLoop):
    """Whether a backward is reduced was decided by its forward. Gradients of the rank and averages share param.grad."""

    name = "ddp"
    frameworks = ("ddp",)
    config_keys = CONFIG_KEYS
    lays_out_ranks = hooked_outputs = True
    own_events = ("require_manual_backward_finalization", "finalize_backward")

    def check(self, configuration: Configuration) -> None:
        super().check(configuration)
        config, known = configuration.config, inspect.signature(DistributedDataParallel.__init__).parameters
        names = {parameter.name for parameter in configuration.parameters}
        if (delayed := config.get("delay_all_reduce")) and (unknown := sorted({*delayed["params"], delayed["hook"]} - names)):
            raise Refused(f"delay_all_reduce names {', '.join(unknown)}; expected parameters")
        if config.get("comm_hook") not in (None, *HOOKS):
            raise Refused(f"the comm_hook {config['comm_hook']!r} is none of {', '.join(HOOKS)}")
        for key in ARGUMENTS:
            if config.get(key) and key not in known:
                raise Refused(f"PyTorch {torch.__version__} has no {key}")

    def backward(self, event: Backward) -> None:
        if not self.configuration.config.get("backward_in_forward"):
            return super().backward(event)
        if event.of is not None:
            raise Refused("a forward of its own beside engine.config.backward_in_forward; expected backward, which runs its own")
        graph = Graph.of(event)
        graph.before(event)
        graph.inside = lambda outputs: self.backward_inside(event, self.model.loss_of(outputs, graph))
        reduces = self.module.require_backward_grad_sync
        try:
            self.module(graph)
        finally:
            self.module.require_backward_grad_sync = reduces

    def backward_inside(self, event: Backward, loss: torch.Tensor) -> None:
        """As Lightning does where the user calls backward in a training step: what the wrapper does behind a forward comes before the backward, and not again."""
        if self.module.require_backward_grad_sync:
            self.module.require_forward_param_sync = True
            self.module.reducer._rebuild_buckets()
            searches = self.module.find_unused_parameters and not self.module.static_graph
            self.module.reducer.prepare_for_backward([loss] if searches else [])
        else:
            self.module.require_forward_param_sync = False
        self.module.require_backward_grad_sync = False
        self.backward_of(event, loss)

    def loss(self, graph: Graph) -> torch.Tensor:
        return self.model.loss_of(super().loss(graph), graph)

    def make_model(self) -> LinearModel:
        self.mesh, tensor = None, self.groups.size("tp") if "tp" in self.groups.members else 1
        if tensor == 1:
            return super().make_model()
        meshes = meshes_of(self.groups, self.device.type, None)
        self.mesh = meshes.data
        return ParallelizedModel(self.configuration, self.device, meshes.tensor_parallel)

    def wrap(self, model: LinearModel) -> DistributedDataParallel:
        config = self.configuration.config
        for p, weight in model.weights.items():
            parameter = self.configuration.parameters[p]
            if rows := config.get("rows", {}).get(parameter.name):  # of a part: a DTensor has those of all
                weight.data = weight.data.view(rows * (parameter.part.count if parameter.part and hasattr(weight.data, "to_local") else 1), -1)
        arguments: dict[str, Any] = {key: config[key] for key in ARGUMENTS if config.get(key)}
        if float(cap := arguments.get("bucket_cap_mb", 0.5)).is_integer():  # beside delayed parameters PyTorch up to 2.11 takes an int alone
            arguments["bucket_cap_mb"] = int(cap)
        if self.mesh is not None:
            arguments["device_mesh"] = self.mesh
        if delayed := config.get("delay_all_reduce"):
            of = {parameter.name: model.weights[p] for p, parameter in enumerate(self.configuration.parameters) if p in model.weights}
            late = {id(of[name]) for name in delayed["params"]}
            arguments["delay_all_reduce_named_params"] = [(name, weight) for name, weight in model.named_parameters() if id(weight) in late]
            arguments["param_to_hook_all_reduce"] = of[delayed["hook"]]
        if config.get("optimizer_in_backward"):
            self.give_optimizers(model)
        out = DistributedDataParallel(model, device_ids=None if self.device.type == "cpu" else [self.device], **arguments)
        if config.get("optimizer_in_backward") and self.device.type == "cpu":
            self.stand_in_for_their_stream(out)
        if hook := config.get("comm_hook"):
            out.register_comm_hook(self.hook_state(hook), self.renamed(HOOKS[hook]))
        return out

    def give_optimizers(self, model: LinearModel) -> None:
        """Before the model is wrapped: the wrapper finds them at its parameters, and runs each behind the reduction of its bucket."""
        from torch.distributed.optim import _apply_optimizer_in_backward  # takes long, and few need it
        given = optimizers.arguments(self.configuration)
        for group in optimizers.param_groups(self.configuration, {p: model.weights[p] for p in self.configuration.trainable}):
            _apply_optimizer_in_backward(optimizers.kind(self.configuration), group.pop("params"), given | group)

    def stand_in_for_their_stream(self, wrapper: DistributedDataParallel) -> None:
        """The wrapper asks an accelerator for a stream of those optimizers, before its first forward."""
        self.notes.append("no accelerator: the stream that optimizers run on inside backwards orders nothing")
        for asked in (torch.cuda, getattr(torch, "accelerator", None)):
            if asked is not None:
                asked.current_stream = virtual.current_stream
        known = torch.Stream, torch.cuda.Stream
        torch.Stream = torch.cuda.Stream = OptimizerStream
        try:
            wrapper._lazy_init()
        finally:
            torch.Stream, torch.cuda.Stream = known

    def make_inside(self) -> InsideBackwards | None:
        config, trained = self.configuration.config, self.trained()
        if config.get("optimizer_in_backward"):
            return InsideBackwards({weight: weight._in_backward_optimizers[0] for weight in trained.values()}, self.names, self.pieces)
        return in_hooks(self.configuration, trained, self.names, self.pieces) if config.get("post_accumulate_grad_hook") else None

    def hook_state(self, hook: str) -> powerSGD_hook.PowerSGDState | torch.distributed.ProcessGroup | None:
        """Without the wrapper's own group a hook averages over the world."""
        group = None if self.mesh is None else self.mesh.get_group()
        if hook != "powerSGD":
            return group
        return powerSGD_hook.PowerSGDState(group, **self.configuration.config.get("PowerSGDState", {}))

    def renamed(self, hook: Callable) -> Callable:
        """bf16 hooks are refused by their names where there is no NCCL, though there is nothing in them that needs it."""
        if self.device.type == "cuda" or "bf16" not in hook.__name__:
            return hook
        self.notes.append(f"{hook.__name__} is registered under another name, since PyTorch allows it on GPUs alone")

        def same_hook(state, bucket):  # no annotations: PyTorch compares them, and here they would be texts
            return hook(state, bucket)
        return same_hook

    def enter_no_sync(self) -> None:
        self.enter_block(self.module.no_sync())

    def exit_no_sync(self, raising: bool = False) -> None:
        self.exit_block(raising)

    def having(self, name: str) -> DistributedDataParallel:
        if not hasattr(DistributedDataParallel, name):
            raise Refused(f"DistributedDataParallel of PyTorch {torch.__version__} has no {name}")
        return self.module

    def require_manual_backward_finalization(self, value: bool) -> None:
        self.having("require_manual_backward_finalization").require_manual_backward_finalization = value

    def finalize_backward(self) -> None:
        self.having("finalize_backward").finalize_backward()

    def accumulated(self) -> Iterable[Buffer]:
        for tensor, name in self.names.items():
            if tensor.grad is not None:
                yield Buffer(f"{name}.grad", "replicated", tensor.grad, self.pieces(tensor), scale=self.gradient_scale)
