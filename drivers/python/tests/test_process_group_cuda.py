"""Tensors of a GPU: copied to the host and back, in the order of the current stream."""
from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks_of_a_test import run

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # to ask must not start CUDA: the ranks are forked
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here: collectives of a GPU's tensors are NOT tested")


@pytest.mark.parametrize("deliver", ["eager", "late"])
def test_collectives_of_a_gpus_tensors_follow_its_stream(deliver: str) -> None:
    def of(rank: int) -> Any:
        with torch.cuda.stream(torch.cuda.Stream()):
            values = torch.zeros(1 << 20, device="cuda")
            for _ in range(50):  # still under way when the collective is called
                values += rank + 1
            work = dist.all_reduce(values, async_op=True)
            poisoned = bool(values.isnan().any())
            work.wait()
            values *= 2
            gathered = torch.empty(2, device="cuda")
            dist.all_gather_into_tensor(gathered, values[:1])
        torch.cuda.synchronize()
        return poisoned, values.unique().tolist(), gathered.tolist(), values.device.type

    assert run(2, of, deliver=deliver).returned == [(deliver == "late", [300.0], [300.0, 300.0], "cuda")] * 2


def test_ddp_on_a_gpu_averages_gradients() -> None:
    def of(rank: int) -> list[float]:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1, bias=False).cuda(), device_ids=[0])
        model(torch.full((1, 3), 2.0 * (rank + 1), device="cuda")).sum().backward()
        return model.module.weight.grad.flatten().tolist()

    assert run(2, of).returned == [[3.0] * 3] * 2
