"""open-instruct: `step()` of grpo_fast.py's trainer on an engine of DeepSpeed, and the loop of finetune.py on accelerate."""
from __future__ import annotations

import contextlib
import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import MagicMock

import torch
import torch.distributed as dist

from . import sources
from .ranks import IGNORED, Noted, Notes, Output, Samples, note_backwards

INVALID = 1.0
COMMON = {"open_instruct/model_utils.py": ["log_softmax_and_gather"]}
# By the state of the code: what runs of it.
STATES: dict[str, dict[str, list[str]]] = {
    "2026.8": {"open_instruct/rl_utils.py": ["masked_mean"], "open_instruct/data_types.py": ["CollatedBatchData"], "open_instruct/grpo_fast.py": ["step"],
               "open_instruct/grpo_utils.py": ["mask_logprobs", "resolve_old_logprob", "compute_rho_correction", "RhoCorrection", "compute_grpo_loss", "forward_for_logprobs",
                                               "compute_logprobs", "calculate_token_counts", "GRPOLossType"]},
    "2026.1": {"open_instruct/rl_utils.py": ["masked_mean"], "open_instruct/data_types.py": ["CollatedBatchData"], "open_instruct/grpo_fast.py": ["step", "calculate_token_counts"],
               "open_instruct/grpo_utils.py": ["compute_grpo_loss", "forward_for_logprobs", "compute_logprobs", "GRPOLossType"]},
    "2025.11": {"open_instruct/model_utils.py": ["log_softmax_and_gather", "masked_mean"], "open_instruct/grpo_fast.py": ["forward", "train"]},
}


class Trainer:
    """What `step()` and its like ask of the actor that they are methods of."""

    def __init__(self, space: dict[str, Any], run: dict[str, Any], engine: Any) -> None:
        self.space, self.model, self.device, self.rank, self.splitter, self.pad_token_id = space, engine, torch.device("cpu"), 0, None, -1
        self.num_mini_batches, self.local_metrics, self.scheduler = 1, MagicMock(), MagicMock()
        self.streaming_config = SimpleNamespace(temperature=1.0)
        self.args = MagicMock(load_ref_policy=False, num_epochs=1, loss_denominator="token", use_vllm_logprobs=False, record_entropy=False, beta=0.0, world_size=run["world"],
                              sequence_parallel_size=1, clip_lower=0.2, clip_higher=0.2, truncated_importance_sampling_ratio_cap=0.0, use_rho_correction=False, mask_tool_use=False,
                              temperature=1.0, masked_mean_axis=None, masked_mean_denominator=None)
        self.args.loss_fn = space["GRPOLossType"].dapo if "GRPOLossType" in space else None

    def __getattr__(self, name: str) -> Any:
        method = self.__dict__["space"].get(name)
        if method is None:
            return MagicMock(name=name)
        return lambda *arguments, **named: method(self, *arguments, **named)


def engine_of(run: dict[str, Any], notes: Notes) -> Any:
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param

    model = Samples(len(run["tok"]))
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_allow_untested_optimizer": True} | run["engine"]["config"]
    engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), optimizer=torch.optim.SGD(model.parameters(), lr=1.0), config=config)
    backward, step = engine.backward, engine.step

    def weights() -> torch.Tensor:
        if run["engine"]["config"].get("zero_optimization", {}).get("stage", 0) == 3:
            return safe_get_full_fp32_param(model.weight).detach()
        return model.weight.detach()

    def noted_backward(*arguments: Any, **named: Any) -> Any:
        notes.backward()
        return backward(*arguments, **named)

    def noted_step() -> Any:
        with torch.no_grad():  # gloo gathers into parts of a tensor, which autograd refuses
            return notes.step(weights, step)
    engine.backward, engine.step = noted_backward, noted_step
    engine.get_global_grad_norm = lambda: 0.0
    return engine


def window(run: dict[str, Any], samples: list[int]) -> dict[str, list[torch.Tensor]]:
    tokens = [torch.tensor([[sample] + [0] * run["tok"][sample]]) for sample in samples]
    masks = [torch.tensor([[False] + [True] * run["tok"][sample]]) for sample in samples]
    ones = [torch.ones(each.shape) for each in tokens]
    return {"query_responses": tokens, "attention_masks": [each.long() for each in ones], "position_ids": [torch.arange(each.shape[1]).unsqueeze(0) for each in tokens],
            "advantages": ones, "response_masks": masks, "vllm_logprobs": [each - 1 for each in ones]}


def known() -> dict[str, Any]:
    import enum

    return {"torch": torch, "dist": dist, "math": math, "dataclasses": dataclasses, "dataclass": dataclasses.dataclass, "field": dataclasses.field, "enum": enum, "Any": Any,
            "INVALID_LOGPROB": INVALID, "Timer": lambda *_, **__: contextlib.nullcontext(), "T": TypeVar("T")}


def grpo(run: dict[str, Any], notes: Notes, folder: Path) -> None:
    files = STATES[run["versions"]["open-instruct"]]
    space = sources.run(sources.trees(folder, COMMON | files), known())
    for name in ("grpo_utils", "model_utils", "utils"):
        space[name] = sources.Module(space)
    trainer = Trainer(space, run, engine_of(run, notes))
    samples = notes.samples()
    for first in range(0, len(samples), run["gas"]):
        data = window(run, samples[first:first + run["gas"]])
        if "train" in space:
            space["train"](trainer, *[data[name] for name in ("query_responses", "response_masks", "attention_masks", "position_ids", "advantages", "response_masks", "vllm_logprobs")],
                           trainer.pad_token_id, 1)
        else:
            trainer.__dict__["dataloader"] = iter([{"batch": space["CollatedBatchData"](**data), "metrics": {}}])
            space["step"](trainer)


class Examples(torch.utils.data.Dataset):
    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, sample: int) -> dict[str, torch.Tensor]:
        inputs = torch.tensor([sample] + [0] * self.tokens[sample])
        return {"input_ids": inputs, "attention_mask": torch.ones_like(inputs), "labels": torch.cat([torch.tensor([IGNORED]), inputs[1:]])}


class Causal(Samples):
    """With a loss of its own, the mean over the tokens of a batch."""

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor, **_: Any) -> Output:
        out = super().forward(input_ids)
        logits = out.logits[:, :-1]
        return Output(logits=out.logits, loss=self.weight[input_ids[:, 0]].unsqueeze(1).expand(*logits.shape[:2])[labels[:, 1:] != IGNORED].mean())


def finetune(run: dict[str, Any], notes: Notes, folder: Path) -> None:
    from accelerate import Accelerator
    from accelerate.accelerator import GradientAccumulationPlugin

    model = Causal(len(run["tok"]))
    optimizer = Noted(notes, model.parameters())
    epochs = run.get("epochs", 1)
    args = MagicMock(gradient_accumulation_steps=run["gas"], load_balancing_loss=False, sequence_parallel_size=1, clip_grad_norm=-1, logging_steps=0, checkpointing_steps=None,
                     num_train_epochs=epochs, max_train_steps=10**6, reduce_loss="sum" if run.get("sum_loss") else "mean", with_tracking=False)
    note_backwards(notes)
    plugin = GradientAccumulationPlugin(num_steps=run["gas"])
    given = {"torch": torch, "args": args, "model": model, "optimizer": optimizer, "accelerator": Accelerator(cpu=True, gradient_accumulation_plugin=plugin),
             "train_dataloader": torch.utils.data.DataLoader(Examples(run["tok"]), batch_size=1), "starting_epoch": 0, "last_checkpoint_path": None, "resume_batch_idx": 0,
             "lr_scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0), "completed_steps": 0, "skipped_batches": False, "embedding_size": 2, "getattr": getattr}
    for counter in ("local_total_tokens", "local_pred_tokens", "local_total_tokens_this_log_period", "local_pred_tokens_this_log_period", "total_token_including_padding"):
        given[counter] = torch.tensor(0)
    sources.run(sources.statements(folder, "open_instruct/finetune.py", "main", ["model, optimizer, train_dataloader, lr_scheduler = ", "for epoch in range("]), given)


class Loop:
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def __call__(self, run: dict[str, Any], notes: Notes) -> None:
        (finetune if run["loop"] == "open-instruct-finetune" else grpo)(run, notes, self.folder)
