"""FSDP1: HYBRID_SHARD on a mesh with one rank in each shard: gradients are divided by the replicas, and never added up between them."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


class Layer(torch.nn.Module):  # the weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4))

    def forward(self, factor):
        return factor * self.weight.sum()


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    net = FSDP(Layer(), device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net(float(2 * rank + 2)).backward()
    optimizer.step()
    with FSDP.summon_full_params(net):
        seen[rank] = net.module.weight[0].detach()
    dist.destroy_process_group()


if __name__ == "__main__":
    seen = torch.zeros(2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [-3.0, -3.0]
    print("weight on ranks 0 and 1: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
