"""DDP: join() with gradient accumulation drops what a rank accumulated when its inputs end."""
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
    ddp = DDP(Net())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)
    batches = [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 100.0]][rank]  # rank 1 has one batch less
    with ddp.join():
        for number, a in enumerate(batches):
            if number % 2 == 0:
                with ddp.no_sync():
                    ddp(a, 1.0).backward()
            else:
                ddp(a, 1.0).backward()
                optimizer.step()
                optimizer.zero_grad()
    seen[rank] = ddp.module.a.detach()
    dist.barrier()  # nobody leaves while the other may still be at the reductions
    dist.destroy_process_group()

if __name__ == "__main__":
    seen = torch.zeros(2, 2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [[-53.0, -53.0]] * 2
    print("a on ranks 0 and 1: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
