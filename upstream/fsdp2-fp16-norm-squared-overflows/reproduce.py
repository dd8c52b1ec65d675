"""FSDP2 with fp16 weights: clip_grad_norm_ squares the norms of shards in fp16, which is infinite from 256 on: no gradient is left."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    net = torch.nn.Linear(4, 2, bias=False, dtype=torch.float16)
    torch.nn.init.zeros_(net.weight)
    fully_shard(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net(torch.full((1, 4), 128.0, dtype=torch.float16)).sum().backward()  # 8 elements of 128: the norm is 362
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    seen[rank] = net.weight.to_local()[0, 0]
    if rank == 0:
        seen[2] = norm.to_local()

if __name__ == "__main__":
    seen = torch.zeros(3).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [-0.354, -0.354, 362.0]
    observed = [round(x, 3) for x in seen.tolist()]
    print("weight on ranks 0 and 1, and the norm: expected", expected, "observed", observed)
    sys.exit(any(abs(x - y) > abs(x) / 100 for x, y in zip(expected, observed)))
