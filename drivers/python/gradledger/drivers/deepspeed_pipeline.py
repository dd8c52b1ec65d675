"""A stage of a pipeline of DeepSpeed's, whose train_batch() runs all micro-batches of a window, for a script that has an event for each of them."""
from __future__ import annotations

from typing import Any, Iterator

import torch
from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe import schedule

from ..driver import Backward, Configuration, Refused
from ..model import Graph
from .deepspeed_models import HeldModel

UNKNOWN = {"direct": False, "of": None, "scale_wrt_gas": True, "phases": 1}  # of a backward: what train_batch() leaves no choice of


class Stage(torch.nn.Module):
    """The only layer of a stage: all parameters of this rank. Between stages goes the sum so far."""

    def __init__(self, model: HeldModel) -> None:
        super().__init__()
        self.model = model
        self.graph: Graph | None = None

    def forward(self, entering: torch.Tensor) -> torch.Tensor:
        start = entering.reshape(()) if entering.requires_grad else None
        return self.model.chain(self.model.begin(self.graph, start), self.model.terms(self.graph), self.graph).reshape(1)


class OneMicroBatch(schedule.PipeSchedule):
    """Its instructions as TrainSchedule has them, with no other micro-batch between."""

    def num_pipe_buffers(self) -> int:
        return 1

    def steps(self) -> Iterator[list[schedule.PipeInstruction]]:
        first, last = self.is_first_stage, self.is_last_stage
        yield ([] if first else [schedule.RecvActivation(0)]) + ([schedule.LoadMicroBatch(0)] if first or last else []) + [schedule.ForwardPass(0)]
        yield [] if last else [schedule.SendActivation(0), schedule.RecvGrad(0)]
        yield [schedule.BackwardPass(0)] + ([] if first else [schedule.SendGrad(0)])


class EndOfWindow(schedule.PipeSchedule):
    def __init__(self, engine: Any, instructions: list[schedule.PipeInstruction]) -> None:
        super().__init__(engine.micro_batches, engine.num_stages, engine.stage_id)
        self.instructions = instructions

    def num_pipe_buffers(self) -> int:
        return 1

    def steps(self) -> Iterator[list[schedule.PipeInstruction]]:
        yield self.instructions


class Pipeline:
    """`module` is for deepspeed.initialize(); `engine` is set to what it returns."""

    def __init__(self, configuration: Configuration, model: HeldModel, rank: int, world_size: int) -> None:
        if any(outputs != 1 for outputs in model.passes):
            raise Refused("several outputs of a stage of a pipeline, or terms of the loss that go around them")
        self.engine: Any = None
        self.stages = configuration.engine["pipeline_stages"]
        self.stage = Stage(model)
        self.loss_factor = 1.0
        self.seen = 0  # micro-batches since the last step that updated
        mine = stage_of(configuration, rank, world_size)
        layers = [self.stage if number == mine else torch.nn.Identity() for number in range(self.stages)]
        self.module = PipelineModule(layers, num_stages=self.stages, partition_method="uniform", loss_fn=lambda loss, _: loss * self.loss_factor if self.loss_factor != 1 else loss)

    def at_boundary(self) -> bool:
        return self.seen > 0 and self.seen % self.engine.micro_batches == 0

    def backward(self, event: Backward) -> None:
        for name, value in UNKNOWN.items():
            if getattr(event, name) != value:
                raise Refused(f"a backward with {name}, which a pipeline runs itself")
        self.stage.graph, self.loss_factor = Graph.of(event), event.loss_factor
        self.stage.graph.before(event)
        engine = self.engine
        engine.set_dataiterator(iter([(torch.zeros(1), torch.zeros(1))]))
        engine.total_loss, engine._compute_loss = None, True
        engine._exec_schedule(OneMicroBatch(engine.micro_batches, engine.num_stages, engine.stage_id))
        self.seen += 1
        if self.at_boundary():
            engine._exec_schedule(EndOfWindow(engine, [schedule.ReduceTiedGrads(), schedule.ReduceGrads()]))

    def step(self) -> None:
        if not self.at_boundary():
            return
        self.seen = 0
        self.engine._exec_schedule(EndOfWindow(self.engine, [schedule.OptimizerStep()]))


def stage_of(configuration: Configuration, rank: int, world_size: int) -> int:
    """Stages are neighbouring ranks, as in DeepSpeed's own topology of a pipeline and data-parallel ranks."""
    return rank * configuration.engine.get("pipeline_stages", 1) // world_size
