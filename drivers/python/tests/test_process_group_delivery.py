"""When results arrive: eager, late and seeded, waits of all sorts, and what somebody finds who does not wait."""
from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gradledger.delivery import Delivery
from ranks_of_a_test import run

KINDS = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def is_poison(tensor: torch.Tensor) -> bool:
    if tensor.is_floating_point():
        return bool(tensor.isnan().all())
    return set(tensor.contiguous().view(torch.uint8).tolist()) == {0xA5}


def without_a_wait(rank: int) -> dict[str, Any]:
    """What the outputs hold after the call, and again after the wait."""
    seen: dict[str, Any] = {}
    for kind in KINDS:
        tensor = torch.full((4,), rank + 1, dtype=kind)
        work = dist.all_reduce(tensor, async_op=True)
        before = tensor.clone()
        work.wait()
        seen[str(kind)] = (before, tensor)
    gathered = torch.zeros(2)
    work = dist.all_gather_into_tensor(gathered, torch.tensor([float(rank)]), async_op=True)
    before = gathered.clone()
    work.wait()
    return seen | {"gathered": (before, gathered)}


def test_late_delivery_shows_poison_to_who_does_not_wait() -> None:
    for seen in run(2, without_a_wait, deliver="late").returned:
        assert len(seen) == len(KINDS) + 1
        for name, (before, after) in seen.items():
            assert is_poison(before), (name, before)
            assert not is_poison(after), (name, after)


def test_eager_delivery_gives_the_result_within_the_call() -> None:
    for seen in run(2, without_a_wait, deliver="eager").returned:
        for name, (before, after) in seen.items():
            assert torch.equal(before, after) and not is_poison(before), name


def test_a_removed_wait_changes_a_training_step_under_late_delivery_alone() -> None:
    def step(rank: int) -> list[float]:
        weight, gradient = torch.ones(3), torch.full((3,), float(rank + 1))
        dist.all_reduce(gradient, async_op=True)  # the wait is missing
        return (weight - gradient).tolist()

    assert run(2, step, deliver="eager").returned == [[-2.0] * 3] * 2
    assert all(torch.tensor(weights).isnan().all() for weights in run(2, step, deliver="late").returned)


def test_a_synchronous_collective_is_never_late() -> None:
    def of(rank: int) -> list[float]:
        tensor = torch.full((3,), float(rank + 1))
        dist.all_reduce(tensor)
        return tensor.tolist()

    assert run(2, of, deliver="late").returned == [[3.0] * 3] * 2


def test_what_a_collective_only_reads_is_not_poisoned() -> None:
    def of(rank: int) -> list[list[float]]:
        sent, reduced, gathered = torch.full((2,), float(rank)), torch.full((2,), float(rank)), torch.full((2,), float(rank))
        works = [dist.broadcast(sent, 0, async_op=True), dist.reduce(reduced, 0, async_op=True)]
        out = torch.zeros(4)
        works.append(dist.all_gather_into_tensor(out, gathered, async_op=True))
        seen = [sent.tolist(), reduced.tolist(), gathered.tolist()]
        for work in works:
            work.wait()
        return seen

    first, second = run(2, of, deliver="late").returned
    assert first[0] == [0.0, 0.0] and first[2] == [0.0, 0.0]
    assert torch.tensor(first[1]).isnan().all()  # the root's sum
    assert torch.tensor(second[0]).isnan().all() and second[1] == [1.0, 1.0] and second[2] == [1.0, 1.0]


def test_seeded_delivery_repeats_and_differs_by_seed_rank_and_number() -> None:
    def drawn(seed: int, rank: int) -> list[bool]:
        return [Delivery("seeded", seed, rank).is_late(number) for number in range(64)]

    assert drawn(1, 0) == drawn(1, 0)
    assert 16 < sum(drawn(1, 0)) < 48
    differing = [sum(a != b for a, b in zip(drawn(1, 0), other)) for other in (drawn(2, 0), drawn(1, 1))]
    assert all(8 < count < 56 for count in differing), differing

    def of(rank: int) -> list[bool]:
        out = []
        for _ in range(24):
            tensor = torch.ones(1)
            work = dist.all_reduce(tensor, async_op=True)
            out.append(bool(tensor.isnan()))
            work.wait()
            assert tensor.item() == 2.0
        return out

    first, second = run(2, of, deliver="seeded", seed=3).returned, run(2, of, deliver="seeded", seed=3).returned
    assert first == second and first[0] != first[1]
    assert first == [[Delivery("seeded", 3, rank).is_late(number) for number in range(24)] for rank in range(2)]


def test_an_unknown_delivery_is_refused() -> None:
    with pytest.raises(ValueError, match="sometimes"):
        Delivery("sometimes", 0, 0)


@pytest.mark.parametrize("deliver", ["eager", "late"])
def test_every_way_to_ask_a_work_delivers(deliver: str) -> None:
    def of(rank: int) -> dict[str, Any]:
        out = {}
        for name in ("wait", "is_completed", "synchronize", "result", "get_future"):
            tensor = torch.tensor([rank + 1.0])
            work = dist.all_reduce(tensor, async_op=True)
            answer = getattr(work, name)()
            out[name] = (tensor.item(), work.is_success(), work.is_completed(), work.exception())
            if name == "result":
                assert answer[0] is tensor
            if name == "get_future":
                assert answer.done() and answer.value()[0] is tensor and work.get_future() is answer
        return out

    for returned in run(2, of, deliver=deliver).returned:
        assert set(returned.values()) == {(3.0, True, True, None)}


def test_a_late_future_is_delivered_at_once() -> None:
    """DDP's reducer waits for futures in C++, which nobody sees."""
    def of(rank: int) -> tuple[bool, float]:
        tensor = torch.tensor([rank + 1.0])
        work = dist.all_reduce(tensor, async_op=True)
        poisoned = bool(tensor.isnan())
        work.get_future()
        return poisoned, tensor.item()

    assert run(2, of, deliver="late").returned == [(True, 3.0)] * 2


@pytest.mark.parametrize("deliver", ["eager", "late"])
def test_a_functional_collective_is_waited_for_through_its_tensor(deliver: str) -> None:
    def of(rank: int) -> float:
        operations = torch.ops._c10d_functional
        reduced = operations.all_reduce(torch.tensor([rank + 1.0]), "sum", dist.group.WORLD.group_name)
        return (operations.wait_tensor(reduced) * 2).item()

    assert run(2, of, deliver=deliver).returned == [6.0, 6.0]


def test_an_eager_collective_goes_on_where_others_can_come_to_it_no_other_way() -> None:
    """Rank 0 issues A, then B; rank 1 issues B, then A: on separate groups that is allowed, and an eager wait in the call of A would never end."""
    def of(rank: int) -> Any:
        first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
        a, b = torch.tensor([rank + 1.0]), torch.tensor([10.0 * (rank + 1)])
        if rank == 0:
            work = dist.all_reduce(a, group=first, async_op=True)
            seen = a.clone()
            dist.all_reduce(b, group=second)
            work.wait()
        else:
            dist.all_reduce(b, group=second)
            seen = a.clone()
            dist.all_reduce(a, group=first)
        return bool(seen.isnan()), a.item(), b.item()

    outcome = run(2, of)
    assert outcome.returned == [(True, 3.0, 30.0), (False, 3.0, 30.0)]  # what is not there yet is poison, as it is when late
    assert outcome.coordinator is not None and len(outcome.coordinator.went_on) == 1


@pytest.mark.parametrize("deliver", ["eager", "late"])
def test_polling_until_a_collective_is_complete_ends(deliver: str) -> None:
    def of(rank: int) -> float:
        first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
        a, b = torch.tensor([rank + 1.0]), torch.tensor([1.0])
        if rank == 0:
            work = dist.all_reduce(a, group=first, async_op=True)
            work.is_completed()
            dist.all_reduce(b, group=second)
        else:
            dist.all_reduce(b, group=second)
            work = dist.all_reduce(a, group=first, async_op=True)
        while not work.is_completed():
            pass
        return a.item()

    assert run(2, of, deliver=deliver).returned == [3.0, 3.0]


@pytest.mark.parametrize("deliver", ["eager", "late"])
def test_a_coalescing_manager_gives_one_work_for_all(deliver: str) -> None:
    def of(rank: int) -> Any:
        reduced = [torch.full((2,), float(rank + i)) for i in range(3)]
        with dist.distributed_c10d._coalescing_manager(async_ops=True) as fast:
            for tensor in reduced:
                dist.all_reduce(tensor)
        gathered = [torch.zeros(4) for _ in range(2)]
        with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu"), async_ops=True) as slow:
            for i, tensor in enumerate(gathered):
                dist.all_gather_into_tensor(tensor, torch.full((2,), float(10 * rank + i)))
        sent = torch.full((2,), float(rank))
        with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu"), async_ops=True) as mixed:
            dist.broadcast(sent, 1, async_op=True)
        poisoned = [bool(tensor.isnan().any()) for tensor in (*reduced, *gathered, sent)]
        for manager in (fast, slow, mixed):
            manager.wait()
        return poisoned, [tensor.tolist() for tensor in (*reduced, *gathered, sent)]

    for rank, (poisoned, values) in enumerate(run(2, of, deliver=deliver).returned):
        assert poisoned == [deliver == "late"] * 5 + [deliver == "late" and rank == 0]
        assert values == [[1.0, 1.0], [3.0, 3.0], [5.0, 5.0], [0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 11.0, 11.0], [1.0, 1.0]]


def test_threads_share_the_connection() -> None:
    """They ask in the same order on all ranks, as NCCL wants it too, and wait all at once; what one reads is another's."""
    def of(rank: int) -> list[float]:
        out, works, all_asked, turn = [0.0] * 8, [], threading.Barrier(8), threading.Condition()

        def work(i: int) -> None:
            tensor = torch.tensor([float(rank + i)])
            with turn:
                turn.wait_for(lambda: len(works) == i)
                works.append(dist.all_reduce(tensor, async_op=True))
                turn.notify_all()
            all_asked.wait()
            works[-1 - i].wait() if i % 2 else works[i].wait()
            works[i].wait()
            out[i] = tensor.item()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return out

    assert run(3, of, deliver="late").returned == [[3.0 * i + 3.0 for i in range(8)]] * 3


def test_a_thread_that_asks_while_another_waits_comes_after_it() -> None:
    def of(rank: int) -> list[float]:
        first, second = torch.tensor([rank + 1.0]), torch.tensor([10.0 * (rank + 1)])
        thread = threading.Thread(target=dist.all_reduce, args=(first,))
        if rank == 0:
            thread.start()
            while thread.is_alive() and not dist.group.WORLD._requests._is_waiting:
                pass
            dist.all_reduce(second)
            thread.join()
        else:
            dist.all_reduce(first)
            dist.all_reduce(second)
        return [first.item(), second.item()]

    assert run(2, of).returned == [[3.0, 30.0]] * 2


def test_autograd_does_not_notice_that_an_output_was_written() -> None:
    """Other backends write from C++; a version counter that moves would make autograd refuse what it accepts with them."""
    def of(rank: int) -> tuple[int, float]:
        weight, factor = torch.tensor([2.0], requires_grad=True), torch.tensor([3.0])
        product = weight * factor
        before = factor._version
        dist.all_reduce(factor)
        product.backward()
        return factor._version - before, weight.grad.item()

    assert run(2, of).returned == [(0, 6.0)] * 2


def test_a_freed_output_is_named_instead_of_written_to() -> None:
    def of(rank: int) -> None:
        tensor = torch.ones(4)
        work = dist.all_reduce(tensor, async_op=True)
        tensor.untyped_storage().resize_(0)
        work.wait()

    assert all("freed before its result was there" in text for text in run(2, of, deliver="late").returned)
