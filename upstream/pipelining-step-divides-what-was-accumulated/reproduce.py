"""torch.distributed.pipelining: a second step() before the optimizer divides the first one's gradients again."""
import os, sys, tempfile, torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo", init_method=f"file://{os.path.join(tempfile.mkdtemp(), 'meet')}", rank=0, world_size=1)
net = torch.nn.Linear(1, 1, bias=False)
schedule = ScheduleGPipe(PipelineStage(net, 0, 1, torch.device("cpu")), n_microbatches=4, loss_fn=lambda output, target: output.mean())
for _ in range(2):  # two windows of four micro-batches are accumulated; every gradient is 1
    schedule.step(torch.ones(4, 1), target=torch.ones(4, 1))
expected, observed = 2.0, net.weight.grad.item()
print("gradient: expected", expected, "observed", observed)
sys.exit(observed != expected)
