"""A small command for tests of the process group: it speaks the protocol from the other side, a thread for each connection, and computes with torch.

It is written from docs/driver-protocol.md, with framing of its own, so that a mistake in gradledger/protocol.py does not cancel out.
"""
from __future__ import annotations

import queue
import secrets
import socket
import struct
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import torch

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64, "int8": torch.int8, "uint8": torch.uint8,
         "int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "bool": torch.bool, "bytes": torch.uint8}
REQUIRED = {"id", "group", "tag", "kind", "operator", "dtype", "numel", "site", "purpose", "event", "asynchronous", "data", "type"}
OPTIONAL = {"root", "factor", "parts", "peer", "message_tag"}


@dataclass
class Call:
    rank: int
    message: dict[str, Any]

    def says(self) -> str:
        m = self.message
        operator = f" {m['operator']}" if m["operator"] else ""
        where = f" with rank {m['peer']}, tag {m['message_tag']}," if "peer" in m else f" of root {m['root']}," if "root" in m else ""
        what = f"{m['kind']}{operator}{where} of {m['numel']} {m['dtype']}"
        return f"rank {self.rank}: {what} in group {m['tag']!r} of ranks {m['group']}, at {m['site']}, event {m['event']}"


@dataclass
class RankState:
    """`waits` holds what the rank waits for; it moves while that is empty and its connection is open."""
    connection: socket.socket
    answers: queue.SimpleQueue[dict[str, Any] | None] = field(default_factory=queue.SimpleQueue)
    calls: dict[int, Call] = field(default_factory=dict)
    waits: set[int] = field(default_factory=set)
    told_to_go_on: set[int] = field(default_factory=set)
    is_gone: bool = False


class Coordinator:
    def __init__(self, folder: Path, world_size: int) -> None:
        self.world_size = world_size
        self.token = secrets.token_hex(32)
        self.address = f"unix:{folder}/socket"
        self.log: list[tuple[int, dict[str, Any]]] = []  # what each rank sent, without data
        self.went_on: list[tuple[int, int]] = []
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._ranks: dict[int, RankState] = {}
        self._queues: dict[tuple, dict[int, deque[Call]]] = defaultdict(lambda: defaultdict(deque))
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(self.address.removeprefix("unix:"))
        self._door.listen()

    def serve(self) -> None:
        """Started after the processes of the ranks were forked, so that they inherit no thread."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)  # a thread in accept() sleeps on through close() alone
        self._door.close()

    def kinds(self, rank: int) -> list[str]:
        return [message["kind"] for sender, message in self.log if sender == rank and message["type"] == "collective"]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        rank = -1
        try:
            if read(connection, 64) != self.token.encode():
                return connection.close()
            hello = read_message(connection)
            assert set(hello) == {"type", "protocol", "kind", "rank", "world_size", "process"}, hello
            assert hello["kind"] == "group" and hello["world_size"] == self.world_size, hello
            rank = hello["rank"]
            with self._lock:
                assert rank not in self._ranks, f"rank {rank} connected twice"
                self._ranks[rank] = RankState(connection)
                self._ranks[rank].answers.put({"type": "welcome"})
            threading.Thread(target=self._write, args=(self._ranks[rank],), daemon=True).start()
            while True:
                message = read_message(connection)
                with self._lock:
                    self.log.append((rank, {key: value for key, value in message.items() if key != "data"}))
                    self._take(rank, message)
                    self._look_for_a_deadlock()
        except EOFError:
            self._end(rank)
        except Exception as error:
            self.problems.append(f"rank {rank}: {type(error).__name__}: {error}")
            connection.shutdown(socket.SHUT_RDWR)
            self._end(rank)

    @staticmethod
    def _write(state: RankState) -> None:
        """Apart from reading: a rank that is not reading yet must not keep the others waiting."""
        while (answer := state.answers.get()) is not None:
            packed = msgpack.packb(answer)
            try:
                state.connection.sendall(struct.pack(">I", len(packed)) + packed)
            except OSError:
                return

    def _end(self, rank: int) -> None:
        with self._lock:
            if rank in self._ranks:
                self._ranks[rank].is_gone = True
                self._ranks[rank].answers.put(None)
                self._look_for_a_deadlock()

    def _take(self, rank: int, message: dict[str, Any]) -> None:
        state = self._ranks[rank]
        if message["type"] == "wait":
            assert not state.waits, f"it waits for {message['id']} while it waits for {state.waits}"
            if message["id"] in state.calls:  # else it has been answered meanwhile
                state.waits.add(message["id"])
            return
        assert not state.waits, f"it asks for {message['kind']} while it waits for {state.waits}"
        assert message["type"] == "collective" and REQUIRED <= set(message) <= REQUIRED | OPTIONAL, set(message)
        assert message["group"] == sorted(message["group"]) and rank in message["group"], message["group"]
        call = Call(rank, message)
        state.calls[message["id"]] = call
        if message["kind"] in ("send", "receive"):
            pair = (rank, message["peer"]) if message["kind"] == "send" else (message["peer"], rank)
            queues = self._queues[(tuple(message["group"]), message["tag"], pair, message["message_tag"])]
            queues[0 if message["kind"] == "send" else 1].append(call)
            members = [0, 1]
        else:
            queues = self._queues[(tuple(message["group"]), message["tag"])]
            queues[rank].append(call)
            members = message["group"]
        if all(queues[member] for member in members):
            self._answer([queues[member].popleft() for member in members])

    def _answer(self, calls: list[Call]) -> None:
        different = mismatch(calls)
        if different:
            text = f"the members of the group do not ask for the same {different}: " + "; ".join(call.says() for call in calls)
            return [self._refuse(call, "CollectiveMismatch", text) for call in calls] and None
        try:
            results = computed(calls)
        except Exception as error:
            return [self._refuse(call, "CollectiveRefused", str(error)) for call in calls] and None
        for call, data in zip(calls, results, strict=True):
            self._send(call, {"type": "result", "data": data})

    def _refuse(self, call: Call, kind: str, text: str) -> None:
        self._send(call, {"type": "refused", "error": {"type": kind, "text": text}})

    def _send(self, call: Call, answer: dict[str, Any]) -> None:
        state, number = self._ranks[call.rank], call.message["id"]
        state.waits.discard(number)
        if answer["type"] != "go_on":
            del state.calls[number]
        state.answers.put(answer | {"id": number})

    def _look_for_a_deadlock(self) -> None:
        if len(self._ranks) < self.world_size or not all(state.waits or state.is_gone for state in self._ranks.values()):
            return
        waiting = [state.calls[number] for _, state in sorted(self._ranks.items()) if not state.is_gone for number in sorted(state.waits)]
        for call in waiting:
            state = self._ranks[call.rank]
            if call.message["asynchronous"] and call.message["id"] not in state.told_to_go_on:
                state.told_to_go_on.add(call.message["id"])
                self.went_on.append((call.rank, call.message["id"]))
                return self._send(call, {"type": "go_on"})
        gone = "".join(f"; rank {rank} has nothing left to do" for rank, state in sorted(self._ranks.items()) if state.is_gone)
        text = "nobody can move any more: " + "; ".join(call.says() for call in waiting) + gone
        for call in waiting:
            self._forget(call)
            self._refuse(call, "CollectiveDeadlock", text)

    def _forget(self, call: Call) -> None:
        for queues in self._queues.values():
            for queue in queues.values():
                if call in queue:
                    queue.remove(call)


def mismatch(calls: list[Call]) -> str:
    looked_at = ["dtype"] if calls[0].message["kind"] == "all_to_all" else ["dtype", "numel"]
    if "peer" not in calls[0].message:
        looked_at = ["kind", "operator", "factor", "root", *looked_at]
    if any("parts" in call.message for call in calls) and "all_to_all" not in {call.message["kind"] for call in calls}:
        looked_at = [key for key in looked_at if key != "numel" or calls[0].message["kind"] != "all_gather"] + ["parts"]
    for key in looked_at:
        if any(call.message.get(key) != calls[0].message.get(key) for call in calls):
            return key
    return ""


def computed(calls: list[Call]) -> list[bytes]:
    first = calls[0].message
    kind, group, given = first["kind"], first["group"], [call.message["data"] for call in calls]
    root = group.index(first["root"]) if "root" in first else -1
    nothing = [b""] * len(calls)
    if kind == "send":
        return [b"", given[0]]
    if kind == "barrier":
        return nothing
    if kind == "broadcast":
        return [given[root]] * len(calls)
    if kind == "all_gather":
        return [b"".join(given)] * len(calls)
    if kind == "gather":
        return [b"".join(given) if i == root else b"" for i in range(len(calls))]
    if kind == "scatter":
        return cut(given[root], [len(given[root]) // len(calls)] * len(calls))
    width = TYPES[first["dtype"]].itemsize
    if kind == "all_to_all":
        rows = [cut(data, [part * width for part in call.message["parts"]]) for data, call in zip(given, calls)]
        return [b"".join(row[i] for row in rows) for i in range(len(calls))]
    total = reduced([torch.frombuffer(bytearray(data), dtype=TYPES[first["dtype"]]) if data else torch.empty(0, dtype=TYPES[first["dtype"]]) for data in given],
                    first["operator"], first.get("factor", 1.0))
    whole = total.view(torch.uint8).numpy().tobytes() if total.numel() else b""
    if kind == "all_reduce":
        return [whole] * len(calls)
    if kind == "reduce":
        return [whole if i == root else b"" for i in range(len(calls))]
    assert kind == "reduce_scatter", kind
    return cut(whole, [part * width for part in first.get("parts", [first["numel"] // len(calls)] * len(calls))])


def reduced(given: list[torch.Tensor], operator: str, factor: float = 1.0) -> torch.Tensor:
    """In the order of ranks; 16-bit floats in fp32, rounded once."""
    kind = given[0].dtype
    wide = torch.float32 if kind in (torch.bfloat16, torch.float16) else torch.int32 if kind == torch.bool else kind
    given = given if factor == 1.0 else [each * factor for each in given]
    total = given[0].to(wide)
    for more in given[1:]:
        other = more.to(wide)
        total = {"sum": torch.add, "avg": torch.add, "product": torch.mul, "max": torch.maximum, "min": torch.minimum, "band": torch.bitwise_and,
                 "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}[operator](total, other)
    if operator == "avg":
        total = total / len(given) if total.is_floating_point() else torch.div(total, len(given), rounding_mode="trunc")
    return total.to(kind)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    assert sum(sizes) == len(data), (sizes, len(data))
    return [data[sum(sizes[:i]):sum(sizes[:i + 1])] for i in range(len(sizes))]


def read(connection: socket.socket, count: int) -> bytes:
    out = bytearray()
    while len(out) < count:
        try:
            more = connection.recv(count - len(out))
        except ConnectionError:
            more = b""
        if not more:
            raise EOFError
        out += more
    return bytes(out)


def read_message(connection: socket.socket) -> dict[str, Any]:
    return msgpack.unpackb(read(connection, struct.unpack(">I", read(connection, 4))[0]))
