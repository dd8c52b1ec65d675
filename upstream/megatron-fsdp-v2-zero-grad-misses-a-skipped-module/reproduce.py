"""Megatron-FSDP v2: a module that the last micro-batch skipped stays gathered, and model.zero_grad() leaves its gradient to the next step."""
import contextlib, os, sys, tempfile, torch
import torch.distributed as dist
from megatron_fsdp.experimental import Flat, Placements, fully_shard, fully_shard_optimizer

stream = type("Stream", (), dict.fromkeys(["wait_stream", "wait_event", "record_event"], lambda *_: True) | {"device": "cpu"})()
torch.cuda.Stream = torch.cuda.current_stream = lambda *_: stream  # there is no GPU here: names of CUDA do nothing
torch.cuda.stream = torch.cuda.device = lambda *_: contextlib.nullcontext()
torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *_: None


class Part(torch.nn.PReLU):  # a weight, which begins as it is told
    def forward(self):
        return self.weight.sum()


class Net(torch.nn.ModuleList):
    def forward(self, count):  # as many of its parts as it is told
        return sum(part() for part in list(self)[:count])


dist.init_process_group("gloo", init_method=f"file://{os.path.join(tempfile.mkdtemp(), 'meet')}", rank=0, world_size=1)
mesh, flat = dist.device_mesh.init_device_mesh("cpu", (1,)), [Flat()]
net = Net([Part(2, 0.0), Part(2, 0.0)])
for module in [*net, net]:
    fully_shard(module, mesh, Placements([0], flat, flat, flat))
optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
fully_shard_optimizer(optimizer)
for window in range(2):
    for count in (2, 1):  # the second micro-batch skips the second part
        net(count).backward()
    optimizer.step()
    net.zero_grad()
seen = optimizer.param_groups[0]["params"][1].to_local().tolist()

expected = [-2.0, -2.0]
print("weights of the second part after two steps: expected", expected, "observed", seen)
dist.destroy_process_group()
sys.exit(seen != expected)
