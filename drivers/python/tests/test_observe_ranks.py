"""`observe` on two ranks: DistributedDataParallel, fully_shard and FullyShardedDataParallel, whole and broken."""
from __future__ import annotations

import contextlib
import functools

import pytest
import torch
import torch._dynamo  # what DDP and FSDP2 import while they run, once for all ranks
from gradledger.observation import observe
from observed_loops import MICRO_BATCHES, batch, contributions, network, state_of, window
from ranks_of_a_test import run
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

LAST = MICRO_BATCHES - 1


def ddp(**options):
    model = torch.nn.parallel.DistributedDataParallel(network(), **options)
    return model, lambda i: contextlib.nullcontext() if i == LAST else model.no_sync()


def fsdp2():
    model = network()
    fully_shard(model[0])
    fully_shard(model)

    @contextlib.contextmanager
    def block(i):
        model.set_requires_gradient_sync(i == LAST)
        yield
    return model, block


def fsdp1(**options):
    model = FullyShardedDataParallel(network(), auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}), device_id=torch.device("cpu"), **options)
    return model, lambda i: contextlib.nullcontext() if i == LAST else model.no_sync()


def looked_at(rank, make, broken=None, raises=False):
    """What was found on a rank in the second of three windows; whether the state is as before; and the weights at the end."""
    model, block = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    window(model, optimizer, block)
    before = state_of(model, optimizer)
    out = "not observed"
    if broken is not None:
        with contextlib.suppress(ZeroDivisionError), observe(model, optimizer) as ledger:
            broken(rank, model, optimizer, block)
        out = [ledger.verdict, contributions(ledger), str(ledger)]
    same = state_of(model, optimizer) == before
    window(model, optimizer, block)
    return out, same, state_of(model, optimizer)


def whole(rank, model, optimizer, block):
    window(model, optimizer, block)


def without_a_reduction(rank, model, optimizer, block):
    window(model, optimizer, lambda i: block(0))


def with_a_boundary_of_its_own(rank, model, optimizer, block):
    """Rank 1 reduces behind the first micro-batch, and the others behind the last."""
    window(model, optimizer, lambda i: block(i if rank == 0 else LAST - i))


def only_the_last(rank, model, optimizer, block):
    window(model, optimizer, block, between=lambda i: None if i == LAST else optimizer.zero_grad())


def with_an_exception(rank, model, optimizer, block):
    window(model, optimizer, block, between=lambda i: 1 / (LAST - i))


MAKES = {"ddp": ddp, "fsdp2": fsdp2, "fsdp1": fsdp1, "fsdp1 with original parameters": functools.partial(fsdp1, use_orig_params=True)}


@pytest.mark.parametrize("make", MAKES)
def test_a_whole_loop_is_clean_and_trains_on_as_if_never_observed(make):
    seen = run(2, functools.partial(looked_at, make=MAKES[make], broken=whole)).returned
    never = run(2, functools.partial(looked_at, make=MAKES[make])).returned
    for rank in range(2):
        (verdict, wrong, text), same, state = seen[rank]
        assert (verdict, wrong) == ("clean", {}), text
        assert "ranks 0-1 micro-batches 0-1: weight 0.25" in text
        assert same and state == never[rank][2]


@pytest.mark.parametrize(("make", "broken", "wrong"), [
    ("ddp", without_a_reduction, {(r, m): (0.25, 0.5 if r == 0 else 0.0) for r in range(2) for m in range(2)}),
    ("ddp", with_a_boundary_of_its_own, {(1, 1): (0.25, 0.0)}),
    ("ddp", only_the_last, {(r, 0): (0.25, 0.0) for r in range(2)}),
    ("fsdp1", only_the_last, {(r, 0): (0.25, 0.0) for r in range(2)}),
])
def test_a_broken_loop_is_named_with_rank_and_micro_batch(make, broken, wrong):
    for (verdict, found, text), same, _ in run(2, functools.partial(looked_at, make=MAKES[make], broken=broken)).returned:
        assert (verdict, found) == ("findings", wrong), text
        assert same


def test_an_exception_on_all_ranks_leaves_the_training_as_it_was():
    for (verdict, *_), same, _ in run(2, functools.partial(looked_at, make=ddp, broken=with_an_exception)).returned:
        assert verdict == "nothing judged" and same


def uneven(rank):
    """Rank 1 uses another part of the model, and weighs its loss by its tokens."""
    model = torch.nn.ModuleDict({"both": network(), "first": torch.nn.Linear(8, 8), "second": torch.nn.Linear(8, 8)})
    parallel = torch.nn.parallel.DistributedDataParallel(Either(model), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters())
    with observe(parallel, optimizer, contract="tokens") as ledger:
        for i in range(MICRO_BATCHES):
            inputs, labels = batch()
            labels[:rank + i] = -100  # 4, 3 and 3, 2 tokens are left
            with parallel.no_sync() if i < LAST else contextlib.nullcontext():
                (torch.nn.functional.cross_entropy(parallel(inputs, rank), labels, reduction="sum") * 2 / 12).backward()
        optimizer.step()
    return ledger.verdict, [str(each.value) for each in ledger.factors], str(ledger)


class Either(torch.nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def forward(self, inputs, rank):
        return self.parts["second" if rank else "first"](self.parts["both"](inputs))


def test_ranks_that_use_other_parameters_and_have_other_numbers_of_tokens_are_clean():
    for verdict, factors, text in run(2, uneven).returned:
        assert (verdict, factors) == ("clean", ["2/3", "1/2", "1/2", "1/3"]), text
