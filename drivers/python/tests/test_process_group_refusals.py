"""What is no collective, what does not match, and what can never end: each is an exception that says where it was called."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks_of_a_test import run

HERE = Path(__file__).name


def line_of(text: str) -> int:
    """Of the only line of this file that holds `text`, but for the lines that look for it."""
    lines = [number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line and "line_of(" not in line]
    assert len(lines) == 1, (text, lines)
    return lines[0]


def reduces(rank: int) -> None:
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # rank 0 reduces


def broadcasts(rank: int) -> None:
    tensor = torch.ones(3)
    dist.broadcast(tensor, 0)  # rank 1 broadcasts


@pytest.mark.parametrize("deliver", ["eager", "late"])
def test_a_mismatch_names_the_calls_of_both_ranks_and_where_they_stand(deliver: str) -> None:
    for text in run(2, lambda rank: reduces(rank) if rank == 0 else broadcasts(rank), deliver=deliver).returned:
        assert text.startswith("CollectiveMismatch: ")
        assert "same kind" in text
        assert f"rank 0: all_reduce sum of 3 fp32" in text and f"{HERE}:{line_of('# rank 0 reduces')} reduces" in text
        assert f"rank 1: broadcast of root 0, of 3 fp32" in text and f"{HERE}:{line_of('# rank 1 broadcasts')} broadcasts" in text


@pytest.mark.parametrize(("what", "function"), [
    ("numel", lambda rank: dist.all_reduce(torch.ones(3 + rank))),
    ("dtype", lambda rank: dist.all_reduce(torch.ones(3, dtype=(torch.float32, torch.bfloat16)[rank]))),
    ("operator", lambda rank: dist.all_reduce(torch.ones(3), (dist.ReduceOp.SUM, dist.ReduceOp.MAX)[rank])),
    ("root", lambda rank: dist.broadcast(torch.ones(3), rank)),
    ("kind", lambda rank: dist.barrier() if rank else dist.all_reduce(torch.ones(3))),
    ("parts", lambda rank: dist.all_gather([torch.zeros(1 + rank), torch.zeros(2 - rank)], torch.ones(2 - rank) if rank == 0 else torch.ones(1))),
    ("numel", lambda rank: dist.send(torch.ones(3), 1) if rank == 0 else dist.recv(torch.ones(4), 0)),
])
def test_every_part_of_a_call_has_to_match(what: str, function: Any) -> None:
    for text in run(2, function).returned:
        assert isinstance(text, str) and text.startswith("CollectiveMismatch: ") and f"the same {what}:" in text, text


def test_a_rank_that_expects_other_sizes_of_an_exchange_says_so() -> None:
    def of(rank: int) -> None:
        dist.all_to_all_single(torch.zeros(2 + rank), torch.ones(2), [1, 1 + rank], [1, 1])

    first, second = run(2, of).returned
    assert first is None and second.startswith("CollectiveMismatch: 8 bytes came where this rank expects 12")


@pytest.mark.parametrize("deliver", ["eager", "late"])
def test_a_refused_asynchronous_collective_raises_at_the_call_or_at_the_wait_and_again(deliver: str) -> None:
    def of(rank: int) -> list[str]:
        out = []
        try:
            work = dist.all_reduce(torch.ones(3 + rank), async_op=True)
        except RuntimeError as error:
            return [f"call {type(error).__name__}"]
        for _ in range(2):
            try:
                work.wait()
            except RuntimeError as error:
                out.append(f"wait {type(error).__name__}")
        return out + [str(work.is_success()), str(work.is_completed()), type(work.exception()).__name__]

    expected = ["call CollectiveMismatch"] if deliver == "eager" else ["wait CollectiveMismatch"] * 2 + ["False", "True", "CollectiveMismatch"]
    assert run(2, of, deliver=deliver).returned == [expected] * 2


@pytest.mark.parametrize("deliver", ["eager", "late"])
def test_a_deadlock_names_what_each_rank_waits_for(deliver: str) -> None:
    def of(rank: int) -> None:
        groups = [dist.new_group([0, 1]) for _ in range(2)]
        dist.all_reduce(torch.ones(3), group=groups[rank])  # each in another group

    for text in run(2, of, deliver=deliver).returned:
        assert text.startswith("CollectiveDeadlock: nobody can move any more")
        assert text.count(f"{HERE}:{line_of('# each in another group')}") == 2
        assert "rank 0: all_reduce sum of 3 fp32 in group '1'" in text and "rank 1: all_reduce sum of 3 fp32 in group '2'" in text


@pytest.mark.parametrize("deliver", ["eager", "late"])
def test_waiting_for_a_rank_that_has_ended_is_a_deadlock(deliver: str) -> None:
    def of(rank: int) -> Any:
        if rank == 0:
            return dist.all_reduce(torch.ones(3), async_op=True).wait()

    first, second = run(2, of, deliver=deliver).returned
    assert first.startswith("CollectiveDeadlock: ") and "rank 1 has nothing left to do" in first
    assert second is None


def test_two_sends_to_each_other_are_a_deadlock_as_they_are_without_buffers() -> None:
    assert all(text.startswith("CollectiveDeadlock: ") for text in run(2, lambda rank: dist.send(torch.ones(2), 1 - rank)).returned)


def test_what_cannot_be_done_is_refused_by_name() -> None:
    def attempt(function: Any) -> str:
        try:
            return f"no error: {function()}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def of(rank: int) -> list[str]:
        return [attempt(lambda: dist.irecv(torch.ones(2))),
                attempt(lambda: dist.all_reduce(torch.ones(2, 2).to_sparse())),
                attempt(lambda: dist.group.WORLD.allreduce([torch.ones(2, dtype=torch.uint16)])),
                attempt(lambda: dist.group.WORLD.monitored_barrier())]

    expected = ["CollectiveRefused: a receive from any source",
                "CollectiveRefused: all_reduce of a tensor whose layout is torch.sparse_coo", "CollectiveRefused: all_reduce of torch.uint16", "no error: None"]
    for texts in run(2, of).returned:
        assert [text[:len(start)] for text, start in zip(texts, expected, strict=True)] == expected


def test_requests_carry_the_event_and_whether_they_are_asynchronous() -> None:
    def of(rank: int) -> None:
        import gradledger.process_group as process_group
        dist.barrier()
        process_group.current_event = 7
        dist.all_reduce(torch.ones(2), async_op=True).wait()

    coordinator = run(2, of).coordinator
    assert coordinator is not None
    for rank in range(2):
        of_rank = [m for sender, m in coordinator.log if sender == rank and m["type"] == "collective"]
        asked = [(m["kind"], m["event"], m["asynchronous"], m["group"], m["tag"]) for m in of_rank]
        assert asked == [("barrier", -1, False, [0, 1], "0"), ("all_reduce", 7, True, [0, 1], "0")]
