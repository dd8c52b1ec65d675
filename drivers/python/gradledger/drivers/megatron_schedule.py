"""Megatron's schedules, which run all micro-batches of a window in one call, for a script that has an event for each of them."""
from __future__ import annotations

import inspect
import threading
from typing import Any, Callable, NamedTuple, Sequence

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import schedules

from ..model import Graph
from .megatron_model import HIDDEN


class Ready(NamedTuple):
    """What the script says of a micro-batch, when it comes to its backward."""
    graph: Graph
    factor: float  # of its loss
    tokens: torch.Tensor | None  # where the loss function returns them

    def losses(self, loss: torch.Tensor) -> tuple:
        return (loss * self.factor, {}) if self.tokens is None else (loss * self.factor, self.tokens, {})


def given(function: Callable[..., Any], **arguments: Any) -> Any:
    """Calls it with those of the arguments that this release has."""
    known = inspect.signature(function).parameters
    return function(**{name: value for name, value in arguments.items() if name in known})


class Neighbours:
    """What a loop of its own sends from stage to stage, one micro-batch after the other. Nothing, where there is one stage."""

    def __init__(self) -> None:
        self.group = parallel_state.get_pipeline_model_parallel_group()
        stages = dist.get_process_group_ranks(self.group)
        at = stages.index(dist.get_rank())
        self.before = stages[at - 1] if at > 0 else None
        self.behind = stages[at + 1] if at + 1 < len(stages) else None

    def received(self, rank: int | None) -> torch.Tensor | None:
        if rank is None:
            return None
        out = torch.empty(1, 1, HIDDEN)
        dist.recv(out, src=rank, group=self.group)
        return out

    def forward(self) -> torch.Tensor | None:
        out = self.received(self.before)
        return out if out is None else out.requires_grad_()

    def backward_of(self, output: torch.Tensor) -> torch.Tensor | None:
        if self.behind is not None:
            dist.send(output.detach(), dst=self.behind, group=self.group)
        return self.received(self.behind)

    def end(self, gradient: torch.Tensor | None) -> None:
        if self.before is not None:
            dist.send(gradient, dst=self.before, group=self.group)


def one_micro_batch(model: torch.nn.Module, ready: Ready, num_microbatches: int) -> torch.Tensor:
    """The forward and the backward of a schedule, for a loop that has the rest of the schedule itself. Returns the tokens that it counts."""
    config, stages = schedules.get_model_config(model), Neighbours()
    start = stages.forward()
    output, tokens = given(
        schedules.forward_step, forward_step_func=lambda data, wrapped: (wrapped(ready.graph), ready.losses), data_iterator=None, model=model,
        num_microbatches=num_microbatches, input_tensor=start, forward_data_store=[], config=config,
        cp_group_size=parallel_state.get_context_parallel_world_size(), is_last_stage=stages.behind is None)
    stages.end(given(schedules.backward_step, input_tensor=start, output_tensor=output, output_tensor_grad=stages.backward_of(output),
                     model_type=schedules.get_model_type(model), config=config))
    return tokens


def without_schedule(model: torch.nn.Module, ready: Ready, scale: Callable[[torch.Tensor], torch.Tensor]) -> None:
    stages = Neighbours()
    model.module.set_input_tensor([start := stages.forward()])
    output = model(ready.graph)
    gradient = stages.backward_of(output)
    torch.autograd.backward(output if gradient is not None else scale(output * ready.factor), gradient)
    stages.end(None if start is None else start.grad)


class Abandoned(Exception):
    """The script left the schedule before it had all its micro-batches."""


class ScheduleCall:
    """The call runs in a thread of its own, and waits for the next backward of the script: where it asks for the next micro-batch, if the backward of that one
    follows at once, and else when it comes to a backward. A stage that waits for another stage does so in the event before."""

    def __init__(self, models: Sequence[torch.nn.Module], num_microbatches: int) -> None:
        self.ready: Ready | None = None
        self.error: BaseException | None = None
        self.tokens: torch.Tensor | None = None  # once it is over
        self.over = self.left = False
        last = parallel_state.get_pipeline_model_parallel_rank() + 1 == parallel_state.get_pipeline_model_parallel_world_size()
        self.backward_follows = len(models) == 1 and last
        self.turn = threading.Condition()
        self.of_call = False  # whose turn it is
        threading.Thread(target=self.run, args=(models, num_microbatches), daemon=True).start()
        self.let_run()

    def backward(self, ready: Ready) -> None:
        self.ready = ready
        self.let_run()

    def leave(self) -> None:
        """Its blocks are left as an exception leaves them."""
        if not self.over:
            self.left = True
            self.let_run()

    def let_run(self) -> None:
        """Until it waits again, or has ended."""
        with self.turn:
            self.of_call = True
            self.turn.notify_all()
            self.turn.wait_for(lambda: not self.of_call)
        if (error := self.error) is not None:
            self.error = None
            raise error

    def run(self, models: Sequence[torch.nn.Module], num_microbatches: int) -> None:
        try:
            with self.turn:
                self.turn.wait_for(lambda: self.of_call)
            config, several = schedules.get_model_config(models[0]), len(models) > 1
            config.finalize_model_grads_func = self.finalize
            given(schedules.get_forward_backward_func(), forward_step_func=self.forward_step, data_iterator=[None] * len(models) if several else None,
                  model=list(models) if several else models[0], num_microbatches=num_microbatches, micro_batch_size=1, forward_only=False,
                  seq_length=config.context_parallel_size * (config.tensor_model_parallel_size if config.sequence_parallel else 1))
        except Abandoned:
            pass
        except BaseException as error:
            self.error = error
        with self.turn:
            self.over, self.of_call = True, False
            self.turn.notify_all()

    def finalize(self, model: Any, tokens: torch.Tensor | None = None, *_: Any, **__: Any) -> None:
        """The script has an event for it, which comes later or never."""
        self.tokens = tokens

    def forward_step(self, _: Any, model: torch.nn.Module) -> tuple[torch.Tensor, Callable[[torch.Tensor], tuple]]:
        if not self.backward_follows:
            return model(self.next), lambda loss: (loss, {})
        ready = self.next()
        return model(ready.graph), ready.losses

    def next(self) -> Ready:
        with self.turn:
            self.of_call = False
            self.turn.notify_all()
            self.turn.wait_for(lambda: self.of_call)
        if self.left:
            raise Abandoned
        ready, self.ready = self.ready, None
        return ready
