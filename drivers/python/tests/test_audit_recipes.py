"""What torchtune, torchtitan and verl multiply the loss of a micro-batch by, where they are installed, as `gradledger audit` expands their loops. Their own functions
run, out of the files of the package, without what these import: loaders, recipes' configurations, ray. The model has one weight for each sample, the loss of a token is
the weight of its sample, and SGD with learning rate 1 steps. So what an update takes off a weight is what the sample counted for."""
from __future__ import annotations

import __future__
import ast
import contextlib
import importlib.util
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
import torch.distributed as dist
from ranks_of_a_test import run
from test_observe_trainers import needs

RANKS, ACCUMULATION, BATCHES, IGNORED = 2, 2, 5, -100
TOKENS = [4, 2, 8, 2, 6, 3, 5, 1, 7, 2]  # by sample; rank r has samples r, r + 2, ...


def functions_of(package, file, names, known):
    """Functions of a package's file, methods too, in a module that has `known` and nothing of what the file imports."""
    folder = Path(importlib.util.find_spec(package).submodule_search_locations[0]).parent
    tree = ast.parse((folder / file).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    assert {node.name for node in found} == set(names), f"{file} of {package} has not all of {names}"
    for node in found:
        node.decorator_list = []
    module = ast.Module(found, [])
    exec(compile(module, file, "exec", flags=__future__.annotations.compiler_flag), known)
    return [known[name] for name in names]


class Samples(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(len(TOKENS)))

    def forward(self, sample):
        return self.weight[sample].expand(TOKENS[sample] + 1).reshape(1, -1, 1)


class Noted(torch.optim.SGD):
    """Keeps what each step takes off the weights, whole."""
    applied = ()

    def step(self):
        before = self.param_groups[0]["params"][0].full_tensor().detach().clone()
        super().step()
        self.applied = (*self.applied, (before - self.param_groups[0]["params"][0].full_tensor().detach()))

    def weights(self):
        return [{i: round(float(x) / TOKENS[i], 6) for i, x in enumerate(update) if x} for update in self.applied]


def sharded():
    from torch.distributed.fsdp import fully_shard

    model = Samples()
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (RANKS,)))
    return model, Noted(model.parameters(), lr=1.0)


def labels_of(sample):
    """The first is ignored, so that shifted labels count as many tokens."""
    return torch.tensor([[IGNORED] + [0] * TOKENS[sample]])


def samples_of(rank):
    return [batch * RANKS + rank for batch in range(BATCHES)]


def each(samples, weight):
    return {sample: round(weight, 6) for sample in samples}


class Mean:
    ignore_index = IGNORED

    def __call__(self, logits, labels):
        return logits[:, 0][labels != IGNORED].mean()


class Loader(list):
    sampler = MagicMock()
    state_dict = dict


def tuned(rank):
    model, optimizer = sharded()
    training, utils = MagicMock(), MagicMock()
    training.scale_grads, = functions_of("torchtune", "torchtune/training/_grad_scaler.py", ["scale_grads"], {"nn": torch.nn, "torch": torch})
    train, = functions_of("torchtune", "recipes/full_finetune_distributed.py", ["train"],
                          {"torch": torch, "training": training, "utils": utils, "time": time, "tqdm": MagicMock(), "DTensor": torch.distributed.tensor.DTensor,
                           "get_lr": MagicMock(), "TrainingProgress": MagicMock()})
    recipe = MagicMock(_model=model, _optimizer=optimizer, _optimizer_in_bwd=False, epochs_run=0, total_epochs=2, _is_rank_zero=False, _loss_fn=Mean(), world_size=RANKS, global_step=0,
                       ignore_labels_cache=torch.full((1, 1), IGNORED), activations_handling_ctx=contextlib.nullcontext(), _gradient_accumulation_steps=ACCUMULATION,
                       _clip_grad_norm=None, _lr_scheduler=None, max_steps_per_epoch=None, _log_every_n_steps=1, profiler_profile_memory=False)
    recipe._dataloader = Loader()
    batches = [{"sample": sample, "labels": labels_of(sample)} for sample in samples_of(rank)]

    class Epochs(Loader):
        def __iter__(self):  # the recipe takes labels out of a batch
            return iter([dict(batch) for batch in batches])
    recipe._dataloader = Epochs(batches)
    train(recipe)
    return optimizer.weights()


@needs("torchtune")
def test_torchtune_divides_by_the_tokens_of_all_that_it_holds_and_what_an_epoch_leaves_joins_the_next():
    for weights in run(RANKS, tuned, backend="gloo").returned:
        held = {8, 9, 0, 1, 2, 3}
        assert weights == [each(range(4), 1 / 16), each(range(4, 8), 1 / 15), each(held, 1 / (16 + 9)), each(range(4, 8), 1 / 15)]


class Optimizers:
    def __init__(self, optimizer):
        self.step, self.zero_grad = optimizer.step, optimizer.zero_grad


def titaned(rank):
    model, optimizer = sharded()
    undivided, = functions_of("torchtitan", "torchtitan/distributed/fsdp.py", ["disable_fsdp_gradient_division"], {"nn": torch.nn, "FSDPModule": torch.distributed.fsdp.FSDPModule})
    undivided(model)
    model.set_force_sum_reduction_for_comms(True)  # gloo has no sums with a factor
    sl, spmd, dist_utils = MagicMock(), MagicMock(), MagicMock()
    sl.log_trace_span = lambda *_: contextlib.nullcontext()
    spmd.no_typecheck = contextlib.nullcontext

    def summed(tokens, mesh):
        dist.all_reduce(tokens)
        return tokens
    dist_utils.dist_sum_tensor = summed
    names = ["train_step", "forward_backward_step", "_forward_backward_body"]
    step, forward_backward, body = functions_of("torchtitan", "torchtitan/trainer.py", names,
                                                {"torch": torch, "sl": sl, "spmd": spmd, "dist_utils": dist_utils, "IGNORE_INDEX": IGNORED})

    trainer = MagicMock(model_parts=[model], optimizers=Optimizers(optimizer), gradient_accumulation_steps=ACCUMULATION, num_pipeline_parallel_microbatches=1, device="cpu",
                        train_context=contextlib.nullcontext, step=0)
    trainer.parallel_dims = MagicMock(pp_enabled=False, dp_enabled=True)
    trainer.metrics_processor.should_log = lambda step: False
    trainer.config.training = SimpleNamespace(disable_cuda_graphs=True, max_norm=1.0)
    trainer.post_dataloading_process = lambda inputs, labels: (inputs["sample"], labels, {})
    # components/loss.py: a sum over the tokens, divided by global_valid_tokens.
    trainer.loss_fn = lambda pred, labels, tokens: (pred[..., 0][labels != IGNORED].sum() / tokens, None)
    trainer.fwd_bwd_fn = lambda *arguments: body(trainer, *arguments)
    trainer.forward_backward_step = lambda **named: forward_backward(trainer, **named)
    data = iter([({"sample": sample}, labels_of(sample)) for sample in samples_of(rank)])
    for _ in range(BATCHES // ACCUMULATION):
        step(trainer, data)
    return optimizer.weights()


@needs("torchtitan")
def test_torchtitan_divides_by_the_tokens_of_a_window_on_all_ranks_and_not_by_ranks():
    for weights in run(RANKS, titaned, backend="gloo").returned:
        assert weights == [each(range(4), 1 / 16), each(range(4, 8), 1 / 15)]


def aggregated(mode, rows, **batch):
    """By sequence, the weight of a token in the loss of a micro-batch; `rows` are the lengths of its sequences."""
    masked_sum, = functions_of("verl", "verl/utils/torch_functional.py", ["masked_sum"], {"torch": torch})
    agg_loss, = functions_of("verl", "verl/trainer/ppo/core_algos.py", ["agg_loss"], {"torch": torch, "verl_F": SimpleNamespace(masked_sum=masked_sum)})
    mask = torch.zeros(len(rows), 12, dtype=torch.float64)
    for row, length in zip(mask, rows):
        row[:length] = 1
    losses = torch.zeros_like(mask, requires_grad=True)
    agg_loss(loss_mat=losses, loss_mask=mask, loss_agg_mode=mode, **batch).backward()
    return [float(gradient[0]) for gradient in losses.grad]


# Micro-batches of a budget of tokens: other numbers of sequences in each, as many sequences on every rank.
MICRO_BATCHES = [[[4, 2, 8], [2]], [[6, 3], [5, 1]]]
ALL = [length for micro_batches in MICRO_BATCHES for micro_batch in micro_batches for length in micro_batch]
BATCH = {"dp_size": RANKS, "batch_num_tokens": sum(ALL), "global_batch_size": len(ALL)}


@needs("verl")
@pytest.mark.parametrize(("mode", "due"), [("token-mean", lambda n: 1 / sum(ALL)), ("seq-mean-token-sum", lambda n: 1 / len(ALL)),
                                           ("seq-mean-token-mean", lambda n: 1 / len(ALL) / n), ("seq-mean-token-sum-norm", lambda n: 1 / len(ALL) / 12),
                                           ("token-sum", lambda n: 1.0)])
def test_verl_weighs_tokens_by_what_the_whole_mini_batch_has(mode, due):
    for micro_batches in MICRO_BATCHES:
        for rows in micro_batches:
            for length, weight in zip(rows, aggregated(mode, rows, **BATCH)):
                torch.testing.assert_close(weight / RANKS, due(length))  # fully_shard takes the mean over ranks


@needs("verl")
@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_verl_without_the_counts_of_a_mini_batch_takes_the_mean_of_a_micro_batch_alone(mode):
    rows = [4, 2, 8]
    due = {"token-mean": [1 / 14] * 3, "seq-mean-token-sum": [1 / 3] * 3, "seq-mean-token-mean": [1 / 12, 1 / 6, 1 / 24]}[mode]
    torch.testing.assert_close(torch.tensor(aggregated(mode, rows)), torch.tensor(due))
