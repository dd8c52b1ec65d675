"""Virtual streams: what is told of operators, memory, waits and collectives. The judgement is the command's."""
from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch
from gradledger import streams
from gradledger.streams import autograd, collectives, recorder as recorders, virtual
from gradledger.streams.recorder import byte_ranges

cpu = torch.cpu
KEPT = [(torch.cpu, name) for name in ("Stream", "Event", "StreamContext", "stream", "current_stream", "synchronize")]
KEPT += [(torch.UntypedStorage, "resize_"), (torch.Tensor, "record_stream")]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch):
    """As a rank has it, for one test: PyTorch is as it was when the test is over."""
    for owner, name in KEPT:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(torch.cpu, "default_stream", None, raising=False)
    monkeypatch.setenv("GRADLEDGER_STREAMS", "virtual")
    virtual.install()
    from gradledger.streams import memory
    memory.install()
    made = streams.recorder_for({"streams": True})
    virtual.start_over()
    yield made
    recorders.current = None
    virtual.start_over()


class Told:
    """The entries of a message, with texts in place of their numbers."""

    def __init__(self, made: streams.Recorder) -> None:
        message = made.message(3)
        self.number, texts = message["number"], ["", *message["texts"]]
        self.streams = [texts[number] for number in message["streams"]]
        self.entries = [self.readable(entry, texts) for entry in message["entries"]]

    def readable(self, entry: list[Any], texts: list[str]) -> list[Any]:
        of_text, of_stream = {"run": ((2, 3), (1,)), "allocate": ((4,), (3,)), "free": ((2,), ()), "keep": ((), (2,)), "record": ((), (1,)), "wait": ((), (1,)),
                              "join": ((), (1, 2)), "name": ((2,), ())}.get(entry[0], ((), ()))
        return [texts[x] if i in of_text else ("host" if x < 0 else self.streams[x]) if i in of_stream else x for i, x in enumerate(entry)]

    def of(self, kind: str) -> list[list[Any]]:
        return [entry[1:] for entry in self.entries if entry[0] == kind]

    def run(self, name: str) -> tuple[str, list, list]:
        stream, _, _, reads, writes = next(entry for entry in self.of("run") if entry[1] == name)
        return stream, reads, writes


def told(recorder: streams.Recorder, work: Any) -> Told:
    with streams.watched(recorder):
        kept = work()
    out = Told(recorder)
    del kept
    return out


# ---- operators

def test_an_operator_reads_its_inputs_and_writes_fresh_memory_on_the_current_stream_at_its_call_site(recorder) -> None:
    a = torch.ones(8)
    out = told(recorder, lambda: a[2:6] + 1)
    assert out.of("allocate") == [[0, 16, "default stream", out.entries[0][4]], [1, 32, "host", out.entries[0][4]]], "what was there before has no stream"
    stream, reads, writes = out.run("add")
    assert (stream, reads, writes) == ("default stream", [(1, 8, 24)], [(0, 0, 16)])
    assert "test_streams.py" in out.of("run")[0][2] and out.of("run")[0][2].endswith("<lambda>")


def test_what_is_written_in_place_by_out_or_in_lists_is_told_as_written(recorder) -> None:
    a, b = torch.ones(4), torch.ones(4)
    out = told(recorder, lambda: (a.mul_(2), torch.add(a, 1, out=b), torch._foreach_add_([a, b], 1), b.copy_(a)))
    first, second = out.of("allocate")[0][0], out.of("allocate")[1][0]
    assert out.run("mul_")[1:] == ([], [(first, 0, 16)])
    assert out.run("add")[1:] == ([(first, 0, 16)], [(second, 0, 16)])
    assert out.run("_foreach_add_")[1:] == ([], [(first, 0, 16), (second, 0, 16)])
    assert out.run("copy_")[1:] == ([(first, 0, 16)], [(second, 0, 16)])


def test_views_and_empty_memory_are_no_accesses(recorder) -> None:
    a = torch.ones(4)
    out = told(recorder, lambda: (a.view(2, 2).t(), a.detach(), a.data, torch.empty(3), torch.empty(0)))
    assert out.of("run") == []
    assert [entry[:3] for entry in out.of("allocate")] == [[0, 12, "default stream"]]


@pytest.mark.parametrize("view, expected", [
    (lambda t: t, [(0, 96)]), (lambda t: t[1:3], [(24, 72)]), (lambda t: t[:, 1:3], [(4, 12), (28, 36), (52, 60), (76, 84)]), (lambda t: t.t(), [(0, 96)]),
    (lambda t: t[::2, ::5], [(0, 4), (20, 24), (48, 52), (68, 72)]), (lambda t: t[:1].expand(5, 6), [(0, 24)]), (lambda t: t[3, 5], [(92, 96)])])
def test_the_bytes_of_a_view_are_those_that_it_looks_at(view, expected) -> None:
    assert sorted(byte_ranges(view(torch.zeros(4, 6)))) == expected


def test_an_operator_that_is_made_of_others_is_looked_into(recorder) -> None:
    pytest.importorskip("torch.distributed.fsdp._fully_shard._fsdp_collectives")
    a, whole = torch.ones(8), torch.empty(16)
    out = told(recorder, lambda: torch.ops.fsdp.all_gather_copy_in([a], whole, [8], 8, 1))
    written = {place for entry in out.of("run") for place in entry[4]}
    assert len(written) == 1 and next(iter(written))[1:] == (32, 64), "its schema does not say that it writes at all"


def test_the_host_waits_where_it_asks_for_a_value(recorder) -> None:
    a = torch.ones(4)
    out = told(recorder, lambda: a.sum().item())
    assert out.of("join") == [["host", "default stream"]]


def test_what_a_driver_does_itself_is_not_told(recorder) -> None:
    def work() -> None:
        with streams.paused():
            torch.ones(4).add_(1).sum().item()
    assert told(recorder, work).entries == []


# ---- memory

def test_memory_that_is_used_again_is_another_allocation_and_says_where_it_was_freed(recorder) -> None:
    def work() -> torch.Tensor:
        for _ in range(2):
            kept = torch.ones(4)
            del kept
        gc.collect()
        return torch.ones(2)
    out = told(recorder, work)
    assert [entry[0] for entry in out.of("allocate")] == [0, 1, 2]
    assert [entry[0] for entry in out.of("free")] == [0, 1] and all("test_streams.py" in entry[1] for entry in out.of("free"))


def test_a_storage_that_is_resized_gives_its_memory_back_and_takes_other_memory(recorder) -> None:
    def work() -> torch.Tensor:
        a = torch.ones(4)
        a.untyped_storage().resize_(0)
        a.untyped_storage().resize_(16)
        return a.fill_(1)
    out = told(recorder, work)
    assert [entry[0] for entry in out.entries] == ["allocate", "run", "free", "allocate", "run"]
    assert out.run("fill_")[2] == [(1, 0, 16)]


def test_record_stream_and_names_are_of_the_allocation(recorder) -> None:
    side = cpu.Stream()

    def work() -> torch.Tensor:
        a = torch.ones(4)
        a[1:].record_stream(side)
        recorder.name(a, "w0.grad")
        return a
    out = told(recorder, work)
    assert out.of("keep") == [[0, "side"]] and out.of("name") == [[0, "w0.grad"]]


# ---- streams and events

def test_a_stream_has_the_name_that_the_source_gives_it(recorder) -> None:
    reduction_stream = cpu.Stream(priority=-1)
    self = type("Engine", (), {})()
    self.__copy = cpu.Stream()
    assert (reduction_stream.name, self.__copy.name, virtual.DEFAULT.name) == ("reduction_stream", "copy", "default stream")
    assert [cpu.Stream()][0].name.startswith("stream made in")


def test_waits_records_and_contexts_are_told_in_their_order(recorder) -> None:
    side = cpu.Stream()

    def work() -> None:
        side.wait_stream(cpu.current_stream())
        with cpu.stream(side):
            assert cpu.current_stream() is side
            done = cpu.Event()
            done.record()
        done.wait()
        cpu.current_stream().wait_event(done)
        done.synchronize()
        side.synchronize()
        cpu.synchronize()
    out = told(recorder, work)
    assert out.entries == [["join", "side", "default stream"], ["record", "side", 0], ["wait", "default stream", 0], ["wait", "default stream", 0],
                           ["wait", "host", 0], ["join", "host", "side"], ["synchronize"]]


def test_an_event_that_is_gone_leaves_its_number_and_one_that_was_not_recorded_is_not_waited_for(recorder) -> None:
    def work() -> None:
        for _ in range(3):
            cpu.Event().record()
        cpu.current_stream().wait_event(cpu.Event())
    assert told(recorder, work).entries == [["record", "default stream", 0]] * 3


def test_nobody_hears_at_once_that_something_is_over_and_who_does_nothing_else_hears_it(recorder) -> None:
    def work() -> None:
        event = cpu.Event()
        event.record()
        assert not event.query()
        torch.ones(1)
        assert not event.query() and event.query()
    assert told(recorder, work).of("wait") == [["host", 0]]


def test_threads_have_current_streams_of_their_own(recorder) -> None:
    seen = []
    with cpu.stream(cpu.Stream()):
        thread = threading.Thread(target=lambda: seen.append(cpu.current_stream()))
        thread.start()
        thread.join()
    assert seen == [virtual.DEFAULT]


def test_a_backward_runs_on_the_stream_of_its_forward_and_waits_for_the_node_before_it(recorder) -> None:
    with streams.watched(recorder):
        with autograd.node_on(autograd.SIDE):
            pass
        assert cpu.current_stream() is autograd.SIDE, "hooks behind the node are on its stream"
        recorder.run(cpu.current_stream(), "hook", [], [], "")
        with autograd.node_on(virtual.DEFAULT, is_last=True):
            pass
        assert cpu.current_stream() is virtual.DEFAULT
    assert Told(recorder).entries == [["record", "side stream", 0], ["wait", "default stream", 0], ["join", "default stream", "side stream"]]


# ---- collectives

class Options:
    def __init__(self, asynchronous: bool) -> None:
        self.asyncOp = asynchronous


class Work:
    finished: tuple = ()

    def wait(self) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class Group:
    _members = (0, 1)

    def reduce_scatter(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Work:
        output.fill_(7)  # by whatever means
        return Work()


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_collective_is_on_its_groups_stream_and_whoever_waits_for_it_makes_his_own_wait(recorder, monkeypatch, asynchronous) -> None:
    monkeypatch.setattr(Group, "reduce_scatter", collectives.on_its_stream(Group.reduce_scatter, "reduce_scatter", (1,), (0,)))
    monkeypatch.setattr(Work, "wait", collectives.waited(Work.wait))
    given, output = torch.ones(4), torch.zeros(2)
    out = told(recorder, lambda: Group().reduce_scatter(output, given, Options(asynchronous)).wait())
    stream, reads, writes = out.run("reduce_scatter")
    assert [len(reads), len(writes), len(out.of("run"))] == [1, 1, 1], "what fills the output is the process group's own affair"
    if asynchronous:
        assert stream == "collectives' stream of ranks 0, 1"
        assert [entry for entry in out.entries if entry[0] in ("join", "record", "wait")] == [["join", stream, "default stream"], ["record", stream, 0],
                                                                                           ["wait", "default stream", 0]]
    else:
        assert stream == "default stream" and not out.of("join") + out.of("wait")


def test_memory_of_a_collective_stays_until_somebody_has_waited(recorder, monkeypatch) -> None:
    monkeypatch.setattr(Group, "reduce_scatter", collectives.on_its_stream(Group.reduce_scatter, "reduce_scatter", (1,), (0,)))
    monkeypatch.setattr(Work, "wait", collectives.waited(Work.wait))

    def work() -> None:
        pending = Group().reduce_scatter(torch.zeros(2), torch.ones(4), Options(True))
        recorder.run(virtual.DEFAULT, "between", [], [torch.zeros(1)], "")
        pending.wait()
    out = told(recorder, work)
    kinds = [entry[0] if entry[0] != "run" else entry[2] for entry in out.entries]
    big = next(entry[0] for entry in out.of("allocate") if entry[1] == 16)
    assert kinds.index("wait") < out.entries.index(next(entry for entry in out.entries if entry[0] == "free" and entry[1] == big))


def test_every_method_of_the_process_group_that_moves_data_is_watched() -> None:
    from gradledger.process_group import LedgerGroup
    moves = {name for name in vars(LedgerGroup) if "reduce" in name or "gather" in name or "scatter" in name or "all" in name or name in ("broadcast", "send", "recv")}
    moves -= {name for name in moves if name.startswith("_") and not name.endswith("_base")}
    assert moves - set(collectives.METHODS) <= {"recv_anysource", "size", "abort"}, moves - set(collectives.METHODS)


# ---- a real framework

def test_streams_are_offered_where_they_are_asked_for_alone(monkeypatch) -> None:
    from gradledger.driver import Driver

    class OnStreams(Driver):
        streams = True
    monkeypatch.delenv("GRADLEDGER_STREAMS", raising=False)
    assert "streams" not in OnStreams(0, 1).capabilities() and streams.recorder_for({"streams": True}) is None
    monkeypatch.setenv("GRADLEDGER_STREAMS", "virtual")
    assert OnStreams(0, 1).capabilities()["streams"] is True and "streams" not in Driver(0, 1).capabilities()


def test_fully_shard_tells_of_all_its_streams_and_is_quiet_in_runs_that_are_not_watched(monkeypatch) -> None:
    from command import Command, ok
    monkeypatch.setenv("GRADLEDGER_STREAMS", "virtual")
    parameters = [{"name": name, "numel": 6} for name in "ab"]
    gradients = {rank: {p: [1.0] * 6 for p in range(2)} for rank in range(2)}
    with Command("fsdp2", 2, backend="gradledger") as command:
        assert command.host.hello["capabilities"]["streams"] is True
        command.start_ranks()
        plain = command.ask
        messages: list[dict[str, Any]] = []

        def ask(asked):
            answers = plain(asked)
            for rank, answer in answers.items():
                if answer["type"] == "streams":
                    messages.extend([answer] if rank == 0 else [])
                    answers[rank] = command.ranks[rank].receive()
            return answers
        command.ask = ask
        engine = {"framework": "fsdp2", "config": {}, "optimizer": {"type": "SGD"}}
        ok(command.configure(parameters, engine, streams=True))
        ok(command.event("backward", gradients))
        ok(command.event("step"))
        assert [message["number"] for message in messages] == [-1, 0, 1]
        texts = ["", *(text for message in messages for text in message["texts"])]
        names = [texts[number] for message in messages for number in message["streams"]]
        assert set(names) == {"default stream", "all_gather_copy_in_stream", "all_gather_stream", "reduce_scatter_stream"}
        assert any(text.startswith("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py") for text in texts)
        assert "a.grad" in texts, "memory has the names of the buffers that are shown"
        messages.clear()
        ok(command.configure(parameters, engine))
        ok(command.event("backward", gradients))
        assert messages == []
