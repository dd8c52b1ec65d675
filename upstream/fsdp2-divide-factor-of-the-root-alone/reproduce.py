"""FSDP2: set_gradient_divide_factor on the root leaves the other units as they were."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    net = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
    for layer in net:
        torch.nn.init.eye_(layer.weight)
        fully_shard(layer)
    fully_shard(net)
    net.set_force_sum_reduction_for_comms(True)
    net.set_gradient_divide_factor(1.0)  # sum over ranks
    net(torch.ones(1, 2)).sum().backward()
    seen[rank] = net[0].weight.grad.to_local()[0, 0]

if __name__ == "__main__":
    seen = torch.zeros(2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [2.0, 2.0]
    print("gradient of a nested layer, summed over 2 ranks: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
