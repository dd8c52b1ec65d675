"""The calls that accelerate and transformers' Trainer make of FullyShardedDataParallel, where they are installed: those that `gradledger audit` expands its loops
into (tests/audit/loops_test.cpp has the same lists). accelerate takes no plugin of FSDP on a CPU, so it is told here that its ranks have devices."""
from __future__ import annotations

import contextlib
from itertools import groupby

import pytest
import torch
from observed_loops import CRITERION, batch, network
from ranks_of_a_test import run
from test_observe_trainers import Examples, needs
from torch.distributed.fsdp import FullyShardedDataParallel

MICRO_BATCHES, WINDOWS = 4, 2
HELD = ["no_sync(", "backward", ")"]
WINDOW = HELD * 3 + ["backward", "step", "zero_grad"]
REDUCED = ["backward"] * 4 + ["step", "zero_grad"]


def ranks_have_devices():
    from accelerate import state
    from accelerate.utils import DistributedType

    initialise = state.AcceleratorState.__init__

    def with_plugin(self, *arguments, fsdp_plugin=None, **named):
        initialise(self, *arguments, fsdp_plugin=fsdp_plugin, **named)
        if fsdp_plugin is not None:
            self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
            state.PartialState().device = self.device = torch.device("cpu")
    state.AcceleratorState.__init__ = with_plugin


class Calls(list):
    """Of the wrapper, of autograd and of the optimizer, as they are made; `weights` by what each loss was multiplied before its backward."""

    def __init__(self):
        super().__init__()
        self.weights, self.loss = [], None

        def noting(owner, name, word):
            inner = getattr(owner, name)

            def call(this, *arguments, **named):
                self.append(word)
                if word == "backward" and self.loss is not None:
                    self.weights.append(float(this.detach() / self.loss))
                return inner(this, *arguments, **named)
            setattr(owner, name, call)
        no_sync = FullyShardedDataParallel.no_sync

        @contextlib.contextmanager
        def noted_no_sync(model):
            self.append("no_sync(")
            with no_sync(model):
                yield
            self.append(")")
        FullyShardedDataParallel.no_sync = noted_no_sync
        noting(torch.Tensor, "backward", "backward")
        noting(torch.optim.AdamW, "step", "step")
        noting(torch.optim.AdamW, "zero_grad", "zero_grad")
        noting(torch.nn.Module, "zero_grad", "zero_grad")

    def once(self):
        """With calls that stand twice in a row once: a second zero_grad clears nothing."""
        return [call for call, again in groupby(self) for call in (again if call != "zero_grad" else [call])]


def accelerated(sync_each_batch):
    def on_rank(rank):
        from accelerate import Accelerator
        from accelerate.utils import FullyShardedDataParallelPlugin, GradientAccumulationPlugin

        ranks_have_devices()
        accelerator = Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=1, use_orig_params=True),
                                  gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=MICRO_BATCHES, sync_each_batch=sync_each_batch))
        model = accelerator.prepare(network())
        assert isinstance(model, FullyShardedDataParallel)
        optimizer = accelerator.prepare(torch.optim.AdamW(model.parameters()))
        calls = Calls()
        for _ in range(WINDOWS * MICRO_BATCHES):
            inputs, labels = batch()
            with accelerator.accumulate(model):
                loss = CRITERION(model(inputs), labels)
                calls.loss = loss.detach()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        return calls.once(), calls.weights
    return on_rank


@needs("accelerate")
@pytest.mark.parametrize(("sync_each_batch", "window"), [(False, WINDOW), (True, REDUCED)])
def test_accelerate_holds_reductions_of_fsdp1_back_unless_it_is_told_to_sync_each_batch(sync_each_batch, window):
    for calls, weights in run(2, accelerated(sync_each_batch), backend="gloo").returned:
        assert calls == window * WINDOWS
        assert weights == [0.25] * MICRO_BATCHES * WINDOWS


def trained(folder, fsdp, sync_each_batch=False):
    def on_rank(rank):
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

        ranks_have_devices()
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1))
        arguments = TrainingArguments(folder, fsdp=fsdp, fsdp_config={"version": 1, "sync_module_states": False}, per_device_train_batch_size=2, max_steps=WINDOWS, use_cpu=True,
                                      accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": sync_each_batch}}, gradient_accumulation_steps=MICRO_BATCHES,
                                      report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")
        trainer = Trainer(model, arguments, train_dataset=Examples())
        calls = Calls()
        trainer.train()
        return calls.once(), str(trainer.model_wrapped.sharding_strategy)
    return on_rank


@needs("transformers")
@pytest.mark.parametrize(("sync_each_batch", "window"), [(False, WINDOW), (True, REDUCED)])
def test_a_trainer_does_the_same_with_fsdp1_and_a_no_sync_of_its_own(tmp_path, sync_each_batch, window):
    for calls, strategy in run(2, trained(str(tmp_path), "full_shard", sync_each_batch), backend="gloo").returned:
        assert calls[calls.index("zero_grad") + 1 if calls[0] == "zero_grad" else 0:] == window * WINDOWS
        assert strategy == "ShardingStrategy.FULL_SHARD"


@needs("transformers")
def test_a_trainer_shards_with_fsdp1_whatever_strategy_it_is_told(tmp_path):
    for _, strategy in run(2, trained(str(tmp_path), "no_shard"), backend="gloo").returned:
        assert strategy == "ShardingStrategy.FULL_SHARD"
