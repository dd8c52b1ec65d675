"""FSDP1: torch.amp.GradScaler skips a step on the ranks alone whose shard has an infinity."""
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
    optimizer, scaler = torch.optim.SGD(net.parameters(), lr=1.0), torch.amp.GradScaler("cpu", init_scale=1.0)
    scaler.scale(net(1.0, float("inf"))).backward()  # b is in the shard of rank 1
    scaler.step(optimizer)
    scaler.update()
    seen[rank] = torch.tensor([net._flat_param.detach()[0], scaler.get_scale()])

if __name__ == "__main__":
    seen = torch.zeros(2, 2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [[0.0, 0.5], [0.0, 0.5]]
    print("first weight of the shard, scale: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
