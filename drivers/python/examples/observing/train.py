"""A training loop as many projects have one: four micro-batches for each update."""
import torch

MICRO_BATCHES = 4


def make():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 10))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train_one_window(model, optimizer):
    for _ in range(MICRO_BATCHES):
        inputs, labels = torch.randn(8, 32), torch.randint(0, 10, (8,))
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        (loss / MICRO_BATCHES).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
