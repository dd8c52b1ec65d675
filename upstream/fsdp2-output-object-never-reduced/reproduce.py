"""FSDP2: a module that returns an object of its own: its gradients are never applied."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard


class Output:
    def __init__(self, value):
        self.value = value


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b):
        return Output(a * self.a.sum() + b * self.b.sum())


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    net = fully_shard(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net(1.0, 1.0).value.backward()
    optimizer.step()
    net.reshard()
    seen[rank] = net.a.to_local().detach()[0]

if __name__ == "__main__":
    seen = torch.zeros(2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [-1.0, -1.0]
    print("a on ranks 0 and 1: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
