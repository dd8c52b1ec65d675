"""A window of transformers' Trainer: `Trainer(..., callbacks=[ObserveCallback()])`."""
from __future__ import annotations

from typing import Any, Callable

from transformers import TrainerCallback

from .ledger import Ledger
from .window import Observation, Stated, engine_of


class ObserveCallback(TrainerCallback):
    """Observes one update, `at_step` counted from 0, and hands its `ledger` to `then`, which is `print` on the first process.

    The data of that update is used up and nothing is learned from it. The trainer goes on with the state and the step number that it had before.
    """

    def __init__(self, at_step: int = 1, contract: Stated = None, then: Callable[[Ledger], Any] | None = None) -> None:
        self.at_step, self.contract, self.then = at_step, contract, then
        self.ledger: Ledger | None = None
        self.observation: Observation | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **of_trainer: Any) -> None:
        if self.ledger is not None or state.global_step < self.at_step:
            return
        model, optimizer = of_trainer["model"], of_trainer["optimizer"]
        self.observation = Observation(engine_of(model) or model, optimizer, of_trainer.get("lr_scheduler"), contract=self.contract,
                                       micro_batches=args.gradient_accumulation_steps)
        self.ledger, self.begun = self.observation.__enter__(), state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **of_trainer: Any) -> None:
        if self.observation is None:
            return
        observation, self.observation = self.observation, None
        observation.__exit__(None, None, None)
        state.global_step = self.begun
        if self.then is not None:
            self.then(observation.ledger)
        elif state.is_world_process_zero:
            print(observation.ledger)

    def on_train_end(self, args: Any, state: Any, control: Any, **of_trainer: Any) -> None:
        """Where the training ends inside of the window."""
        if self.observation is not None:
            self.observation.leave()
            self.observation = None
