"""FSDP2: on one rank, set_gradient_divide_factor with set_force_sum_reduction_for_comms divides twice."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=1)
    net = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.eye_(net.weight)
    fully_shard(net)
    net.set_force_sum_reduction_for_comms(True)
    net.set_gradient_divide_factor(4.0)
    net(torch.ones(1, 2)).sum().backward()
    seen[rank] = net.weight.grad.to_local()[0, 0]

if __name__ == "__main__":
    seen = torch.zeros(1).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=1)
    expected = [0.25]
    print("gradient of 1, divided by a factor of 4: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
