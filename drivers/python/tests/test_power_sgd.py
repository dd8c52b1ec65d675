"""The real powerSGD_hook on two ranks, past the iteration at which it starts. Where the ranks' average is one product of a column and a row, what the hook leaves is that average
up to its roundings, whatever each rank has beside it. The simulator has the average there (docs/ddp.md), so the hook is held to it: element by element, by a bound that follows
from the operations of the hook."""
from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from ranks_of_a_test import run
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

RANKS, START, BACKWARDS = 2, 2, 6
UNIT = torch.finfo(torch.float32).eps / 2
MATRICES = {"tall": (12, 5), "square": (6, 6), "small": (2, 2)}  # the last saves nothing and is averaged as it is


class Matrix(NamedTuple):
    """Of one rank and one compression."""
    column: torch.Tensor  # the right factor, orthogonal
    product: torch.Tensor  # the left one, summed over ranks
    left: torch.Tensor  # and orthogonal


class Window(NamedTuple):
    order: list[str]  # of the parameters in the bucket
    held: torch.Tensor  # what the compression before left out, of the whole bucket
    left_out: torch.Tensor | None
    matrices: dict[str, Matrix]
    given: dict[str, torch.Tensor]
    got: dict[str, torch.Tensor]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in MATRICES.items()})

    def forward(self, gradients):
        return sum((self.weights[name] * gradient).sum() for name, gradient in gradients.items())


def whole_numbers(*shape: int, seed: int) -> torch.Tensor:
    """Small, so that sums and averages of them are exact in fp32; none is 0."""
    drawn = torch.randint(1, 8, shape, generator=torch.Generator().manual_seed(seed))
    return (2 * drawn - 9).float()


def factors(backward: int, name: str, directions: int) -> tuple[torch.Tensor, torch.Tensor]:
    n, m = MATRICES[name]
    seed = 100 * backward + 10 * list(MATRICES).index(name)
    return whole_numbers(n, directions, seed=seed), whole_numbers(directions, m, seed=seed + 1)


def gradient(rank: int, backward: int, name: str, directions: int) -> torch.Tensor:
    column, row = factors(backward, name, directions)
    apart = whole_numbers(*MATRICES[name], seed=100 * backward + 10 * list(MATRICES).index(name) + 2)
    return column @ row + (apart if rank == 0 else -apart)


def compressed(name: str, of_rank: int) -> bool:
    """As sim/frameworks/torch/ddp/power_sgd.cpp has it, at a rate of 1."""
    n, m = MATRICES[name]
    return (n + m) * min(n, m, of_rank) < n * m


def recorded(directions: int, of_rank: int, **options: bool):
    def on_rank(rank: int) -> list[Window]:
        model = Model()
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=of_rank, start_powerSGD_iter=START, min_compression_rate=1, **options)
        names, seen, orders = {weight: name for name, weight in model.weights.items()}, [], []
        orthogonalize = powerSGD_hook._orthogonalize

        def noted(matrices: torch.Tensor, epsilon: float = 0.0) -> None:
            before = matrices[0].double()
            orthogonalize(matrices, epsilon)
            seen.append((before, matrices[0].double()))

        def hook(state, bucket):
            orders.append([names[weight] for weight in bucket.parameters()])
            return powerSGD_hook.powerSGD_hook(state, bucket)
        powerSGD_hook._orthogonalize = noted
        wrapped.register_comm_hook(state, hook)
        out = []
        for backward in range(BACKWARDS):
            given = {name: gradient(rank, backward, name, directions) for name in MATRICES}
            held = state.error_dict.get(0, torch.zeros(sum(each.numel() for each in given.values()))).clone()
            seen.clear()
            wrapped(given).backward()
            order = orders[-1]
            taken = [name for name in order if compressed(name, of_rank)] if seen else []
            assert len(seen) == 2 * len(taken)
            matrices = {name: Matrix(seen[i][1], *seen[len(taken) + i]) for i, name in enumerate(taken)}
            out.append(Window(order, held, state.error_dict.get(0), matrices, given, {name: weight.grad.clone() for name, weight in model.weights.items()}))
            model.zero_grad()
        return out
    return on_rank


def part_of(window: Window, flat: torch.Tensor, name: str) -> torch.Tensor:
    at = 0
    for each in window.order:
        if each == name:
            return flat[at:at + window.given[name].numel()].view(MATRICES[name])
        at += window.given[each].numel()
    raise KeyError(name)


def entered(window: Window, name: str) -> torch.Tensor:
    """What the hook compresses, in fp32."""
    return window.given[name] + part_of(window, window.held, name)


def roundings(n: int) -> float:
    """Of a sum of n products in any order, relative to the sum of their sizes."""
    return n * UNIT / (1 - n * UNIT)


def bound_of(windows: list[Window], name: str, row: torch.Tensor, remembered: torch.Tensor) -> torch.Tensor:
    """How far what the hook leaves may be from the average of what entered. remembered: how far that average may be from a product of a column and `row`.

    With A the product, E what is remembered, q the right factor, d the roundings of P = R (A + E) q + d, and L the orthogonal left factor: A = (A q) row / (row q), so that
    (I - L L') A = (I - L L') (P - d - R E q) row / (R row q). The rest are the roundings of the two products behind it."""
    n, m = MATRICES[name]
    matrix = windows[0].matrices[name]
    sizes = sum(entered(window, name).double().abs() for window in windows)
    left, beside = matrix.left, torch.eye(n, dtype=torch.float64) - matrix.left @ matrix.left.T
    of_products = roundings(m + RANKS) * (sizes @ matrix.column.abs()) + RANKS * remembered @ matrix.column.abs()
    column = (beside @ matrix.product).abs() + beside.abs() @ of_products
    missed = column @ row.abs() / (RANKS * (row @ matrix.column).abs()) + beside.abs() @ remembered
    right = sizes.T @ left.abs() / RANKS
    return missed + left.abs() @ right.T * (roundings(n + RANKS + 1) + roundings(left.shape[1] + 1))


def test_power_sgd_leaves_the_average_where_it_is_one_product_however_ranks_differ():
    for options in ({}, {"use_error_feedback": False, "warm_start": False}):
        windows_of = list(zip(*run(RANKS, recorded(1, 1, **options), backend="gloo").returned))
        remembered = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in MATRICES.items()}
        for backward, windows in enumerate(windows_of):
            for name in MATRICES:
                column, row = (factor.double() for factor in factors(backward, name, 1))
                assert torch.equal(windows[0].got[name], windows[1].got[name])
                got = windows[0].got[name].double()
                if name not in windows[0].matrices:
                    assert torch.equal(got, column @ row)
                    continue
                assert backward >= START
                inputs = [entered(window, name).double() for window in windows]
                if options.get("use_error_feedback", True):  # the sum of what is given and what is held rounds
                    remembered[name] += UNIT * sum(each.abs() for each in inputs) / RANKS
                bound = bound_of(windows, name, row, remembered[name])
                due = bound + remembered[name]
                assert torch.all((got - column @ row).abs() <= due), (options, backward, name)
                assert torch.all(due < (column @ row).abs() / 4), "the bound tells no share of a rank from another"
                remembered[name] = bound + UNIT * sum((each - got).abs() for each in inputs) / RANKS if options.get("use_error_feedback", True) else 0 * bound


@pytest.mark.parametrize("of_rank", [1, 2])
def test_power_sgd_compresses_the_matrices_that_save_and_remembers_what_it_left_out(of_rank):
    for windows in run(RANKS, recorded(2, of_rank), backend="gloo").returned:
        for backward, window in enumerate(windows):
            assert set(window.matrices) == ({name for name in MATRICES if compressed(name, of_rank)} if backward >= START else set())
            for name, matrix in window.matrices.items():
                n, m = MATRICES[name]
                assert matrix.left.shape == (n, min(n, m, of_rank)) and matrix.column.shape == (m, min(n, m, of_rank))
                assert torch.equal(part_of(window, window.left_out, name), entered(window, name) - window.got[name])
                column, row = factors(backward, name, 2)
                assert torch.linalg.matrix_rank(column @ row) == 2
                assert of_rank == 2 or torch.linalg.matrix_rank(window.got[name]) == 1, "an approximation"
