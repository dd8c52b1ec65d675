"""DeepSpeed: stages 0 to 3 with whatever wrapper it chooses for a configuration, releases 0.16.0 to 0.19.8 and later ones that are still built alike."""
from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .. import optimizers, streams
from ..driver import Backward, Buffer, Configuration, Driver, Forward, Parameter, Refused
from ..groups import Groups
from ..model import Graph
from . import deepspeed_buffers as shown
from . import deepspeed_setup as setup
from .deepspeed_models import HeldModel, ModelParallelUnit
from .deepspeed_muon import Momentum
from .deepspeed_pipeline import Pipeline, stage_of

deepspeed = setup.deepspeed
setup.mend()
TAG = "saved"


class DeepSpeedDriver(Driver):
    name = "deepspeed"
    frameworks = ("deepspeed",)
    packages = ("deepspeed", "torch")
    preload = ("torch._dynamo", "torch.distributed.fsdp", "deepspeed.module_inject.auto_ep_layer", "deepspeed.module_inject.auto_ep_comm",
               "deepspeed.runtime.zero.muon.muon_optimizer")
    applied_gradients = setup.has(setup.WRAPPERS)  # else a black box: weights alone
    accumulators = applied_gradients and setup.has(setup.SUMS)
    weights = experts = pipelines = hooked_outputs = True
    streams = True

    def __init__(self, rank: int, world_size: int) -> None:
        super().__init__(rank, world_size)
        self.engine: Any = None
        self.group: Any = None  # the process group that DeepSpeed was made for
        self.saved: Path | None = None
        self.forget()

    def forget(self) -> None:
        self.configuration: Configuration | None = None
        self.model: HeldModel | None = None
        self.pipeline: Pipeline | None = None
        self.muon: Momentum | None = None
        self.layout: shown.Layout | None = None
        self.watch: Any = None  # the hook on the base optimizer
        self.losses: dict[int, tuple[torch.Tensor, Graph]] = {}  # by the number of the event of the forward
        self.blocks: list[contextlib.AbstractContextManager] = []
        self.groups: Groups | None = None
        self.applied: list[Buffer] = []
        self.stepped = False
        self.known: dict[str, Any] = {}

    # ---- engines --------------------------------------------------------------------------------------------------------------------------

    def configure(self, configuration: Configuration) -> list[str]:
        self.close()
        self.join()
        self.groups = Groups(configuration.groups, self.rank, self.world_size)
        self.configuration = configuration
        self.configuration = dataclasses.replace(configuration, parameters=tuple(dataclasses.replace(parameter, held=self.holds(parameter)) for parameter in configuration.parameters))
        return self.make_engine()

    def holds(self, parameter: Parameter) -> bool:
        if parameter.pipeline_stage != stage_of(self.configuration, self.rank, self.world_size):
            return False
        if parameter.expert is not None:
            size = self.configuration.engine.get("expert_parallel_size", 1)
            return self.rank % size == parameter.expert % size
        return parameter.part is None or self.groups.of(parameter.part.over).index(self.rank) == parameter.part.number

    def join(self) -> None:
        if self.group is not None and self.group is not dist.group.WORLD:
            setup.leave_group()
        setup.join_group()
        self.group = dist.group.WORLD

    def make_engine(self) -> list[str]:
        configuration = self.configuration
        config = setup.config_of(configuration)
        self.model = HeldModel(configuration, self.device)
        learned = {p: self.model.weights[p] for p in configuration.trainable}
        base, notes = setup.base_optimizer(configuration, learned)
        if configuration.engine.get("pipeline_stages", 1) > 1:
            self.pipeline = Pipeline(configuration, self.model, self.rank, self.world_size)
        self.engine, *_ = deepspeed.initialize(model=self.pipeline.module if self.pipeline else self.model, optimizer=base, model_parameters=list(learned.values()), config=config,
                                               dist_init_required=False, mpu=self.model_parallel_unit())
        if self.pipeline:
            self.pipeline.engine = self.engine
        if self.applied_gradients:
            try:
                names = [parameter.name for parameter in configuration.parameters]
                self.layout = shown.layout_of(self.engine, [self.model.weights.get(owner) for owner in self.model.owners], names)
            except shown.Unknown as error:
                raise Refused(f"the driver of DeepSpeed does not know its way here: {error}") from error
            self.watch = self.layout.base.register_step_pre_hook(self.base_steps)
            if setup.autotp_size(configuration) > 1 and (found := setup.tensor_parallel_ranks()) != list(self.groups.of("tp")):
                raise Refused(f"ranks {list(self.groups.of('tp'))} in the group tp; AutoTP's are {found}")
            if setup.uses_muon(configuration):
                self.muon = Momentum(self.engine, self.layout)
        return notes + setup.mended(configuration, config)

    def model_parallel_unit(self) -> Any:
        """Where tensor-parallel ranks have cut the model. Megatron marks what it cut; DeepSpeed takes the rest for the same on all of them."""
        if (shared := self.configuration.engine.get("sequence_parallel_size", 1)) > 1:
            return setup.sequence_parallel_unit(shared)
        if "tp" not in self.groups.members or self.groups.size("tp") == 1:
            return None
        for p, weight in self.model.weights.items():
            weight.tensor_model_parallel = self.configuration.parameters[p].part is not None
        if setup.autotp_size(self.configuration) == 1:
            return ModelParallelUnit(self.groups)
        self.model.ds_autotp_parsed = True  # it is cut, and its layers have no names that DeepSpeed knows; the rest is AutoTP's
        return None

    def base_steps(self, *_: Any) -> None:
        with streams.paused():
            stepped = list(self.layout.applied())  # of a rank's part there may be no matrix, and padding alone
            given = list(self.muon.applied()) if self.muon else stepped
        if self.muon:
            self.muon.commit()
        self.applied += given
        self.stepped = self.stepped or bool(given or stepped) or self.layout.steps_without_gradients

    def close(self) -> None:
        for block in reversed(self.blocks):
            with contextlib.suppress(Exception):
                block.__exit__(None, None, None)
        if self.watch is not None:
            self.watch.remove()
        if self.configuration is not None:
            setup.take_down(self.engine)
            self.engine = None
            self.forget()
            gc.collect()  # engines are full of cycles: their destructor would run in the middle of another engine's step
        if self.saved is not None and self.rank == 0:
            shutil.rmtree(self.saved, ignore_errors=True)
        self.saved = None

    # ---- what the rank holds --------------------------------------------------------------------------------------------------------------

    def buffers(self, after: str) -> Iterable[Buffer]:
        if self.engine is None:
            return
        if self.layout is None:
            if after == "step":
                yield from shown.gathered_weights(self.model.weights, [parameter.name for parameter in self.configuration.parameters])
            return
        if after == "step":
            yield from self.applied
        scale = setup.scale_in_gradients(self.engine)
        yield from self.layout.gradients(scale)
        yield from self.layout.accumulators(scale)
        if after == "step":
            yield from self.layout.weights()
            yield from self.layout.state()
            if self.muon:
                yield from self.muon.state()

    def facts(self) -> dict[str, Any]:
        return self.known

    def step(self, past_scaler: bool = False) -> None:
        if past_scaler:
            raise self.cannot("step past a scaler: DeepSpeed scales losses itself")
        self.applied, self.stepped, self.known = [], False, {}
        engine, pipeline = self.engine, self.pipeline
        at_boundary = pipeline.at_boundary() if pipeline else engine.is_gradient_accumulation_boundary() or not setup.counts_micro_batches(engine)
        skipped_before = engine.skipped_steps
        setup.norms.clear()
        (pipeline or engine).step()
        with streams.paused():
            self.look_at_step(at_boundary, skipped_before)

    def look_at_step(self, at_boundary: bool, skipped_before: int) -> None:
        skipped = self.engine.skipped_steps > skipped_before
        if self.layout is None:
            self.known = {"skipped": int(skipped)} if at_boundary else {}
            return
        self.known = {"updated": int(self.stepped)}
        if not at_boundary:
            return
        self.known["skipped"] = int(skipped and not self.stepped)
        if setup.uses_fp16(self.engine):
            self.known["loss_scale"] = float(self.engine.optimizer.loss_scale)
        norm = setup.norms[-1] if setup.norms else self.engine.get_global_grad_norm()
        if self.stepped and norm is not None and not self.muon:
            self.known["gradient_norm"] = float(norm)

    # ---- forward and backward -------------------------------------------------------------------------------------------------------------

    def forward(self, event: Forward) -> None:
        self.refuse_in_pipeline("a forward of its own")
        graph = Graph.of(event)
        self.losses[event.number] = (self.loss(graph), graph)

    def loss(self, graph: Graph) -> torch.Tensor:
        self.model.graph = graph  # no argument: AutoTP compares these between ranks, whose parts have gradients of their own
        return self.model.loss_of(self.engine() if setup.autotp_size(self.configuration) > 1 else self.engine(graph), graph)

    def backward(self, event: Backward) -> None:
        if event.past_scaler:
            raise self.cannot("backward past a scaler: DeepSpeed scales losses itself")
        if self.pipeline:
            return self.pipeline.backward(event)
        if event.of is None:
            graph = Graph.of(event)
            loss = self.loss(graph)
        else:
            if event.of not in self.losses:
                raise Refused(f"a backward of event {event.of}, which was no forward of this rank")
            if event.phases != 1:
                raise Refused("phases belong to the forward, which was run before")
            loss, graph = self.losses[event.of]
        graph.before(event)
        if event.loss_factor != 1.0:
            loss = loss * event.loss_factor
        more: dict[str, Any] = {} if event.of is None else {"retain_graph": True}  # another backward may come to the same forward
        if event.direct:
            loss.backward(**more)
        else:
            self.engine.backward(loss, **more, **({} if event.scale_wrt_gas else {"scale_wrt_gas": False}))

    # ---- the rest of the script -----------------------------------------------------------------------------------------------------------

    def set_boundary(self, boundary: bool) -> None:
        self.refuse_in_pipeline("a boundary that is set")
        self.engine.set_gradient_accumulation_boundary(boundary)

    def refuse_in_pipeline(self, what: str) -> None:
        if self.pipeline:
            raise Refused(f"{what}, which a pipeline runs itself")

    def enter_no_sync(self) -> None:
        self.refuse_in_pipeline("no_sync")
        self.enter("no_sync")

    def enter_coalesce(self) -> None:
        self.enter("coalesce_grad_reduction")

    def enter(self, method: str) -> None:
        self.blocks.append(contextlib.nullcontext())  # a block that is refused has nothing to leave at its end
        block = getattr(self.engine, method)()
        block.__enter__()
        self.blocks[-1] = block

    def exit_no_sync(self, raising: bool = False) -> None:
        if self.blocks:  # an exception has left it else
            leave(self.blocks.pop(), RuntimeError("raised by the script") if raising else None)

    exit_coalesce = exit_no_sync

    def raise_(self, caught: bool = False) -> None:
        """Blocks end on the way out, with all that their end does."""
        error = RuntimeError("raised by the script")
        while self.blocks:
            leave(self.blocks.pop(), error)
        if not caught:
            raise error

    def zero_grad(self, of: str = "optimizer", set_to_none: bool = True) -> None:
        (self.engine if of == "engine" else self.engine.optimizer).zero_grad(**({} if set_to_none else {"set_to_none": False}))

    def set_gradient(self, parameter: int, factor: float, local: bool = False) -> None:
        kind = "local" if local else "full"
        get, put = (getattr(deepspeed.utils, f"safe_{verb}_{kind}_grad") for verb in ("get", "set"))
        weight = self.model.weights.get(self.model.owners[parameter])
        if weight is None:  # an expert, or a stage, of other ranks
            return
        put(weight, get(weight) * factor)

    def finalize(self) -> None:
        self.engine.allreduce_gradients()

    # ---- what a loop does to param.grad itself --------------------------------------------------------------------------------------------

    def found(self) -> list[torch.nn.Parameter]:
        weights = (self.model.weights[p] for p in self.configuration.trainable)
        return [weight for weight in weights if weight.grad is not None]

    def scale_gradients(self, by: float) -> None:
        for weight in self.found():
            weight.grad.mul_(by)

    def clip_gradients(self, max_norm: float, group: str = "rank") -> None:
        self.known, found = {}, self.found()
        if self.configuration.linear:
            with optimizers.as_they_were(weight.grad for weight in found):
                optimizers.clip(found, max_norm, self.groups, group, self.device)
        else:
            self.known = {"loop_norm": float(optimizers.clip(found, max_norm, self.groups, group, self.device))}

    def all_reduce(self, group: str = "world", of: str = "gradients", as_: str = "mean") -> None:
        size = self.groups.size(group)
        if size == 1:
            return
        for tensor in [weight.grad for weight in self.found()] if of == "gradients" else [torch.ones((), device=self.device)]:
            if tensor.numel():
                dist.all_reduce(tensor, group=self.groups.process_group(group))
                if as_ == "mean":
                    tensor.div_(size)

    # ---- checkpoints ----------------------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        if self.pipeline or any(parameter.expert is not None for parameter in self.configuration.parameters):
            raise Refused("a checkpoint of a pipeline or of experts, whose layers DeepSpeed saves by their place in a real network")
        self.saved = private_folder(self.configuration.run)
        self.engine.save_checkpoint(str(self.saved), tag=TAG)

    def restore(self) -> None:
        """A new process would: another engine, made from the same configuration."""
        configuration, groups, saved, self.saved = self.configuration, self.groups, self.saved, None
        if saved is None:
            raise Refused("restore without a save before it")
        self.close()
        self.configuration, self.groups, self.saved = configuration, groups, saved
        self.make_engine()
        path, _ = self.engine.load_checkpoint(str(saved), tag=TAG)
        if path is None:
            raise RuntimeError(f"DeepSpeed found no checkpoint {TAG!r} to load")


def leave(block: contextlib.AbstractContextManager, error: BaseException | None) -> None:
    """What the end of a block raises is the framework's, unless it is what came in."""
    if error is None:
        block.__exit__(None, None, None)
        return
    try:
        block.__exit__(type(error), error, error.__traceback__)
    except BaseException as other:
        if other is not error:
            raise


def private_folder(run: int) -> Path:
    """The same on all ranks, which share a secret or at least a parent, and nobody else's."""
    secret = os.environ.get("GRADLEDGER_TOKEN") or str(os.getppid())
    name = hashlib.sha256(f"{secret} checkpoint {run}".encode()).hexdigest()[:32]
    folder = Path(tempfile.gettempdir()) / f"gradledger-{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise Refused(f"{folder} is not private; remove it")
    return folder

