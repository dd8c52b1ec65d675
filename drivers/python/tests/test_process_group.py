"""Every collective of torch.distributed on the backend, held to what gloo gives, and by hand where gloo does not have it."""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ranks_of_a_test import run

WORLDS = (2, 3)
DELIVERIES = ("eager", "late", "seeded")


def given(rank: int, count: int = 6, kind: torch.dtype = torch.float32) -> torch.Tensor:
    """Small integers that differ by rank and place, so that every type holds sums and products of them."""
    values = torch.tensor([(3 * i + 2 * rank + 1) % 5 + 1 for i in range(count)])
    return (values % 2).to(kind) if kind == torch.bool else values.to(kind)


# Each of these is run on gloo and on this backend, and gives back whatever tensors it has then.

def all_reduce(rank: int, world: int) -> Any:
    out = given(rank)
    dist.all_reduce(out)
    return out


def all_reduce_asynchronous(rank: int, world: int) -> Any:
    out = [given(rank, count) for count in (3, 5)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in out]
    for work in reversed(works):
        work.wait()
    return out


def all_reduce_coalesced(rank: int, world: int) -> Any:
    out = [given(rank, 3), given(rank, 4)]
    dist.all_reduce_coalesced(out)
    return out


def all_reduce_of_a_transposed_tensor(rank: int, world: int) -> Any:
    whole = given(rank, 12).view(3, 4)
    dist.all_reduce(whole.t()) if dist.get_backend() != "gloo" else dist.all_reduce(whole)  # gloo takes none that is not contiguous
    return whole


def all_reduce_of_a_part(rank: int, world: int) -> Any:
    whole = given(rank, 10)
    dist.all_reduce(whole[2:7])
    return whole


def all_reduce_of_nothing(rank: int, world: int) -> Any:
    out = torch.empty(0)
    dist.all_reduce(out)
    return out


def all_reduce_of_a_scalar(rank: int, world: int) -> Any:
    out = torch.tensor(float(rank + 1))
    dist.all_reduce(out)
    return out


def reduce_to_the_last(rank: int, world: int) -> Any:
    out = given(rank)
    dist.reduce(out, world - 1)
    return out if rank == world - 1 else None  # gloo leaves sums of some on the others


def broadcast(rank: int, world: int) -> Any:
    out = given(rank)
    dist.broadcast(out, 1)
    return out


def broadcast_of_a_complex_tensor(rank: int, world: int) -> Any:
    out = torch.complex(given(rank), given(rank + 1))
    dist.broadcast(out, 0)
    return out


def all_gather(rank: int, world: int) -> Any:
    out = [torch.zeros(2, 3) for _ in range(world)]
    dist.all_gather(out, given(rank).view(2, 3))
    return out


def all_gather_of_nothing(rank: int, world: int) -> Any:
    out = [torch.zeros(0) for _ in range(world)]
    dist.all_gather(out, torch.zeros(0))
    return out


def all_gather_coalesced(rank: int, world: int) -> Any:
    out = [[torch.zeros(2), torch.zeros(5)] for _ in range(world)]
    dist.all_gather_coalesced(out, [given(rank, 2), given(rank, 5)])
    return out


def all_gather_into_tensor(rank: int, world: int) -> Any:
    out = torch.zeros(world * 6)
    dist.all_gather_into_tensor(out, given(rank))
    return out


def all_gather_in_place(rank: int, world: int) -> Any:
    out = torch.zeros(world * 6)
    out[6 * rank:6 * rank + 6] = given(rank)
    work = dist.all_gather_into_tensor(out, out[6 * rank:6 * rank + 6], async_op=True)
    own = out[6 * rank:6 * rank + 6].clone()  # others may read it as well
    work.wait()
    return out, own


def gather(rank: int, world: int) -> Any:
    out = [torch.zeros(6) for _ in range(world)] if rank == 1 else None
    dist.gather(given(rank), out, dst=1)
    return out


def scatter(rank: int, world: int) -> Any:
    out = torch.zeros(6)
    dist.scatter(out, [given(to + 5) for to in range(world)] if rank == 1 else None, src=1)
    return out


def reduce_scatter(rank: int, world: int) -> Any:
    out = torch.zeros(4)
    dist.reduce_scatter(out, [given(rank + to, 4) for to in range(world)])
    return out


def reduce_scatter_tensor(rank: int, world: int) -> Any:
    out = torch.zeros(4)
    dist.reduce_scatter_tensor(out, given(rank, 4 * world))
    return out


def all_to_all(rank: int, world: int) -> Any:
    out = [torch.zeros(4) for _ in range(world)]
    dist.all_to_all(out, [given(rank + 3 * to, 4) for to in range(world)])
    return out


def all_to_all_single(rank: int, world: int) -> Any:
    out = torch.zeros(world * 2, 3)
    dist.all_to_all_single(out, given(rank, world * 6).view(world * 2, 3))
    return out


def all_to_all_single_in_unequal_parts(rank: int, world: int) -> Any:
    sent, received = [rank + to for to in range(world)], [from_ + rank for from_ in range(world)]
    out = torch.zeros(sum(received), 3)
    dist.all_to_all_single(out, given(rank, 3 * sum(sent)).view(-1, 3), received, sent)
    return out


def send_and_receive(rank: int, world: int) -> Any:
    out = torch.zeros(6)
    if rank == 0:
        dist.send(given(0), 1)
    elif rank == 1:
        dist.recv(out, 0)
    return out


def sends_and_receives_around(rank: int, world: int) -> Any:
    out = torch.zeros(6)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, given(rank), (rank + 1) % world), dist.P2POp(dist.irecv, out, (rank - 1) % world)])
    for work in works:
        work.wait()
    return out


def sends_told_apart_by_tags(rank: int, world: int) -> Any:
    first, second = torch.zeros(6), torch.zeros(6)
    if rank == 0:
        works = [dist.isend(given(1), 1, tag=1), dist.isend(given(2), 1, tag=2)]
    elif rank == 1:
        works = [dist.irecv(second, 0, tag=2), dist.irecv(first, 0, tag=1)]
    else:
        works = []
    for work in works:
        work.wait()
    return first, second


def objects(rank: int, world: int) -> Any:
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    sent: list[Any] = [f"of {rank}", rank]
    dist.broadcast_object_list(sent, src=1)
    scattered: list[Any] = [None]
    dist.scatter_object_list(scattered, [("to", to) for to in range(world)], src=0)
    collected: list[Any] | None = [None] * world if rank == 0 else None
    dist.gather_object(rank * 7, collected, dst=0)
    return gathered, sent, scattered, collected


def barrier(rank: int, world: int) -> Any:
    dist.barrier()
    work = dist.barrier(async_op=True)
    return work.wait()


def functional_collectives(rank: int, world: int) -> Any:
    group = dist.group.WORLD
    return (functional.all_reduce(given(rank), "sum", group) + 1, functional.all_gather_tensor(given(rank), 0, group) + 1,
            functional.reduce_scatter_tensor(given(rank, 6 * world), "sum", 0, group) + 1, functional.broadcast(given(rank), 1, group) + 1,
            functional.all_to_all_single(given(rank, 2 * world), None, None, group) + 1)


def a_group_of_some(rank: int, world: int) -> Any:
    last, out = dist.new_group([world - 1]), given(rank)
    pair = dist.new_group([0, world - 1])
    if rank in (0, world - 1):
        dist.all_reduce(out, group=pair)
    if rank == world - 1:
        dist.all_reduce(out, group=last)
    return out


def two_groups_of_the_same_ranks_at_once(rank: int, world: int) -> Any:
    groups, out = [dist.new_group(list(range(world))) for _ in range(2)], [given(rank), given(rank + 1)]
    order = (0, 1) if rank == 0 else (1, 0)
    works = [dist.all_reduce(out[i], group=groups[i], async_op=True) for i in order]
    for work in works:
        work.wait()
    return out


BOTH: tuple[Callable[[int, int], Any], ...] = (
    all_reduce, all_reduce_asynchronous, all_reduce_coalesced, all_reduce_of_a_transposed_tensor, all_reduce_of_a_part, all_reduce_of_nothing,
    all_reduce_of_a_scalar, reduce_to_the_last, broadcast, broadcast_of_a_complex_tensor, all_gather, all_gather_of_nothing, all_gather_coalesced,
    all_gather_into_tensor, all_gather_in_place, gather, scatter, reduce_scatter, reduce_scatter_tensor, all_to_all, all_to_all_single,
    all_to_all_single_in_unequal_parts, send_and_receive, sends_and_receives_around, sends_told_apart_by_tags, objects, barrier,
    functional_collectives, a_group_of_some, two_groups_of_the_same_ranks_at_once)


@functools.cache
def results(world: int, backend: str, deliver: str = "eager") -> list[dict[str, Any]]:
    return run(world, lambda rank: {of.__name__: attempt(of, rank, world) for of in BOTH}, backend, deliver, seed=5).returned


def attempt(of: Callable[[int, int], Any], rank: int, world: int) -> Any:
    try:
        return of(rank, world)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("of", BOTH, ids=lambda of: of.__name__)
@pytest.mark.parametrize("deliver", DELIVERIES)
@pytest.mark.parametrize("world", WORLDS)
def test_gives_what_gloo_gives(world: int, deliver: str, of: Callable[[int, int], Any]) -> None:
    for rank in range(world):
        expected, got = results(world, "gloo")[rank][of.__name__], results(world, "gradledger", deliver)[rank][of.__name__]
        assert not (isinstance(expected, str) and "Error" in expected), expected
        assert same(expected, got), (rank, expected, got)


KINDS = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
ARITHMETIC = {"SUM": operator.add, "PRODUCT": operator.mul, "MAX": max, "MIN": min, "AVG": operator.add}
BITWISE = {"BAND": operator.and_, "BOR": operator.or_, "BXOR": operator.xor}


def by_hand(world: int, kind: torch.dtype, name: str) -> torch.Tensor:
    """With Python's numbers, which are exact."""
    rows = [given(rank, kind=kind).tolist() for rank in range(world)]
    values = [functools.reduce((ARITHMETIC | BITWISE)[name], column) for column in zip(*rows)]
    if name == "AVG":
        values = [value / world if kind.is_floating_point else value // world for value in values]
    return torch.tensor(values, dtype=torch.float64 if kind.is_floating_point else torch.int64).to(kind)


@functools.cache
def reductions(world: int) -> list[dict[Any, Any]]:
    def of(rank: int) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        for kind in KINDS:
            for name in [*ARITHMETIC, *([] if kind.is_floating_point else BITWISE)]:
                how = getattr(dist.ReduceOp, name)
                whole, own, pieces = given(rank, kind=kind), torch.zeros(2, dtype=kind), torch.zeros(2, dtype=kind)
                dist.all_reduce(whole, how)
                padded = torch.cat([given(rank, kind=kind)] * world)[:2 * world]
                dist.reduce_scatter_tensor(own, padded, how)
                dist.reduce_scatter(pieces, list(padded.split(2)), how)
                out[kind, name] = (whole, own, pieces)
        for kind in (*KINDS, torch.bool, torch.complex64, torch.uint16):
            bits = given(rank, kind=kind)
            moved = [torch.zeros(6, dtype=kind) for _ in range(world)]
            dist.all_gather(moved, bits)
            out[kind] = moved
        bits = given(rank, kind=torch.bool)
        dist.all_reduce(bits, dist.ReduceOp.MAX)
        return out | {"bits": bits}

    return run(world, of).returned


@pytest.mark.parametrize("world", WORLDS)
def test_every_operator_and_type_gives_what_a_hand_computes(world: int) -> None:
    for rank, of_rank in enumerate(reductions(world)):
        for kind in KINDS:
            for name in [*ARITHMETIC, *([] if kind.is_floating_point else BITWISE)]:
                expected = by_hand(world, kind, name)
                whole, own, pieces = of_rank[kind, name]
                assert torch.equal(whole, expected), (kind, name, whole, expected)
                assert torch.equal(own, torch.cat([expected] * world)[2 * rank:2 * rank + 2]), (kind, name)
                assert torch.equal(pieces, own), (kind, name)
        assert of_rank["bits"].tolist() == [any(column) for column in zip(*(given(other, kind=torch.bool).tolist() for other in range(world)))]


@pytest.mark.parametrize("world", WORLDS)
def test_a_premultiplied_sum_is_asked_for_with_its_factor(world: int) -> None:
    def of(rank: int) -> Any:
        how = torch.distributed._make_nccl_premul_sum(0.25)
        whole, own, pieces, before = given(rank), torch.zeros(2), torch.zeros(2), given(rank)
        dist.all_reduce(whole, how)
        padded = torch.cat([given(rank)] * world)[:2 * world]
        dist.reduce_scatter_tensor(own, padded, how)
        dist.reduce_scatter(pieces, list(padded.split(2)), how)
        assert torch.equal(padded, torch.cat([before] * world)[:2 * world])
        return whole, own, pieces
    expected, outcome = by_hand(world, torch.float32, "SUM") / 4, run(world, of)
    for rank, (whole, own, pieces) in enumerate(outcome.returned):
        assert torch.equal(whole, expected)
        assert torch.equal(own, torch.cat([expected] * world)[2 * rank:2 * rank + 2])
        assert torch.equal(pieces, own)
    assert [(message["operator"], message["factor"]) for _, message in outcome.coordinator.log if message["type"] == "collective"] == [("sum", 0.25)] * 3 * world


@pytest.mark.parametrize("world", WORLDS)
def test_every_type_moves_unchanged(world: int) -> None:
    for of_rank in reductions(world):
        for kind in (*KINDS, torch.bool, torch.complex64, torch.uint16):
            assert same(of_rank[kind], [given(rank, kind=kind) for rank in range(world)]), kind


@pytest.mark.parametrize("world", WORLDS)
def test_lists_of_unequal_tensors_are_gathered_scattered_and_exchanged(world: int) -> None:
    """gloo and NCCL refuse some of these; MPI and UCC do them."""
    def of(rank: int) -> Any:
        exchanged = [torch.zeros(from_ + rank + 1) for from_ in range(world)]
        dist.all_to_all(exchanged, [given(rank + 3 * to, rank + to + 1) for to in range(world)])
        gathered = [torch.zeros(from_ + 1) for from_ in range(world)]
        dist.all_gather(gathered, given(rank, rank + 1))
        scattered = torch.zeros(rank + 2)
        dist.reduce_scatter(scattered, [given(rank, to + 2) for to in range(world)])
        return exchanged, gathered, scattered

    for rank, (exchanged, gathered, scattered) in enumerate(run(world, of).returned):
        assert same(exchanged, [given(from_ + 3 * rank, from_ + rank + 1) for from_ in range(world)])
        assert same(gathered, [given(from_, from_ + 1) for from_ in range(world)])
        assert torch.equal(scattered, sum(given(from_, rank + 2) for from_ in range(world)))


def test_a_group_whose_ranks_are_not_in_order_keeps_its_own_order() -> None:
    def of(rank: int) -> Any:
        group = dist.distributed_c10d._new_group_with_tag([2, 0, 1], sort_ranks=False)
        place = group.rank()
        gathered, listed = torch.zeros(3), [torch.zeros(1) for _ in range(3)]
        dist.all_gather_into_tensor(gathered, torch.tensor([float(rank)]), group=group)
        dist.all_gather(listed, torch.tensor([float(rank)]), group=group)
        scattered, list_scattered = torch.zeros(1), torch.zeros(1)
        dist.reduce_scatter_tensor(scattered, torch.tensor([10., 20., 30.]), group=group)
        dist.reduce_scatter(list_scattered, [torch.tensor([10.]), torch.tensor([20.]), torch.tensor([30.])], group=group)
        exchanged, unequal = torch.zeros(3), torch.zeros(6 if place == 0 else 3)
        dist.all_to_all_single(exchanged, torch.tensor([100. * place + to for to in range(3)]), group=group)
        rows = torch.tensor([100. * place, 100. * place, 100. * place + 1, 100. * place + 2])
        dist.all_to_all_single(unequal, rows, [2, 2, 2] if place == 0 else [1, 1, 1], [2, 1, 1], group=group)
        sent = torch.tensor([float(rank)])
        dist.broadcast(sent, src=2, group=group)
        return place, gathered.tolist(), torch.cat(listed).tolist(), scattered.item(), list_scattered.item(), exchanged.tolist(), unequal.tolist(), sent.item()

    for rank, (place, gathered, listed, scattered, list_scattered, exchanged, unequal, sent) in enumerate(run(3, of).returned):
        assert place == [1, 2, 0][rank]
        assert gathered == listed == [2., 0., 1.]
        assert scattered == list_scattered == 30. * (place + 1)
        assert exchanged == [100. * from_ + place for from_ in range(3)]
        assert unequal == ([0., 0., 100., 100., 200., 200.] if place == 0 else exchanged)
        assert sent == 2.
