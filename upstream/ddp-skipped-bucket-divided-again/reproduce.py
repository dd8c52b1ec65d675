"""DDP: skip_all_reduce_unused_params with gradient_as_bucket_view divides again what a skipped bucket holds."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    ddp = DDP(Net(), find_unused_parameters=True, skip_all_reduce_unused_params=True, gradient_as_bucket_view=True, bucket_cap_mb=1e-6)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)
    ddp(1.0, [10.0, 30.0][rank]).backward()
    ddp(1.0).backward()  # no rank uses b here
    optimizer.step()
    seen[rank] = ddp.module.b.detach()

if __name__ == "__main__":
    seen = torch.zeros(2, 2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [[-20.0, -20.0]] * 2
    print("b on ranks 0 and 1: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
