"""NeMo 2: `MegatronStrategy.training_step()`, its MegatronParallel, its loss and its optimizer on Megatron-Core, all of them the package's own. A device stands for a CPU, as
drivers/python has it."""
from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator
from unittest.mock import MagicMock

import torch

from .ranks import Notes

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "drivers" / "python"))


class Stage(torch.nn.Module):
    """What Megatron asks of a model. Of its one weight each sample has an element, and a token's loss is the element of its sample."""
    model_type = None
    share_embeddings_and_output_weights = False
    pre_process = post_process = True

    def __init__(self, config: Any, samples: int) -> None:
        super().__init__()
        self.config = config
        self.weight = torch.nn.Parameter(torch.zeros(1, samples))

    def set_input_tensor(self, _: Any) -> None:
        pass

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.weight[0, batch["sample"]].expand(batch["loss_mask"].shape)


def lightning_module(stage: Stage) -> Any:
    import lightning.pytorch as pl
    from nemo.lightning.megatron_parallel import MaskedTokenLossReduction

    class Model(pl.LightningModule):
        """As nemo.collections.llm has its GPTModel."""

        def __init__(self) -> None:
            super().__init__()
            self.module, self.config = stage, stage.config

        def forward(self, batch: Any) -> torch.Tensor:
            return self.module(batch)

        def data_step(self, batches: Iterator[Any]) -> Any:
            return next(batches)

        def forward_step(self, batch: Any) -> torch.Tensor:
            return self(batch)

        def training_step(self, batch: Any, batch_idx: Any = None) -> torch.Tensor:
            return self.forward_step(batch)

        @property
        def training_loss_reduction(self) -> Any:
            return MaskedTokenLossReduction()
    return Model()


def batches(run: dict[str, Any], notes: Notes) -> Iterator[dict[str, torch.Tensor]]:
    longest = max(run["tok"])
    for sample in notes.samples():
        notes.backward()
        mask = torch.zeros(1, longest)
        mask[0, :run["tok"][sample]] = 1
        yield {"sample": sample, "loss_mask": mask}


class Loop:
    def __init__(self, _: str) -> None:
        """The package is imported as it is installed."""

    def __call__(self, run: dict[str, Any], notes: Notes) -> None:
        from gradledger.drivers import megatron_cpu

        megatron_cpu.install()
        from megatron.core import parallel_state
        from megatron.core.distributed import DistributedDataParallelConfig
        from megatron.core.optimizer import OptimizerConfig
        from megatron.core.transformer import TransformerConfig
        from nemo.lightning.megatron_parallel import MegatronParallel, MegatronStep
        from nemo.lightning.pytorch.optim.megatron import MegatronOptimizerModule
        from nemo.lightning.pytorch.strategies.megatron_strategy import MegatronStrategy

        MegatronStep.adjust_tensor_shapes_fn = None  # of distillation, and imports every model
        parallel_state.initialize_model_parallel()
        config = run["engine"]["config"]
        stage = Stage(TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=8, **config.get("model", {})), len(run["tok"]))
        module = lightning_module(stage)
        parallel = MegatronParallel(module, ddp_config=DistributedDataParallelConfig(**config.get("ddp", {})), cpu=True)
        parallel.trainer = SimpleNamespace(state=SimpleNamespace(fn="fit"), global_step=0)
        parallel.init_model_parallel()
        optimizers = MegatronOptimizerModule(OptimizerConfig(optimizer="sgd", lr=1.0, min_lr=1.0, weight_decay=0.0, sgd_momentum=0.0, clip_grad=0.0))
        optimizers.on_fit_start(None, parallel)
        optimizer, = optimizers.optimizers(parallel)
        strategy = MagicMock(model=parallel, optimizers=[optimizer], log_memory_usage=False)
        strategy.precision_plugin.train_step_context = contextlib.nullcontext
        data = batches(run, notes)
        for _ in range(len(notes.samples()) // run["gas"]):
            MegatronStrategy.training_step(strategy, data, num_microbatches=run["gas"], micro_batch_size=1, seq_length=max(run["tok"]))
            notes.step(lambda: stage.weight.detach()[0], optimizer.step)
