"""FullyShardedDataParallel with CPU offload and original parameters: what a window applies behind others. scenarios/fsdp1/offload-keeps-original-gradients.json says why.
On a CPU nothing can be pinned and no stream waits: both calls are replaced by nothing."""
from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch
from ranks_of_a_test import run
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, ShardingStrategy, _runtime_utils

MICRO_BATCHES = 4


def without_a_device():
    torch.Tensor.pin_memory = lambda tensor, *_: tensor
    finish, stream = _runtime_utils._post_backward_final_callback, SimpleNamespace(synchronize=lambda: None, wait_stream=lambda _: None)

    def finish_without(*arguments):
        current, torch.cpu.current_stream = torch.cpu.current_stream, lambda *_: stream
        try:
            finish(*arguments)
        finally:
            torch.cpu.current_stream = current
    _runtime_utils._post_backward_final_callback = finish_without


def applied(strategy, original):
    """By window: the gradient that is due in each element, and the one that the optimizer has."""
    def on_rank(rank):
        without_a_device()
        linear = torch.nn.Linear(8, 1, bias=False)
        model = FullyShardedDataParallel(torch.nn.Sequential(linear), use_orig_params=original, cpu_offload=CPUOffload(offload_params=True),
                                         sharding_strategy=ShardingStrategy[strategy], device_id=torch.device("cpu"))
        optimizer, out = torch.optim.SGD(model.parameters(), lr=1.0), []
        for size in (1, 10, 100):
            for micro_batch in range(MICRO_BATCHES):
                with contextlib.nullcontext() if micro_batch == MICRO_BATCHES - 1 else model.no_sync():
                    model(torch.full((1, 8), float(size * (rank + 1) + micro_batch))).sum().backward()
            due = sum(size * (r + 1) + m for r in range(2) for m in range(MICRO_BATCHES)) / 2
            seen = {float(element) for p in model.parameters() if p.grad is not None for element in p.grad.flatten()}
            out.append((due, seen))
            optimizer.step()
            optimizer.zero_grad()
        return out
    return on_rank


@pytest.mark.parametrize(("strategy", "original"), [("FULL_SHARD", False), ("SHARD_GRAD_OP", True)])
def test_a_window_holds_its_own_gradients(strategy, original):
    for windows in run(2, applied(strategy, original), backend="gloo").returned:
        assert [seen for _, seen in windows] == [{due} for due, _ in windows]


def test_a_window_holds_those_of_all_before_it_with_full_shard_and_original_parameters():
    for windows in run(2, applied("FULL_SHARD", True), backend="gloo").returned:
        due = [each for each, _ in windows]
        assert due == [12, 66, 606]
        assert [seen for _, seen in windows] == [{12}, {78}, {684}]
