"""When the result of an asynchronous collective reaches its tensors: a framework must not depend on it before it has waited."""
from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

HOW = ("eager", "late", "seeded")


class Delivery:
    """`eager`: within the call. `late`: when somebody waits; until then the outputs hold poison. `seeded`: one of both, by seed, rank and number.

    A wait is for one collective, as gloo and torch's documentation have it. With NCCL a wait also covers what the same group was asked for before, so code that
    counts on that (stage 3 before 0.19.8: DeepSpeed#8539) is right there and reads poison here.
    """

    def __init__(self, how: str, seed: int, rank: int) -> None:
        if how not in HOW:
            raise ValueError(f"GRADLEDGER_DELIVER is {how!r}; it can be {', '.join(HOW)}")
        self.how, self.seed, self.rank = how, seed, rank

    @staticmethod
    def of_environment(rank: int, environment: Mapping[str, str] = os.environ) -> Delivery:
        return Delivery(environment.get("GRADLEDGER_DELIVER", "eager"), int(environment.get("GRADLEDGER_SEED", "0")), rank)

    def is_late(self, number: int) -> bool:
        if self.how == "seeded":
            return hashlib.blake2b(f"{self.seed} {self.rank} {number}".encode(), digest_size=1).digest()[0] & 1 == 1
        return self.how == "late"
