"""FSDP2: while weights stay gathered, module.zero_grad() keeps the reduced gradients, and the next step applies them again."""
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
    net.set_reshard_after_backward(False)  # saves a gather
    for _ in range(2):
        net(1.0, 1.0).backward()
        optimizer.step()
        net.zero_grad()
    net.reshard()
    seen[rank] = net.a.to_local().detach()[0]

if __name__ == "__main__":
    seen = torch.zeros(2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [-2.0, -2.0]
    print("a on ranks 0 and 1 after two steps: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
