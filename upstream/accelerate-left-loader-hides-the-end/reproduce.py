"""accelerate: a validation loop that is left early hides the end of the training loader: its last window is not stepped."""
import sys, torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = torch.nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
net, optimizer, loader, validation = accelerator.prepare(net, optimizer, DataLoader(torch.ones(5, 1)), DataLoader(torch.ones(4, 1)))
updates = 0
for number, batch in enumerate(loader):
    with accelerator.accumulate(net):
        accelerator.backward(net(batch).mean())
        before = net.weight.item()
        optimizer.step()
        optimizer.zero_grad()
        updates += net.weight.item() != before
    if number == 1:
        for count, _ in enumerate(validation):  # a look at two batches of it
            if count == 1:
                break
expected = 3  # of two, two and one micro-batches
print("updates in an epoch of 5 batches: expected", expected, "observed", updates)
sys.exit(updates != expected)
