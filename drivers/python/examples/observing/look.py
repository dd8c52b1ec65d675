"""Looks at one window of that loop, and at one of a loop with a mistake."""
import gradledger
from train import make, train_one_window

model, optimizer = make()
for _ in range(3):
    train_one_window(model, optimizer)

with gradledger.observe(model, optimizer) as ledger:
    train_one_window(model, optimizer)
print(ledger)

with gradledger.observe(model, optimizer) as ledger:
    model.register_forward_pre_hook(lambda *_: optimizer.zero_grad())  # somebody moved the zero_grad to where each micro-batch begins
    train_one_window(model, optimizer)
for finding in ledger.findings:
    print(finding.finding_class, [(each.rank, each.micro_batch, each.expected, each.observed) for each in finding.contributions])

train_one_window(model, optimizer)  # the hook is gone again, too
