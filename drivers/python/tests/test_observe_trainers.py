"""`observe` in the loops of others: accelerate, transformers' Trainer and Lightning, where they are installed."""
from __future__ import annotations

import importlib.util
import warnings
from fractions import Fraction

import pytest
import torch
from gradledger.observation import observe
from observed_loops import CRITERION, MICRO_BATCHES, batch, contributions, network, state_of
from ranks_of_a_test import run

UPDATES, AT = 3, 1


def needs(package):
    """Of the package index, and not of this one: says loudly where it is not there."""
    missing = importlib.util.find_spec(package) is None
    if missing:
        warnings.warn(f"NOT RUN: there is no {package} to import, and that observe works in its loop was not tested", stacklevel=2)
    return pytest.mark.skipif(missing, reason=f"NOT RUN: there is no {package} to import")


class Examples(torch.utils.data.Dataset):
    """Sequences of 8 tokens; the labels of some of them are to be ignored, the first of all."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        tokens = torch.randint(0, 50, (8,), generator=torch.Generator().manual_seed(i))
        labels = tokens.clone()
        labels[:1 + i % 4] = -100
        return {"input_ids": tokens, "labels": labels}


# ---- accelerate ---------------------------------------------------------------------------------------------------------------------------


def accelerated(rank):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=MICRO_BATCHES)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, schedule = accelerator.prepare(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1))

    def window(zero_grad_before_step=False):
        for _ in range(MICRO_BATCHES):
            inputs, labels = batch()
            with accelerator.accumulate(model):
                accelerator.backward(CRITERION(model(inputs), labels))
                if zero_grad_before_step and not accelerator.sync_gradients:
                    model.zero_grad()
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
    window()
    before = state_of(model, optimizer, schedule), accelerator.step
    out = []
    for broken in (False, True):
        with observe(model, optimizer) as ledger:
            window(broken)
        out.append((ledger.verdict, contributions(ledger), (state_of(model, optimizer, schedule), accelerator.step) == before))
    return out


@needs("accelerate")
def test_a_loop_of_accelerate_is_judged_and_nothing_of_it_differs():
    for whole, broken in run(2, accelerated, backend="gloo").returned:
        assert whole == ("clean", {}, True)
        assert broken == ("findings", {(rank, 0): (0.25, 0.0) for rank in range(2)}, True)


# ---- transformers -------------------------------------------------------------------------------------------------------------------------


def trained_by_transformers(folder, contract=None):
    from gradledger.observation.for_transformers import ObserveCallback
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    states = []

    class Notes(TrainerCallback):
        def on_step_begin(self, args, state, control, **of_trainer):
            if state.global_step == AT:
                states.append(state_of(of_trainer["model"], of_trainer["optimizer"], of_trainer["lr_scheduler"]))
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1))
    callback = ObserveCallback(at_step=AT, contract=contract, then=lambda ledger: None)
    arguments = TrainingArguments(folder, per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=UPDATES, use_cpu=True, report_to=[], save_strategy="no",
                                  disable_tqdm=True, logging_strategy="no", learning_rate=1e-2)
    trainer = Trainer(model, arguments, train_dataset=Examples(), callbacks=[Notes(), callback])
    trainer.train()
    return callback.ledger, states, trainer


@needs("transformers")
def test_a_window_of_transformers_is_judged_with_its_tokens_and_the_trainer_goes_on(tmp_path):
    ledger, states, trainer = trained_by_transformers(str(tmp_path), "tokens")
    assert ledger.clean, ledger
    assert sum(each.value for each in ledger.factors) == Fraction(1) and len({each.value for each in ledger.factors}) > 1
    assert trainer.state.global_step == trainer.lr_scheduler.last_epoch == UPDATES
    assert len(states) == 2 and states[0] == states[1]  # before the observed window, and before that of the same number behind it


# ---- Lightning ----------------------------------------------------------------------------------------------------------------------------


@needs("lightning")
def test_a_window_of_lightning_is_judged_and_the_trainer_goes_on():
    import lightning.pytorch as lightning
    from gradledger.observation.for_lightning import ObserveCallback

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()

        def training_step(self, given, number):
            return CRITERION(self.network(given[0]), given[1])

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters())
            return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1), "interval": "step"}]

    class Notes(lightning.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if batch_idx in (4, 8):
                states.append(state_of(pl_module, trainer.optimizers[0], trainer.lr_scheduler_configs[0].scheduler))
    states: list = []
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(32, 16), torch.randint(0, 8, (32,)))
    callback = ObserveCallback(at_step=AT, then=lambda ledger: None)
    trainer = lightning.Trainer(max_epochs=1, accumulate_grad_batches=4, gradient_clip_val=1.0, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, callbacks=[Notes(), callback])
    trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=2))
    assert callback.ledger.clean, callback.ledger
    assert [each.value for each in callback.ledger.factors] == [Fraction(1, 4)] * 4
    assert trainer.global_step == trainer.lr_scheduler_configs[0].scheduler.last_epoch == UPDATES  # of 4 windows, one of which was observed
    assert len(states) == 2 and states[0] == states[1]
