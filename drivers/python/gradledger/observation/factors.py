"""What a loop and its framework multiply a loss by, read where autograd begins: from the scalars between the criterion and what `backward` was called on."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Iterator

import torch

# Nodes of autograd that pass a number on, times another: behind the last of them stands the criterion, or a sum of several.
PASSING = ("Mul", "Div", "Neg", "ToCopy", "Clone", "Alias", "View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Expand", "Select")
ADDING = ("Add", "Sub")
NODES_MAX = 256  # of one backward, before it is given up
TERMS_MAX = 1 << 20  # of a fraction


@dataclass(frozen=True)
class Factor:
    """Of one micro-batch. `value` is what its mean loss is multiplied by, without a loss scale; `how` says where it was read."""
    rank: int
    window: int
    micro_batch: int
    value: Fraction
    read: bool
    how: str
    tokens: int | None = None  # that the criterion counts


@dataclass
class Term:
    """A criterion, and what autograd brought it."""
    name: str
    tokens: int | None
    summed: bool
    roundings: int  # at most, of its factor
    dtype: torch.dtype
    arrived: float | None = None


@dataclass
class Root:
    """One call of backward."""
    terms: list[Term] = field(default_factory=list)
    outputs: set[Fraction] = field(default_factory=set)  # factors that a framework's hooks on outputs brought in
    loss_scale: float = 1.0  # that steps divide by
    scaled: bool = False  # it was seen in the loss
    why_not: str = ""  # nothing could be read

    def term(self) -> Term | None:
        """The one that counts most, of those that autograd came to."""
        arrived = [term for term in self.terms if term.arrived]
        return max(arrived, key=lambda term: abs(term.arrived or 0), default=None)

    def factor(self) -> tuple[Fraction, bool, str]:
        """Of the loss as the criterion has it."""
        term = self.term()
        if term is None or term.arrived is None:
            return Fraction(1), False, self.why_not or "no criterion was found behind the loss"
        scale = self.loss_scale if self.scaled else 1.0
        found = term.arrived / scale
        how = f"read at {term.name}"
        others = [other for other in self.terms if other is not term and other.arrived]
        if others:
            how += f", one of {len(others) + 1} terms, the others with {', '.join(f'{other.arrived / scale:.6g}' for other in others if other.arrived)}"
        if len(self.outputs) > 1:
            return Fraction(1), False, "a framework multiplies its outputs by different factors"
        if self.outputs:
            how += f", times {next(iter(self.outputs))} that a hook on the framework's outputs brings in"
        if self.loss_scale != 1:
            how += f", without the loss scale of {self.loss_scale:g}" if self.scaled else f"; the loss scale of {self.loss_scale:g} that steps divide by is not in it"
        if not math.isfinite(found) or found == 0:
            return Fraction(1), False, f"the loss is multiplied by {found}"
        out = simplest(found, term.roundings, term.dtype)
        for own in self.outputs:
            out *= own
        if term.summed and term.tokens:
            out, how = out * term.tokens, how + f", whose sum of {term.tokens} tokens counts as that many means"
        return out, True, how

    @property
    def tokens(self) -> int | None:
        term = self.term()
        return term.tokens if term else None


def read_root(root: Any, grad_tensors: Any, out: Root) -> Iterator[Any]:
    """Puts hooks on the criteria behind what backward was called on. They write into `out`; the handles are the caller's to remove."""
    tensors = [root] if isinstance(root, torch.Tensor) else list(root or ())
    if len(tensors) != 1 or not isinstance(tensors[0], torch.Tensor) or tensors[0].numel() != 1 or tensors[0].grad_fn is None:
        out.why_not = "backward was called on something else than one number"
        return
    waiting, count = [(tensors[0].grad_fn, 1)], 0
    while waiting:
        node, roundings = waiting.pop()
        count += 1
        if count > NODES_MAX:
            out.why_not = f"more than {NODES_MAX} nodes lie between the loss and its criteria"
            out.terms.clear()
            return
        name = type(node).__name__.removesuffix("0").removesuffix("Backward")
        behind = [next_node for next_node, _ in node.next_functions if next_node is not None]
        if name in PASSING and len(behind) == 1:
            out.scaled = out.scaled or (name == "Mul" and out.loss_scale in saved_numbers(node))
            waiting.append((behind[0], roundings + 1))
        elif name in ADDING and behind:
            waiting.extend((each, roundings) for each in behind)
        else:
            summed, tokens = counted(node)
            term = Term(type(node).__name__, tokens, summed, roundings, tensors[0].dtype)
            out.terms.append(term)
            yield node.register_prehook(lambda gradients, term=term: arrive(term, gradients))


def saved_numbers(node: Any) -> list[float]:
    """What a product was made with."""
    saved = [getattr(node, name, None) for name in ("_saved_other", "_saved_self")]
    return [float(each) for each in saved if isinstance(each, (int, float)) or (isinstance(each, torch.Tensor) and each.numel() == 1 and not each.requires_grad)]


def arrive(term: Term, gradients: tuple[Any, ...]) -> None:
    given = [gradient for gradient in gradients if gradient is not None]
    if len(given) == 1 and given[0].numel() == 1:
        term.arrived = float(given[0].detach())
        term.dtype = given[0].dtype


def counted(node: Any) -> tuple[bool, int | None]:
    """Whether a criterion adds up, and over how many tokens: those that cross-entropy does not ignore, as it counted them itself."""
    total, reduction = getattr(node, "_saved_total_weight", None), getattr(node, "_saved_reduction", None)
    if not isinstance(total, torch.Tensor) or total.numel() != 1 or getattr(node, "_saved_weight", None) is not None:
        return False, None
    tokens = float(total)
    return reduction == 2, int(tokens) if tokens.is_integer() and tokens > 0 else None


def simplest(value: float, roundings: int, dtype: torch.dtype) -> Fraction:
    """The simplest fraction that so many roundings in `dtype` may have made `value` of. Of one that is none, the number itself."""
    off = abs(Fraction(value)) * Fraction(torch.finfo(dtype).eps) / 2 * max(roundings, 1)
    low, high = Fraction(value) - off, Fraction(value) + off
    if low <= 0 <= high:
        return Fraction(value)
    out = -between(-high, -low) if high < 0 else between(low, high)
    return out if out.denominator <= TERMS_MAX and abs(out.numerator) <= TERMS_MAX else Fraction(value)


def between(low: Fraction, high: Fraction) -> Fraction:
    """The fraction with the smallest denominator of an interval of positive numbers, by its continued fraction."""
    whole = -(-low.numerator // low.denominator)
    if whole <= high:
        return Fraction(whole)
    below = low.numerator // low.denominator
    return below + 1 / between(1 / (high - below), 1 / (low - below))
