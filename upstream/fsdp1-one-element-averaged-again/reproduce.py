"""FSDP1: a flat parameter of one element is as large as its shard, and its average is averaged again by the next backward."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Scale(torch.nn.Module):  # the weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, factor):
        return factor * self.weight.sum()


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    net = FSDP(Scale(), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net([8.0, 16.0][rank]).backward()
    net(1.0).backward()
    optimizer.step()
    with FSDP.summon_full_params(net):
        seen[rank] = net.weight.detach()
    dist.destroy_process_group()

if __name__ == "__main__":
    seen = torch.zeros(2, 1).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [[-13.0]] * 2
    print("weight on ranks 0 and 1: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
