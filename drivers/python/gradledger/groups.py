"""Process groups by the names that a scenario has for them."""
from __future__ import annotations

from typing import Mapping, Sequence

import torch.distributed as dist

from .driver import Refused

Sets = Sequence[Sequence[int]]
# A group outlives the engine that it was made for: torch has no way to make one again under its name, and connecting takes time.
_made: dict[tuple[int, ...], dist.ProcessGroup] = {}


class Groups:
    """Made by all ranks at the same place, since making one is a collective of the world."""

    def __init__(self, named: Mapping[str, Sets], rank: int, world_size: int) -> None:
        self.rank, self.world = rank, tuple(range(world_size))
        self.members: dict[str, tuple[int, ...]] = {"world": self.world, "dp": self.world, "rank": (rank,)}
        for name in sorted(named):
            for ranks in named[name]:
                members = tuple(sorted(ranks))
                if rank in members:
                    self.members[name] = members
                if 1 < len(members) < world_size and members not in _made:
                    _made[members] = dist.new_group(list(members))

    def size(self, name: str) -> int:
        return len(self.of(name))

    def process_group(self, name: str) -> dist.ProcessGroup | None:
        """None is the world. A group of one rank has none: who asks has nothing to communicate."""
        return _made.get(self.of(name))

    def of(self, name: str) -> tuple[int, ...]:
        if name not in self.members:
            raise Refused(f"rank {self.rank} is in no group named {name!r}; the message has {', '.join(sorted(self.members))}")
        return self.members[name]
