"""FSDP1: a backward that raised leaves a shard put aside, which zero_grad() does not reach and a later step applies."""
import contextlib, os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, wrap


class Layer(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x, factor):
        x.register_hook(lambda gradient: 1 / 0 if factor == 100.0 else gradient)  # stands for an error, as out of memory
        return x + factor * self.weight.sum()


class Net(torch.nn.Sequential):
    def forward(self, factor):
        return self[1](self[0](torch.ones((), requires_grad=True), factor), factor)


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    net = FSDP(Net(Layer(), Layer()), device_id=torch.device("cpu"), auto_wrap_policy=wrap.ModuleWrapPolicy({Layer}))
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    for factor in (1.0, 100.0, 1.0, 1.0):
        with contextlib.suppress(ZeroDivisionError):
            net(factor).backward()
            optimizer.step()
        optimizer.zero_grad()
    with FSDP.summon_full_params(net):
        seen[rank] = torch.stack([layer.weight[0] for layer in net.module]).detach()
    dist.destroy_process_group()

if __name__ == "__main__":
    seen = torch.zeros(2, 2).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    expected = [[-3.0, -3.0]] * 2
    print("weights of both layers on ranks 0 and 1: expected", expected, "observed", seen.tolist())
    sys.exit(seen.tolist() != expected)
