"""Hosts and ranks as processes: what they answer, and that none is left when something goes wrong."""
from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgpack
import pytest

from command import DEADLINE_SECONDS, Command, Gone, ok, shown

TESTS = Path(__file__).parent
ONE = [{"name": "w", "numel": 2}]
ENGINE = {"framework": "odd", "config": {}}


@pytest.fixture(scope="module")
def shared():
    with Command("odd_drivers:Odd", 2, paths=[TESTS]) as out:
        yield out


@pytest.fixture
def command(shared):
    """A host that is there already, as importing takes seconds, and no rank."""
    yield shared
    shared.end_ranks()


@pytest.fixture
def own_command():
    with Command("odd_drivers:Odd", 2, paths=[TESTS]) as out:
        yield out


def configured(command):
    processes = command.start_ranks()
    ok(command.configure(ONE, ENGINE))
    return processes


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def gone_in_time(processes) -> bool:
    until = time.monotonic() + 20
    while time.monotonic() < until and any(map(is_there, processes)):
        time.sleep(0.02)
    return not any(map(is_there, processes))


def test_host_and_ranks_say_who_they_are(command):
    processes = command.start_ranks()
    expected = {"events": ["backward", "step", "finalize", "save", "restore"], "frameworks": ["odd"], "applied_gradients": False, "accumulators": False,
                "weights": False}
    for hello in (command.host.hello, command.ranks[1].hello):
        assert hello["protocol"] == 1 and hello["driver"] == "odd_drivers:Odd" and hello["capabilities"] == expected
        assert {"python", "torch", "gradledger"} <= hello["versions"].keys()
    assert command.host.hello["process"] == command.process.pid and "rank" not in command.host.hello
    assert command.ranks[1].hello == command.ranks[1].hello | {"kind": "driver", "rank": 1, "world_size": 2, "process": processes[1]}


def test_an_event_is_answered_with_what_the_rank_holds(command):
    command.start_ranks()
    assert command.configure(ONE, ENGINE)[0] == {"type": "configured", "notes": ["odd"]}
    answer = ok(command.event("backward", {0: {0: [1, 2]}, 1: {}}))[0]
    assert answer["type"] == "done" and answer["number"] == 0 and answer["facts"] == {} and answer["metrics"]["seconds"] >= 0
    assert answer["buffers"] == [{"name": "g", "role": "local", "dtype": "fp32", "space": "device", "at_end": True, "scale": 2.0, "pieces": [[0, 0, 2]],
                                  "data": bytes.fromhex("0000c03f" * 2)}]
    assert command.ask({0: {"type": "finish", "number": 1}}) == {0: {"type": "finished"}}


def test_what_the_framework_raises_is_told_with_its_place(command):
    configured(command)
    error = command.event("backward", micro_batch=1)[1]["error"]
    assert error["type"] == "KeyError" and error["text"] == "'of the framework'" and "odd_drivers.py" in error["traceback"]
    error = command.event("backward", micro_batch=2)[0]["error"]
    assert (error["type"], error["text"]) == ("Refused", "not this")
    assert shown(ok(command.event("backward"))[0]) == {"g": [1.5, 1.5]}


def test_what_a_rank_prints_is_in_its_file(command):
    configured(command)
    assert "rank 1 configured" in (command.folder / "rank1.txt").read_text() and "rank 1" not in (command.folder / "rank0.txt").read_text()


@pytest.mark.parametrize(("event", "ending"), [("save", {"signal": signal.SIGABRT}), ("restore", {"code": 1})])
def test_a_rank_that_dies_is_told_by_its_host(command, event, ending):
    processes = configured(command)
    with pytest.raises(Gone):
        command.event(event, ranks=[1])
    assert command.host.receive() == {"type": "ended", "rank": 1, "process": processes[1]} | ending
    ok(command.event("backward", ranks=[0]))


@pytest.mark.parametrize(("after_error", "answered"), [("stop", [0, 1]), ("go_on", [0, 1, 2, 3])])
def test_what_was_sent_ahead_of_an_error_is_passed_over_where_the_script_stops_there(command, after_error, answered):
    command.start_ranks()
    ok(command.configure(ONE, ENGINE | {"after_error": after_error}))
    rank = command.ranks[0]
    for number, micro_batch in enumerate((0, 1, 0, 0)):  # the second one raises
        rank.send({"type": "event", "number": number, "name": "backward", "arguments": {"micro_batch": micro_batch, "uses": [0]}, "gradients": {"0": bytes(8)}})
    rank.send({"type": "finish"})
    answers = [rank.receive() for _ in range(len(answered) + 1)]
    assert [answer["number"] for answer in answers[:-1]] == answered and answers[-1] == {"type": "finished"}
    ok(command.configure(ONE, ENGINE))
    ok(command.event("backward", ranks=[0]))


def test_a_rank_can_be_killed_from_outside_and_started_again(command):
    processes = configured(command)
    os.kill(processes[0], signal.SIGKILL)
    assert command.host.receive() == {"type": "ended", "rank": 0, "process": processes[0], "signal": signal.SIGKILL}
    command.host.send({"type": "end", "rank": 1})
    assert command.host.receive() == {"type": "ended", "rank": 1, "process": processes[1], "signal": signal.SIGKILL}
    again = configured(command)
    assert not set(again.values()) & set(processes.values())
    ok(command.event("backward"))


def test_a_rank_that_is_busy_ends_with_its_connection(command):
    processes = configured(command)
    command.ranks[0].send({"type": "event", "number": 0, "name": "step", "arguments": {}, "gradients": {}})
    while "sleeps" not in (command.folder / "rank0.txt").read_text():
        time.sleep(0.01)
    command.ranks[0].close()
    assert command.host.receive() == {"type": "ended", "rank": 0, "process": processes[0], "code": 0}


@pytest.mark.parametrize("how", ["closed", "bye", "killed", "terminated"])
def test_no_process_outlives_the_host(own_command, how):
    processes = list(configured(own_command).values()) + [own_command.process.pid]
    own_command.ranks[0].send({"type": "event", "number": 0, "name": "step", "arguments": {}, "gradients": {}})
    {"closed": own_command.host.close, "bye": lambda: own_command.host.send({"type": "bye", "reason": ""}), "killed": own_command.process.kill,
     "terminated": own_command.process.terminate}[how]()
    own_command.process.wait(DEADLINE_SECONDS)
    assert gone_in_time(processes)


def test_a_host_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Command("odd_drivers:Odd", 1, paths=[TESTS]) as other:
        other.start_ranks()
        assert list(tmp_path.glob("gradledger-??*"))
        other.host.send({"type": "bye"})
        other.process.wait(DEADLINE_SECONDS)
        assert not [folder for folder in tmp_path.glob("gradledger-*") if not folder.name.startswith("gradledger-test")]


EVENT = {"type": "event", "number": 0, "name": "backward", "arguments": {"micro_batch": 0, "uses": [0]}, "gradients": {}}


@pytest.mark.parametrize(("body", "says"), [
    (b"\xc1", "no MessagePack"),
    (msgpack.packb({"type": "hullo"}), "hullo"),
    (msgpack.packb(EVENT | {"extra": 1}), "unknown key extra"),
    (msgpack.packb(EVENT | {"name": "fly"}), "expected one of"),
    (msgpack.packb(EVENT | {"arguments": {"micro_batch": 0, "uses": [1]}}), "uses parameters that there are not"),
    (msgpack.packb(EVENT | {"arguments": {"micro_batch": 0, "uses": [0], "speed": 1}}), "speed"),
    (msgpack.packb(EVENT | {"gradients": {"0": b"123"}}), "3 bytes for 2 elements"),
    (msgpack.packb(EVENT | {"gradients": {"7": b""}}), "there are 1"),
    (msgpack.packb(EVENT | {"name": "finalize", "arguments": {"speed": 1}}), "speed"),
    (msgpack.packb(EVENT | {"name": "finalize", "arguments": {}}), "has 2 elements, and its pieces 3"),
    (msgpack.packb({"type": "start", "rank": 0, "world_size": 1, "errors": ""}), "no message for a driver"),
    (msgpack.packb({"type": "configure", "run": 0, "engine": {}, "parameters": [], "model_dtype": "fp8"}), "model_dtype"),
], ids=range(12))
def test_a_rank_that_cannot_answer_says_why_and_ends(command, body, says):
    processes = configured(command)
    command.ranks[0].send_frame(body)
    failure = command.ranks[0].receive()
    assert failure["type"] == "failure" and says in failure["text"] and "Traceback" in failure["traceback"] and failure.keys() == {"type", "text", "traceback"}
    assert command.host.receive() == {"type": "ended", "rank": 0, "process": processes[0], "code": 1}
    ok(command.event("backward", ranks=[1]))


def test_a_frame_that_ends_early_ends_the_rank(command):
    configured(command)
    command.ranks[0].send_frame(b"\x80", size=100)
    command.ranks[0].close()
    assert command.host.receive()["rank"] == 0


@pytest.mark.parametrize("message", [{"type": "finish"}, {"type": "start", "rank": 2, "world_size": 2, "errors": ""}])
def test_a_host_that_cannot_answer_says_why_and_ends(own_command, message):
    processes = configured(own_command)
    own_command.host.send(message)
    assert own_command.host.receive()["type"] == "failure"
    own_command.process.wait(DEADLINE_SECONDS)
    assert gone_in_time(processes.values())


@pytest.mark.parametrize(("driver", "says"), [
    ("odd_drivers:broken", "the framework is not here"), ("odd_drivers:nothing", "expected a gradledger.driver.Driver"), ("odd_drivers:Even", "has no Even"),
    ("no_such_module:Driver", "no_such_module"), ("fsdp3", "module:factory")])
def test_a_host_without_a_driver_ends_with_one_line(driver, says):
    done = subprocess.run([sys.executable, "-m", "gradledger.host", driver], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=DEADLINE_SECONDS,
                          env=dict(os.environ) | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])})
    assert done.returncode == 1 and says in done.stderr and done.stderr.startswith("gradledger host: ") and done.stderr.count("\n") == 1 and not done.stdout


def test_ranks_that_somebody_else_starts_need_no_host(command):
    started = [command.run("gradledger.rank", RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
    command.wait_until(lambda: len(command.ranks) == 2)
    ok(command.configure(ONE, ENGINE))
    ok(command.event("backward"))
    for rank in range(2):
        command.ranks[rank].send({"type": "bye", "reason": ""})
    assert [process.wait(DEADLINE_SECONDS) for process in started] == [0, 0]


def test_torchrun_starts_ranks_too():
    with Command("ddp", 2) as command:
        words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()), "-m", "gradledger.rank", "ddp",
                 "--backend", "gloo"]
        started = subprocess.Popen(words, env=command.environment(), stdin=subprocess.DEVNULL, stderr=(command.folder / "torchrun.txt").open("w"))
        command.wait_until(lambda: len(command.ranks) == 2)
        ok(command.configure(ONE, {"framework": "ddp", "config": {}}))
        done = ok(command.event("backward", {0: {0: [1.0, 2.0]}, 1: {0: [3.0, 6.0]}}))
        assert [shown(done[rank], "replicated") for rank in range(2)] == [{"w.grad": [2.0, 4.0]}] * 2
        for rank in range(2):
            command.ranks[rank].send({"type": "bye", "reason": ""})
        assert started.wait(DEADLINE_SECONDS) == 0, command.said()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_a_rank_whose_peer_is_killed_is_not_left_waiting_for_ever():
    with Command("ddp", 2) as command:
        processes = command.start_ranks()
        ok(command.configure(ONE, {"framework": "ddp", "config": {}}))
        command.ranks[0].send(EVENT | {"gradients": {"0": bytes(8)}})
        os.kill(processes[1], signal.SIGKILL)
        answer = command.ranks[0].receive()
        assert answer["error"] and answer["number"] == 0
    assert gone_in_time(processes.values())
