"""FSDP1: a micro-batch goes through a module without using its weights: what was reduced for them before is not applied."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Layer(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x, factor):
        return x if factor is None else x + factor * self.weight.sum()  # None: skipped, as with stochastic depth


class Net(torch.nn.Sequential):
    def forward(self, first, second):
        return self[1](self[0](torch.ones(()), first), second)


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    net = FSDP(Net(Layer(), Layer()), device_id=torch.device("cpu"), auto_wrap_policy=ModuleWrapPolicy({Layer}))
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net(1.0, 10.0).backward()
    net(1.0, None).backward()
    optimizer.step()
    with FSDP.summon_full_params(net):
        seen[rank] = torch.stack([layer.weight[0] for layer in net.module]).detach()
    dist.destroy_process_group()

if __name__ == "__main__":
    seen = torch.zeros(2, 2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [[-2.0, -10.0]] * 2
    print("weights of both layers on ranks 0 and 1: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
