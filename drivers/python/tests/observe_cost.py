"""What an observed window costs beside ordinary ones, of a transformer with about 10 million parameters: seconds of this process and of the command.

usage: observe_cost.py [REPEATS]
"""
from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import gradledger  # noqa: E402

MICRO_BATCHES, BATCH, LENGTH, WORDS, WIDTH = 4, 4, 128, 4000, 288


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.blocks = torch.nn.Sequential(*(torch.nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True) for _ in range(8)))
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.words(tokens)))


def seconds() -> tuple[float, float]:
    """Of processors, children that have ended included, and of the wall."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system, time.monotonic()


def main() -> None:
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())

    def window() -> None:
        for _ in range(MICRO_BATCHES):
            tokens = torch.randint(0, WORDS, (BATCH, LENGTH))
            (torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()) / MICRO_BATCHES).backward()
        optimizer.step()
        optimizer.zero_grad()
    window()
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {torch.get_num_threads()} threads")
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        begin = seconds()
        window()
        ordinary = seconds()
        with gradledger.observe(model, optimizer) as ledger:
            window()
        end = seconds()
        plain, looked = ([b - a for a, b in zip(one, other)] for one, other in ((begin, ordinary), (ordinary, end)))
        print(f"{ledger.verdict}: ordinary window {plain[0]:.2f} s of processors, {plain[1]:.2f} s; observed {looked[0]:.2f} s, {looked[1]:.2f} s; "
              f"{looked[0] / plain[0]:.2f} and {looked[1] / plain[1]:.2f} times")


if __name__ == "__main__":
    main()
