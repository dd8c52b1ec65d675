"""DTensor workers of NeMo-RL: `train()` of the first and of the second, with the loss of supervised fine-tuning."""
from __future__ import annotations

import contextlib
import itertools
from collections import UserDict, defaultdict
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Generic, TypeVar
from unittest.mock import MagicMock

import torch
import torch.distributed as dist

from . import sources
from .ranks import Noted, Notes, Samples, note_backwards

LOSS = {"nemo_rl/algorithms/loss/interfaces.py": ["LossType", "LossInputType", "MetricNormalizer"], "nemo_rl/algorithms/loss/loss_functions.py": ["NLLLossFn"],
        "nemo_rl/algorithms/utils.py": ["masked_mean"], "nemo_rl/algorithms/loss/utils.py": ["prepare_loss_input"],
        "nemo_rl/distributed/model_utils.py": ["get_next_token_logprobs_from_logits"], "nemo_rl/distributed/batched_data_dict.py": ["BatchedDataDict", "SlicedDataDict"]}
FIRST = {"nemo_rl/models/policy/workers/dtensor_policy_worker.py": ["train_context", "train"]}
SECOND = {"nemo_rl/models/automodel/data.py": ["ProcessedInputs", "ProcessedMicrobatch", "process_global_batch", "get_microbatch_iterator", "make_processed_microbatch_iterator",
                                               "process_microbatch", "check_sequence_dim"],
          "nemo_rl/models/automodel/train.py": ["_needs_kv_cache_for_shared_layers", "model_forward", "extract_logits", "apply_temperature_scaling", "forward_with_post_processing_fn",
                                                "automodel_forward_backward", "LossPostProcessor"],
          "nemo_rl/models/policy/workers/dtensor_policy_worker_v2.py": ["get_train_context", "train"]}


def known() -> dict[str, Any]:
    import enum

    return {"torch": torch, "nn": torch.nn, "contextlib": contextlib, "contextmanager": contextlib.contextmanager, "nullcontext": contextlib.nullcontext, "itertools": itertools,
            "UserDict": UserDict, "defaultdict": defaultdict, "deepcopy": deepcopy, "dataclass": dataclass, "field": field, "cache": cache, "partial": partial, "Any": Any,
            "Generic": Generic, "DictT": TypeVar("DictT"), "enum": enum, "DTensor": torch.distributed.tensor.DTensor, "LossFunction": object,
            "apply_top_k_top_p": lambda logits, **_: (logits, None), "need_top_k_or_top_p_filtering": lambda _: False, "filter_multimodal_kwargs_for_model": lambda _, given: given,
            "get_train_context_automodel": lambda *_: contextlib.nullcontext, "get_grad_norm": lambda *_, **__: 0.0, "scale_grads_and_clip_grad_norm": lambda *_, **__: 0.0}


def batch(space: dict[str, Any], run: dict[str, Any], notes: Notes) -> Any:
    """Samples of the rank, all of one length: a mask says how many tokens of each count."""
    longest, samples = max(run["tok"]), notes.samples()
    inputs, mask = torch.zeros(len(samples), longest + 1, dtype=torch.long), torch.zeros(len(samples), longest + 1)
    for row, sample in enumerate(samples):
        inputs[row, 0], mask[row, 1:run["tok"][sample] + 1] = sample, 1
    return space["BatchedDataDict"]({"input_ids": inputs, "token_mask": mask, "sample_mask": torch.ones(len(samples)), "input_lengths": mask.sum(1).long() + 1})


def trained(files: dict[str, list[str]], run: dict[str, Any], notes: Notes, folder: Path) -> None:
    from torch.distributed.fsdp import fully_shard

    torch.Tensor.cuda = lambda self: self
    torch.cuda.get_device_name = lambda: "cpu"
    space = sources.run(sources.trees(folder, LOSS | files), known())
    space["DTensorPolicyWorker"] = SimpleNamespace(train_context=space.get("train_context"))
    mesh = dist.init_device_mesh("cpu", (run["world"],), mesh_dim_names=("dp",))
    model = Samples(len(run["tok"]))
    fully_shard(model, mesh=mesh)
    optimizer = Noted(notes, model.parameters())
    note_backwards(notes)
    size = run["world"] * run["gas"]
    worker = MagicMock(cfg={"train_global_batch_size": size, "train_micro_batch_size": 1, "dynamic_batching": {"enabled": False}, "sequence_packing": {"enabled": False},
                            "dtensor_cfg": {"sequence_parallel": False}},
                       dp_size=run["world"], cp_size=1, dp_mesh=mesh, model=model, optimizer=optimizer, enable_seq_packing=False, dtype=torch.float32, is_gemma3=False,
                       _is_reward_model=False, sampling_params=None, max_grad_norm=None, moe_mesh=None, allow_flash_attn_args=True, autocast_enabled=False)
    worker._apply_temperature_scaling = lambda logits: logits
    space["train"](worker, batch(space, run, notes), space["NLLLossFn"]())


class Loop:
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def __call__(self, run: dict[str, Any], notes: Notes) -> None:
        trained(FIRST if run["worker"] == "first" else SECOND, run, notes, self.folder)
