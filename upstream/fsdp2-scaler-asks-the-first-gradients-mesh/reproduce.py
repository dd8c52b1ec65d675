"""FSDP2 with tensor parallelism: a GradScaler skips the step on some tensor-parallel ranks and not on the others, where the first parameter is a copy."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard


class Net(torch.nn.Module):
    def __init__(self, tp):
        super().__init__()
        place = lambda placement: torch.nn.Parameter(DTensor.from_local(torch.zeros(2), tp, [placement]))
        self.copy, self.cut = place(Replicate()), place(Shard(0))

    def forward(self, by):  # a gradient is the number that its weight is multiplied by
        return self.copy.to_local().sum() + self.cut.to_local().sum() * by


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    net = fully_shard(Net(mesh["tp"]), mesh=mesh["dp"])
    optimizer, scaler = torch.optim.SGD(net.parameters(), lr=1.0), torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(net(float("inf") if mesh["tp"].get_local_rank() == 1 else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()
    seen[rank] = net.copy.to_local().detach()[0]

if __name__ == "__main__":
    seen = torch.zeros(4).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=4)
    expected = [0.0] * 4
    print("a weight that all have alike, after an overflow on tensor-parallel rank 1: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
