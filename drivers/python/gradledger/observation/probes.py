"""Numbers that take the place of gradients: each contribution has its own on every element, and they repeat along a parameter."""
from __future__ import annotations

import math
from dataclasses import dataclass

import torch

LEAST, MOST = 17, 31  # odd, so that no quotient of two is a power of two
DENSE = 2  # elements of a period that every contribution is on
SHORT_PERIOD = 8  # of parameters of which a rank has next to nothing


@dataclass(frozen=True)
class Probes:
    """Contributions are numbered micro-batch by micro-batch, rank by rank: nobody has to know before how many there will be.

    In a period each of them has one element to itself, which tells its weight, and shares the last ones with all others. In small parameters some have one together.
    """

    world_size: int
    micro_batches: int  # that can be told apart
    unit: float  # what a probe is multiplied by: a power of two, so small that nothing clips

    @property
    def contributions(self) -> int:
        return self.world_size * self.micro_batches

    def alone(self, numel: int) -> int:
        """Elements in a period that one contribution has to itself, of a parameter with so many elements on all ranks; as many as fit into a rank's share of it."""
        return max(0, min(self.contributions, numel // self.world_size - DENSE))

    def period(self, numel: int) -> int:
        alone = self.alone(numel)
        return alone + DENSE if alone else SHORT_PERIOD

    def number(self, rank: int, micro_batch: int) -> int:
        return micro_batch * self.world_size + rank

    def values(self, number: int, parameter: int, numel: int) -> list[int]:
        """One period."""
        alone = self.alone(numel)
        if not alone:
            return [odd(5 * number + 3 * slot + parameter + number // SHORT_PERIOD) for slot in range(SHORT_PERIOD)]
        return [odd(5 * number + 3 * slot) if slot >= alone else odd(number + number // alone) if slot == number % alone else 0 for slot in range(alone + DENSE)]


def odd(number: int) -> int:
    return LEAST + 2 * (number % ((MOST - LEAST) // 2 + 1))


def unit_for(numel: int, micro_batches: int, dtype: torch.dtype, loss_scale: float) -> float:
    """A power of two. All probes of a window together have a norm below 2**-16, and fp16 holds them behind its loss scale."""
    if dtype == torch.float16:
        return 2.0 ** -(6 + round(math.log2(loss_scale)))
    return 2.0 ** -(16 + math.ceil(math.log2(MOST * micro_batches * math.sqrt(max(numel, 1)))))


def repeated(values: torch.Tensor, offset: int, numel: int) -> torch.Tensor:
    """Elements [offset, offset + numel) of what repeats `values` for ever."""
    period = values.numel()
    first = offset % period
    return values.repeat((first + numel + period - 1) // period)[first:first + numel]
