"""A gradient as the stretches in which it repeats itself bit for bit: what is judged of one period holds for all of them."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator

import torch

STRETCHES_MAX = 64  # of a piece
AS_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Stretch:
    """Elements [begin, end) of a parameter. Each has the bits of the one a period before it, as far as that lies in the stretch."""
    begin: int
    end: int
    first: torch.Tensor  # its first period, or all of it where it is shorter


@dataclass(frozen=True)
class Piece:
    """What a rank holds of a parameter's gradient."""
    parameter: int
    begin: int
    end: int
    dtype: torch.dtype
    period: int
    stretches: tuple[Stretch, ...]
    left_out: int = 0  # elements behind too many stretches

    def at(self, elements: list[int]) -> torch.Tensor:
        """Values of elements, ascending, all of which lie in a stretch."""
        out, number = [], 0
        for element in elements:
            while element >= self.stretches[number].end:
                number += 1
            stretch = self.stretches[number]
            out.append(stretch.first[(element - stretch.begin) % self.period if stretch.first.numel() == self.period else element - stretch.begin])
        return torch.stack(out) if out else torch.empty(0, dtype=self.dtype)

    @property
    def told_up_to(self) -> int:
        return self.stretches[-1].end if self.stretches else self.begin


def piece_of(parameter: int, begin: int, gradient: torch.Tensor, period: int) -> Piece:
    """`gradient` is flat."""
    end = begin + gradient.numel()
    bits = gradient.view(AS_INTEGERS[gradient.element_size()])
    breaks = ((bits[period:] != bits[:-period]).nonzero().flatten() + period).tolist() if gradient.numel() > period else []
    stretches, at, number = [], 0, 0
    while at < gradient.numel() and len(stretches) < STRETCHES_MAX:
        while number < len(breaks) and breaks[number] < at + period:
            number += 1
        stop = breaks[number] if number < len(breaks) else gradient.numel()
        stretches.append(Stretch(begin + at, begin + stop, gradient[at:min(at + period, stop)].to("cpu", copy=True)))
        at = stop
    return Piece(parameter, begin, end, gradient.dtype, period, tuple(stretches), gradient.numel() - at)


class Kept:
    """Elements of one parameter that are judged, of all ranks: those of each stretch's first period, but for those on which no contribution lies."""

    def __init__(self, pieces: list[Piece], dark: set[int]) -> None:
        """`dark` are places in the period without a contribution; of these one is kept in each stretch."""
        elements: set[int] = set()
        for piece in pieces:
            for stretch in piece.stretches:
                one_of_dark = True
                for element in range(stretch.begin, stretch.begin + stretch.first.numel()):
                    if element % piece.period not in dark or one_of_dark:
                        elements.add(element)
                        one_of_dark = one_of_dark and element % piece.period not in dark
        self.elements = sorted(elements)
        self.number = {element: i for i, element in enumerate(self.elements)}
        self.pieces = pieces

    def __len__(self) -> int:
        return len(self.elements)

    def in_piece(self, piece: Piece) -> list[int]:
        return [element for element in self.elements if piece.begin <= element < piece.told_up_to]

    def stand_for(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """The elements of the whole parameter that the kept ones numbered `begin` to `end` speak for."""
        touched = sorted({(stretch.begin, stretch.end) for piece in self.pieces for stretch in piece.stretches
                          if any(stretch.begin <= element < stretch.end for element in self.elements[begin:end])})
        joined: list[tuple[int, int]] = []
        for first, last in touched:
            if joined and first <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], last))
            else:
                joined.append((first, last))
        return iter(joined)
