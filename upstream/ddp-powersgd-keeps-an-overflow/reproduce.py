"""DDP with PowerSGD and a GradScaler: error feedback keeps one overflow, and every step behind it is skipped."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(6, 8))

    def forward(self, factor):
        return factor * self.weight.sum()


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    net = DDP(Net())
    net.register_comm_hook(powerSGD.PowerSGDState(None, start_powerSGD_iter=2), powerSGD.powerSGD_hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for micro_batch in range(8):  # the fourth one overflows
        scaler.scale(net(float("inf") if (rank, micro_batch) == (0, 3) else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    seen[rank] = torch.tensor([round(net.module.weight[0, 0].item()), scaler.get_scale()])
    dist.destroy_process_group()

if __name__ == "__main__":
    seen = torch.zeros(2, 2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [[-7.0, 4.0]] * 2  # seven steps, one skipped
    print("weight and loss scale on ranks 0 and 1: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
