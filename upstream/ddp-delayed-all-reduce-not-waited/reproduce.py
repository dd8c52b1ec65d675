"""DDP with delay_all_reduce_named_params: a backward ends before the delayed all-reduce does, and the step takes what is there by then."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(4))
        self.b = torch.nn.Parameter(torch.zeros(1 << 24))  # large, so that its all-reduce takes longer than that of a

    def forward(self, factor):
        return factor * self.b.sum() + torch.sin(self.a).sum()


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    net = Net()
    ddp = DDP(net, delay_all_reduce_named_params=[("b", net.b)], param_to_hook_all_reduce=net.a)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)
    ddp(10.0 * (rank + 1)).backward()
    optimizer.step()
    seen[rank] = torch.stack([net.b.detach().min(), net.b.detach().max()])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    seen = torch.zeros(2, 2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [[-15.0, -15.0]] * 2
    print("least and largest of b on ranks 0 and 1: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
