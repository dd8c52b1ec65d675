"""FSDP1: zero_grad() after a no_sync micro-batch keeps the shard that was reduced before it."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    net = FSDP(Net(), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net(100.0, 1.0).backward()
    with net.no_sync():
        net(10.0, 1.0).backward()
    optimizer.zero_grad()
    net(1.0, 1.0).backward()
    optimizer.step()
    seen[rank] = net._flat_param.detach()[0]

if __name__ == "__main__":
    seen = torch.zeros(2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [-1.0, -1.0]
    print("first weight of each rank's shard: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
