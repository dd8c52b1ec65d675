"""What came of an observed window: the command's verdict, in the elements of the model, and what it rests on."""
from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Callable

from ..findings import Contribution, Elements, Finding, Report
from .factors import Factor

# What probes in the place of gradients cannot show, whatever the loop.
NEVER_JUDGED = ("the values of losses and of the backward, in whose place probes were put", "clipping, for which probes are too small",
                "the arithmetic of the optimizer, and the weights behind it", "the order of streams, collectives and memory")


@dataclass(frozen=True)
class Weight:
    """How much one micro-batch counts in what every rank's optimizer is given, where nothing is wrong: see `findings` for where it is."""
    window: int
    rank: int
    micro_batch: int
    due: float
    factor: Factor


@dataclass
class Ledger:
    """Filled when the `with` block ends. `verdict` is "clean", "findings", or "nothing judged"."""
    verdict: str = "nothing judged"
    contract: str = ""  # what the loop is taken to mean
    weights: tuple[Weight, ...] = ()
    findings: tuple[Finding, ...] = ()
    not_judged: tuple[str, ...] = NEVER_JUDGED
    notes: tuple[str, ...] = ()
    framework: str = ""
    windows: int = 0
    report: Report | None = field(default=None, repr=False)  # the command's own, whose elements are those that were kept of the model's

    @property
    def clean(self) -> bool:
        """Something was judged, and nothing found."""
        return self.verdict == "clean"

    @property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(weight.factor for weight in self.weights)

    def __str__(self) -> str:
        lines = [f"observed {self.windows} window{'s' if self.windows != 1 else ''} of a training loop ({self.framework}): {self.verdict}"]
        lines += [f"  {finding}" for finding in self.findings]
        lines.append(f"  taken to mean: {self.contract}")
        for words, weights in grouped(self.weights, in_words):
            lines.append(f"  {', '.join(names_of(weights))}: {words}")
        lines += [f"  note: {note}" for note in self.notes]
        lines.append(f"  not judged: {'; '.join(self.not_judged)}")
        lines.append("  cost: the data of that window; what was trained is as it was before")
        return "\n".join(lines)


def in_words(weight: Weight) -> str:
    how = weight.factor.how if weight.factor.read else f"not read: {weight.factor.how}"
    return f"weight {weight.due:.6g}, the loss times {weight.factor.value} ({how})"


def grouped(weights: Sequence[Weight], words: Callable[[Weight], str]) -> list[tuple[str, list[Weight]]]:
    out: dict[str, list[Weight]] = {}
    for weight in weights:
        out.setdefault(words(weight), []).append(weight)
    return list(out.items())


def names_of(weights: Sequence[Weight]) -> list[str]:
    """"ranks 0-1 micro-batches 0-3", for each window."""
    of_rank: dict[tuple[int, int], list[int]] = {}
    for weight in weights:
        of_rank.setdefault((weight.window, weight.rank), []).append(weight.micro_batch)
    alike: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for (window, rank), micro_batches in of_rank.items():
        alike.setdefault((window, tuple(micro_batches)), []).append(rank)
    several = len({window for window, _ in alike}) > 1
    return [f"{f'window {window} ' if several else ''}{ranges('rank', ranks)} {ranges('micro-batch', list(micro_batches))}" for (window, micro_batches), ranks in alike.items()]


def ranges(what: str, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{what} {numbers[0]}"
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{plural} {numbers[0]}-{numbers[-1]}"
    return f"{plural} {', '.join(map(str, numbers))}"


class OfTheModel:
    """Findings of the command, which knows the kept elements alone, in those of the model."""

    def __init__(self, names: Sequence[str], stand_for: Callable[[str, int, int], list[tuple[int, int]]], factors: dict[tuple[int, int, int], float]) -> None:
        self.stand_for, self.factors = stand_for, factors
        one = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        self.stretch = re.compile(rf"(?<![\w.])({one})\[(\d+):(\d+)\]")
        self.element = re.compile(rf"element (\d+) of ({one})(?![\w.])")

    def finding(self, finding: Finding) -> Finding:
        elements = tuple(Elements(each.parameter, begin, end) for each in finding.elements for begin, end in self.stand_for(each.parameter, each.begin, each.end))
        return replace(finding, elements=elements, sentence=self.sentence(finding.sentence), contributions=tuple(map(self.contribution, finding.contributions)))

    def contribution(self, contribution: Contribution) -> Contribution:
        """With what the loss is multiplied by in it, where the command was given what autograd deposited."""
        factor = self.factors.get((contribution.step, contribution.rank, contribution.micro_batch), 1.0)
        return replace(contribution, expected=contribution.expected * factor, observed=contribution.observed * factor)

    def sentence(self, text: str) -> str:
        def stretch(match: re.Match[str]) -> str:
            return ", ".join(f"{match[1]}[{begin}:{end}]" for begin, end in self.stand_for(match[1], int(match[2]), int(match[3])))

        def element(match: re.Match[str]) -> str:
            places = self.stand_for(match[2], int(match[1]), int(match[1]) + 1)
            return f"an element of {match[2]}[{places[0][0]}:{places[-1][1]}]" if places else match[0]
        return self.element.sub(element, self.stretch.sub(stretch, text))


def not_judged(raw: dict[str, Any]) -> tuple[str, ...]:
    """Of the command's report, beside what holds for every observed window."""
    counts = raw["coverage"]["not_judged"]
    out = [f"{number} gradients: {reason}" for reason, number in counts.items() if number]
    if inconclusive := raw.get("inconclusive_rows"):
        out.append(f"the weights of {inconclusive} rows, which values leave open")
    return tuple(out)
