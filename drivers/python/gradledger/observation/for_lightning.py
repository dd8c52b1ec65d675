"""A window of Lightning's Trainer: `Trainer(callbacks=[ObserveCallback()])`."""
from __future__ import annotations

from typing import Any, Callable

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from .ledger import Ledger
from .window import Observation, Stated, engine_of


class ObserveCallback(Callback):
    """Observes one update, `at_step` counted from 0, and hands its `ledger` to `then`, which is `print` on the first process.

    The data of that update is used up and nothing is learned from it. The trainer goes on with the state and the step number that it had before.
    """

    def __init__(self, at_step: int = 1, contract: Stated = None, then: Callable[[Ledger], Any] | None = None) -> None:
        self.at_step, self.contract, self.then = at_step, contract, then
        self.ledger: Ledger | None = None
        self.observation: Observation | None = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self.ledger is not None or trainer.global_step < self.at_step or batch_idx % trainer.accumulate_grad_batches:
            return
        self.begun = trainer.global_step
        loop = trainer.fit_loop.epoch_loop
        progress = [getattr(getattr(loop, name, None), "optim_progress", None) for name in ("automatic_optimization", "manual_optimization")]
        engine = engine_of(pl_module)
        self.observation = Observation(engine or pl_module, trainer.optimizers, *progress, contract=self.contract, micro_batches=trainer.accumulate_grad_batches)
        self.ledger = self.observation.__enter__()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.observation is None or trainer.global_step == self.begun:
            return
        observation, self.observation = self.observation, None
        observation.__exit__(None, None, None)
        if self.then is not None:
            self.then(observation.ledger)
        elif trainer.is_global_zero:
            print(observation.ledger)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.give_up()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Where the training ends inside of the window."""
        self.give_up()

    def give_up(self) -> None:
        if self.observation is not None:
            self.observation.leave()
            self.observation = None
