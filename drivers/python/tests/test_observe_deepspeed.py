"""`observe` on DeepSpeed's engines, of whatever release is importable, or of those that GRADLEDGER_DEEPSPEED names a folder of."""
from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import sys
from pathlib import Path

import pytest
from deepspeed_world import available, skip_without_deepspeed

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_BUILD_OPS", "0")
skip_without_deepspeed()
RELEASE = "0.18.9"  # has DeepSpeed#7981
if "deepspeed" not in sys.modules and os.environ.get("GRADLEDGER_DEEPSPEED"):
    sys.path.insert(0, str(Path(os.environ["GRADLEDGER_DEEPSPEED"]) / (RELEASE if RELEASE in os.listdir(os.environ["GRADLEDGER_DEEPSPEED"]) else str(available()[-1]))))

import deepspeed  # noqa: E402
import torch  # noqa: E402
from gradledger.drivers import deepspeed_setup  # noqa: E402
from gradledger.observation import observe  # noqa: E402
from observed_loops import CRITERION, MICRO_BATCHES, batch, contributions, network, state_of  # noqa: E402
from ranks_of_a_test import run  # noqa: E402

for late in ("torch._dynamo", "torch.distributed.fsdp", "deepspeed.module_inject.auto_ep_layer"):  # imported with an engine: once for all ranks
    with contextlib.suppress(ImportError):
        importlib.import_module(late)
gc.freeze()  # DeepSpeed collects garbage several times for each engine
deepspeed_setup.mend()
VERSION = tuple(int(part) for part in deepspeed.__version__.split("+")[0].split("."))


def engine_of(stage, offload=False, by_hand=False, dtype="fp32"):
    zero = {"stage": stage, "reduce_bucket_size": 4096} | ({"offload_optimizer": {"device": "cpu"}} if offload else {})
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1 if by_hand else MICRO_BATCHES, "gradient_clipping": 1.0, "zero_optimization": zero,
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False} | ({dtype: {"enabled": True}} if dtype != "fp32" else {})
    model = network()
    return deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2), config=config)[0]


def window(engine, by_hand=False):
    """As DeepSpeed's loop is written; by hand: the loop sets the boundary, divides the loss, and steps once."""
    for i in range(MICRO_BATCHES):
        inputs, labels = batch()
        if by_hand:
            engine.set_gradient_accumulation_boundary(i == MICRO_BATCHES - 1)
        loss = CRITERION(engine(inputs.to(next(engine.module.parameters()).dtype)).float(), labels)
        engine.backward(loss / MICRO_BATCHES if by_hand else loss)
        if not by_hand or i == MICRO_BATCHES - 1:
            engine.step()


def state(engine):
    masters = [tensor for group in engine.optimizer.optimizer.param_groups for tensor in group["params"]] if hasattr(engine.optimizer, "optimizer") else []
    return state_of(engine.module), state_of(*[type("Masters", (), {"state_dict": lambda self: {i: t.detach().clone() for i, t in enumerate(masters)}})()]), \
        [engine.micro_steps, engine.global_steps, engine.global_samples, engine.skipped_steps], getattr(engine.optimizer, "cur_scale", None)


def looked_at(rank, observed=True, **options):
    engine = engine_of(**options)
    by_hand = options.get("by_hand", False)
    window(engine, by_hand)
    before, out = state(engine), None
    if observed:
        with observe(engine, engine.optimizer) as ledger:
            window(engine, by_hand)
        out = ledger.verdict, contributions(ledger), [each.finding_class for each in ledger.findings], str(ledger)
    same = state(engine) == before
    window(engine, by_hand)
    return out, same, state(engine)


@pytest.mark.parametrize("options", [{"stage": 0}, {"stage": 1}, {"stage": 2}, {"stage": 2, "offload": True}, {"stage": 3}, {"stage": 1, "dtype": "bf16"}],
                         ids=lambda options: " ".join(f"{key} {value}" for key, value in options.items()))
def test_the_documented_loop_is_clean_and_trains_on_as_if_never_observed(options):
    seen = run(2, functools.partial(looked_at, **options)).returned
    never = run(2, functools.partial(looked_at, observed=False, **options)).returned
    for rank in range(2):
        (verdict, wrong, _, text), same, trained = seen[rank]
        assert (verdict, wrong) == ("clean", {}), text
        assert "weight 0.25, the loss times 1/2" in text and same and trained == never[rank][2]


def test_offload_with_a_boundary_that_the_loop_sets_keeps_only_the_last_micro_batch_up_to_0_18_9():
    for (verdict, wrong, _, text), same, _ in run(2, functools.partial(looked_at, stage=2, offload=True, by_hand=True)).returned:
        expected = ("findings", {(rank, 0): (0.25, 0.0) for rank in range(2)}) if VERSION <= (0, 18, 9) else ("clean", {})
        assert (verdict, wrong) == expected and same, text


def test_stage_0_in_fp16_divides_by_a_loss_scale_that_is_not_in_the_loss_from_0_18_3_on():
    for (verdict, wrong, classes, text), same, _ in run(2, functools.partial(looked_at, stage=0, dtype="fp16")).returned:
        missing = VERSION >= (0, 18, 3)
        assert (verdict, classes[:1]) == (("findings", ["wrong-scale"]) if missing else ("clean", [])) and same, text
