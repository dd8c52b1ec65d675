"""accelerate divides the short last window of an epoch by all of gradient_accumulation_steps."""
import sys, torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = torch.nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(torch.ones(5, 1)))
observed = []
for batch in loader:  # every gradient is 1
    before = net.weight.item()
    with accelerator.accumulate(net):
        accelerator.backward(net(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
    observed.append(round(before - net.weight.item(), 3))
expected = [0.0, 1.0, 0.0, 1.0, 1.0]  # the last window has one micro-batch
print("updates: expected", expected, "observed", observed)
sys.exit(observed != expected)
