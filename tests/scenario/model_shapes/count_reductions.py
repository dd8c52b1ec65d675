"""Prints what PyTorch reduces in three steps of GPT-2: how often, and how many elements at a time. On two CPU ranks; no weights are loaded.

    pip install torch transformers
    python tests/scenario/model_shapes/count_reductions.py ddp|fsdp2

scenarios/true-size has the same of the simulator.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing
import transformers
from torch.distributed.fsdp import fully_shard

RANKS, STEPS = 2, 3


def with_ddp(model, element_counts):
    def average(_, bucket):
        element_counts.append(bucket.buffer().numel())
        reduced = dist.all_reduce(bucket.buffer().div_(RANKS), async_op=True)
        return reduced.get_future().then(lambda done: done.value()[0])

    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    wrapped.register_comm_hook(None, average)
    return wrapped


def with_fsdp2(model, element_counts):
    reduce_scatter = dist.reduce_scatter_single  # which fully_shard calls as of 2.13

    def counted(**arguments):
        element_counts.append(arguments["input"].numel())
        return reduce_scatter(**arguments)

    dist.reduce_scatter_single = counted
    mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,))
    for layer in model.transformer.h:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(rank, wrapper):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29731")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    element_counts = []
    model = {"ddp": with_ddp, "fsdp2": with_fsdp2}[wrapper](transformers.GPT2LMHeadModel(transformers.GPT2Config()).train(), element_counts)
    for step in range(STEPS):
        element_counts.clear()
        tokens = torch.randint(0, 50257, (1, 8))
        model(input_ids=tokens, labels=tokens).loss.backward()
        model.zero_grad()
        if rank == 0:
            print(f"step {step}: {len(element_counts)} reductions of {sum(element_counts)} elements: {element_counts}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, args=(sys.argv[1],), nprocs=RANKS)
