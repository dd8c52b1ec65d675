"""FSDP2: after a backward that raised, no later step updates anything."""
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
    net = fully_shard(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    loss = net(1.0, 1.0)
    hook = net.a.register_hook(lambda gradient: 1 / 0)  # stands for an error in a backward, as out of memory
    try:
        loss.backward()
    except ZeroDivisionError:
        hook.remove()
        optimizer.zero_grad()
    for _ in range(3):
        net(1.0, 1.0).backward()
        optimizer.step()
        optimizer.zero_grad()
    net.reshard()
    seen[rank] = net.a.to_local().detach()[0]

if __name__ == "__main__":
    seen = torch.zeros(2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [-3.0, -3.0]
    print("a on ranks 0 and 1: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
