"""Megatron's schedules, which run all micro-batches of a window in one call, for a script that has an event for each of them."""
from __future__ import annotations

import inspect
import threading
from typing import Any, Callable, Iterator

import torch
from megatron.core.pipeline_parallel import schedules

from ..model import Graph

Losses = Callable[[torch.Tensor], tuple]
Ready = tuple[Graph, Losses]


def given(function: Callable[..., Any], **arguments: Any) -> Any:
    """Calls it with those of the arguments that this release has."""
    known = inspect.signature(function).parameters
    return function(**{name: value for name, value in arguments.items() if name in known})


def one_micro_batch(model: torch.nn.Module, ready: Ready, num_microbatches: int, context_parallel: int) -> torch.Tensor:
    """The forward and the backward of a schedule, for a loop that has the rest of the schedule itself. Returns the tokens that it counts."""
    graph, losses = ready
    config = schedules.get_model_config(model)
    output, tokens = given(
        schedules.forward_step, forward_step_func=lambda data, wrapped: (wrapped(graph), losses), data_iterator=None, model=model, num_microbatches=num_microbatches,
        input_tensor=None, forward_data_store=[], config=config, cp_group_size=context_parallel, is_last_stage=True)
    given(schedules.backward_step, input_tensor=None, output_tensor=output, output_tensor_grad=None, model_type=schedules.get_model_type(model), config=config)
    return tokens


class Abandoned(Exception):
    """The script left the schedule before it had all its micro-batches."""


class ScheduleCall:
    """The call runs in a thread of its own, and waits for the next backward where it asks for the next micro-batch."""

    def __init__(self, model: torch.nn.Module, num_microbatches: int) -> None:
        self.ready: Ready | None = None
        self.error: BaseException | None = None
        self.tokens: torch.Tensor | None = None  # once it is over
        self.over = self.left = False
        self.turn = threading.Condition()
        self.of_call = False  # whose turn it is
        threading.Thread(target=self.run, args=(model, num_microbatches), daemon=True).start()
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

    def run(self, model: torch.nn.Module, num_microbatches: int) -> None:
        try:
            with self.turn:
                self.turn.wait_for(lambda: self.of_call)
            schedules.get_model_config(model).finalize_model_grads_func = self.finalize
            given(schedules.get_forward_backward_func(), forward_step_func=self.forward_step, data_iterator=self.micro_batches(), model=model,
                  num_microbatches=num_microbatches, seq_length=1, micro_batch_size=1, forward_only=False)
        except Abandoned:
            pass
        except BaseException as error:
            self.error = error
        with self.turn:
            self.over, self.of_call = True, False
            self.turn.notify_all()

    def finalize(self, model: Any, tokens: torch.Tensor | None = None, **_: Any) -> None:
        """The script has an event for it, which comes later or never."""
        self.tokens = tokens

    def forward_step(self, micro_batches: Iterator[Ready], model: torch.nn.Module) -> tuple[torch.Tensor, Losses]:
        graph, losses = next(micro_batches)
        return model(graph), losses

    def micro_batches(self) -> Iterator[Ready]:
        while True:
            with self.turn:
                self.of_call = False
                self.turn.notify_all()
                self.turn.wait_for(lambda: self.of_call)
            if self.left:
                raise Abandoned
            ready, self.ready = self.ready, None
            yield ready
