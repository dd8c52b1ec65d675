"""Drivers that misbehave, each in one way."""
from __future__ import annotations

import os
import sys
import time

import torch

from gradledger.driver import Backward, Buffer, Configuration, Driver, Refused


class Odd(Driver):
    name = "odd"
    frameworks = ("odd",)
    needs_group = False

    def configure(self, configuration: Configuration) -> list[str]:
        self.numel = configuration.parameters[0].numel
        self.say("configured")
        return ["odd"]

    def say(self, text: str) -> None:
        print(f"rank {self.rank} {text}", flush=True)

    def backward(self, event: Backward) -> None:
        if event.micro_batch == 1:
            raise KeyError("of the framework")
        if event.micro_batch == 2:
            raise Refused("not this")

    def step(self, past_scaler: bool = False) -> None:
        self.say("sleeps")
        time.sleep(3600)

    def save(self) -> None:
        os.abort()

    def restore(self) -> None:
        sys.exit(3)

    def buffers(self, after: str) -> list[Buffer]:
        if after == "finalize":
            return [Buffer("short", "local", torch.zeros(2), [(0, 0, 3)])]
        return [Buffer("g", "local", torch.full((self.numel,), 1.5), [(0, 0, self.numel)], scale=2.0)]

    def finalize(self) -> None:
        pass


def broken(rank: int, world_size: int) -> Driver:
    raise ImportError("the framework is not here")


def nothing(rank: int, world_size: int) -> None:
    return None
