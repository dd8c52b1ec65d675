"""Megatron-FSDP v2: a module that lacks one gradient is not reduced: the step misses the others, and the next window has them."""
import contextlib, os, sys, tempfile, torch
import torch.distributed as dist
from megatron_fsdp.experimental import Flat, Placements, fully_shard, fully_shard_optimizer

stream = type("Stream", (), dict.fromkeys(["wait_stream", "wait_event", "record_event"], lambda *_: True) | {"device": "cpu"})()
torch.cuda.Stream = torch.cuda.current_stream = lambda *_: stream  # there is no GPU here: names of CUDA do nothing
torch.cuda.stream = torch.cuda.device = lambda *_: contextlib.nullcontext()
torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *_: None


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


dist.init_process_group("gloo", init_method=f"file://{os.path.join(tempfile.mkdtemp(), 'meet')}", rank=0, world_size=1)
mesh, flat = dist.device_mesh.init_device_mesh("cpu", (1,)), [Flat()]
net = Net()
for module in [net]:
    fully_shard(module, mesh, Placements([0], flat, flat, flat))
optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
fully_shard_optimizer(optimizer)
seen = []
for given in [(1.0, 1.0), (10.0,), (1.0, 1.0)]:  # the second window uses a alone
    net(*given).backward()
    optimizer.step()
    optimizer.zero_grad()
    seen.append(optimizer.param_groups[0]["params"][0].to_local()[0].item())

expected = [-1.0, -11.0, -12.0]
print("a after each of three steps: expected", expected, "observed", seen)
dist.destroy_process_group()
sys.exit(seen != expected)
