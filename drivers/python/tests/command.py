"""A stand-in for the command: listens, starts a host, plays events, and keeps what the ranks answer."""
from __future__ import annotations

import contextlib
import os
import queue
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Mapping, Sequence

import msgpack
import numpy
import torch

from coordinator import Coordinator

DEADLINE_SECONDS = 300
PACKAGE = Path(__file__).resolve().parents[1]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}


class Gone(Exception):
    """The process at the other end closed the connection."""


class Peer:
    """One connection, of which a thread reads."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket, self.messages = connected, queue.Queue()
        self.history: list[dict[str, Any]] = []
        self.hello = self.read()

    def read(self) -> dict[str, Any] | None:
        head = self.exactly(4)
        body = self.exactly(int.from_bytes(head, "big")) if head else None
        return None if body is None else msgpack.unpackb(body)

    def exactly(self, size: int) -> bytes | None:
        out = b""
        while len(out) < size:
            try:
                part = self.socket.recv(size - len(out))
            except OSError:
                return None
            if not part:
                return None
            out += part
        return out

    def pump(self) -> None:
        while (message := self.read()) is not None:
            self.history.append(message)
            self.messages.put(message)
        self.messages.put(None)

    def send(self, message: Mapping[str, Any]) -> None:
        self.send_frame(msgpack.packb(message))

    def send_frame(self, body: bytes, size: int | None = None) -> None:
        self.socket.sendall((len(body) if size is None else size).to_bytes(4, "big") + body)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # close alone leaves it open, as long as the thread reads

    def receive(self) -> dict[str, Any]:
        message = self.messages.get(timeout=DEADLINE_SECONDS)
        if message is None:
            raise Gone
        return message


class Command:
    """`with Command("ddp", 2) as command:` has a host and, from `start_ranks` on, its ranks."""

    def __init__(self, driver: str, world_size: int = 2, backend: str = "gloo", paths: Sequence[str | Path] = ()) -> None:
        self.driver, self.world_size, self.backend, self.paths = driver, world_size, backend, paths
        self.token = secrets.token_hex(32)
        self.ranks: dict[int, Peer] = {}
        self.host: Peer | None = None
        self.number = 0
        self.joined = threading.Condition()

    def __enter__(self) -> Command:
        self.folder = Path(tempfile.mkdtemp(prefix="gradledger-test-"))
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.folder / "s"))
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()
        (self.folder / "collectives").mkdir()
        self.coordinator = Coordinator(self.folder / "collectives", self.world_size)
        self.coordinator.serve()
        self.process = self.run("gradledger.host")
        self.wait_until(lambda: self.host is not None)
        return self

    def __exit__(self, *_: Any) -> None:
        for peer in [self.host, *self.ranks.values()]:
            if peer is not None:
                peer.close()
        try:
            self.process.wait(DEADLINE_SECONDS)
        finally:
            self.process.kill()
            self.listener.close()
            self.coordinator.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        paths = [str(PACKAGE), *map(str, self.paths), *filter(None, [os.environ.get("PYTHONPATH")])]
        return dict(os.environ) | {"GRADLEDGER_ADDRESS": f"unix:{self.folder}/s", "GRADLEDGER_TOKEN": self.token, "PYTHONPATH": os.pathsep.join(paths)}

    def run(self, module: str, **environment: str) -> subprocess.Popen:
        with (self.folder / "host.txt").open("a") as errors:
            return subprocess.Popen([sys.executable, "-m", module, self.driver, "--backend", self.backend], env=self.environment() | environment, stderr=errors,
                                    stdin=subprocess.DEVNULL)

    def accept(self) -> None:
        while True:
            try:
                connected, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.welcome, args=(connected,), daemon=True).start()

    def welcome(self, connected: socket.socket) -> None:
        if connected.recv(64, socket.MSG_WAITALL) != self.token.encode():
            return connected.close()
        peer = Peer(connected)
        if peer.hello["kind"] == "group":
            return self.relay(connected, peer.hello)
        peer.send({"type": "welcome"})
        with self.joined:
            if peer.hello["kind"] == "host":
                self.host = peer
            else:
                self.ranks[peer.hello["rank"]] = peer
            self.joined.notify_all()
        peer.pump()

    def relay(self, connected: socket.socket, hello: Mapping[str, Any]) -> None:
        """Collectives are somebody else's."""
        body, other = msgpack.packb(hello), socket.socket(socket.AF_UNIX)
        other.connect(self.coordinator.address.removeprefix("unix:"))
        other.sendall(self.coordinator.token.encode() + len(body).to_bytes(4, "big") + body)
        threading.Thread(target=passed_on, args=(other, connected), daemon=True).start()
        passed_on(connected, other)

    def wait_until(self, holds: Any) -> None:
        with self.joined:
            for _ in range(DEADLINE_SECONDS * 10):
                if self.joined.wait_for(holds, 0.1):
                    return
                assert self.process.poll() is None, f"the host ended: {(self.folder / 'host.txt').read_text()}"
        raise AssertionError(f"nobody came in time: {self.said()}")

    def said(self) -> str:
        return "".join(file.read_text() for file in sorted(self.folder.glob("*.txt")))

    def start_ranks(self) -> dict[int, int]:
        """Returns the processes by rank."""
        self.ranks.clear()
        for rank in range(self.world_size):
            self.host.send({"type": "start", "rank": rank, "world_size": self.world_size, "errors": str(self.folder / f"rank{rank}.txt")})
        started = [self.host.receive() for _ in range(self.world_size)]
        assert all(message["type"] == "started" for message in started), started
        self.wait_until(lambda: len(self.ranks) == self.world_size)
        return {message["rank"]: message["process"] for message in started}

    def end_ranks(self) -> None:
        """The host is as it was in the beginning."""
        self.ranks.clear()
        for rank in range(self.world_size):
            self.host.send({"type": "end", "rank": rank})
        types = [message["type"] for message in self.host.history]
        while types.count("ended") < types.count("started"):
            time.sleep(0.005)
            types = [message["type"] for message in self.host.history]
        while not self.host.messages.empty():
            self.host.messages.get()
        for file in self.folder.glob("rank*.txt"):
            file.unlink()

    def ask(self, messages: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
        for rank, message in messages.items():
            self.ranks[rank].send(message)
        return {rank: self.ranks[rank].receive() for rank in messages}

    def configure(self, parameters: Sequence[Mapping[str, Any]], engine: Mapping[str, Any], **more: Any) -> dict[int, dict[str, Any]]:
        given = [{"trainable": True, "weights": fp32([0.0] * parameter["numel"])} | parameter for parameter in parameters]
        self.number = 0
        message = {"type": "configure", "run": 0, "engine": engine, "parameters": given, "model_dtype": "fp32", "groups": {}, "linear": False, "observe": True,
                   "seed": 0}
        return self.ask({rank: message | more for rank in self.ranks})

    def event(self, name: str, gradients: Mapping[int, Mapping[int, Sequence[float]]] | None = None, ranks: Sequence[int] | None = None,
              **arguments: Any) -> dict[int, dict[str, Any]]:
        return self.ask(self.messages_of(name, gradients, ranks, **arguments))

    def ahead(self, *events: tuple) -> list[dict[int, dict[str, Any]]]:
        """Sent before any of them is answered: a rank may need another one's next event to end its own. Each is a name, and gradients where it has some."""
        for event in events:
            for rank, message in self.messages_of(*event).items():
                self.ranks[rank].send(message)
        return [{rank: self.ranks[rank].receive() for rank in self.ranks} for _ in events]

    def messages_of(self, name: str, gradients: Mapping[int, Mapping[int, Sequence[float]]] | None = None, ranks: Sequence[int] | None = None,
                    further: Sequence[Mapping[int, Mapping[int, Sequence[float]]]] = (), **arguments: Any) -> dict[int, dict[str, Any]]:
        """`gradients` by rank and parameter; they are used in the reverse order of parameters. `further`: those of the other losses of a sum."""
        messages = {}
        for rank in self.ranks if ranks is None else ranks:
            own = (gradients or {}).get(rank, {})
            of_gradients = {"micro_batch": 0, "uses": sorted(own, reverse=True)} if name in ("forward", "backward") else {}
            messages[rank] = {"type": "event", "number": self.number, "name": name, "arguments": of_gradients | arguments,
                              "gradients": {str(p): fp32(values) for p, values in own.items()}}
            if further:
                messages[rank]["arguments"]["summed"] = 1 + len(further)
                messages[rank]["further"] = [{"micro_batch": number, "uses": sorted(one[rank], reverse=True), "gradients": {str(p): fp32(v) for p, v in one[rank].items()}}
                                             for number, one in enumerate(further, 1)]
        self.number += 1
        return messages


def passed_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(1 << 16):
            sink.sendall(part)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def fp32(values: Sequence[float]) -> bytes:
    return numpy.asarray(values, dtype="<f4").tobytes()


def values(buffer: Mapping[str, Any]) -> list[float]:
    data = bytearray(buffer["data"])
    return torch.frombuffer(data, dtype=DTYPES[buffer["dtype"]]).double().tolist() if data else []


def shown(done: Mapping[str, Any], role: str | None = None) -> dict[str, list[float]]:
    """Buffers of an answer, by name."""
    return {buffer["name"]: values(buffer) for buffer in done["buffers"] if role in (None, buffer["role"])}


def by_element(done: Mapping[str, Any], role: str) -> dict[tuple[int, int], float]:
    """What buffers of a role hold, by parameter and element."""
    out = {}
    for buffer in done["buffers"]:
        if buffer["role"] != role:
            continue
        rest = values(buffer)
        for parameter, offset, numel in buffer["pieces"]:
            if parameter >= 0:
                out |= {(parameter, offset + i): rest[i] for i in range(numel)}
            rest = rest[numel:]
        assert not rest
    return out


def ok(answers: Mapping[int, Mapping[str, Any]]) -> Mapping[int, Mapping[str, Any]]:
    for rank, answer in answers.items():
        assert answer["type"] in ("configured", "done", "finished") and not answer.get("error"), f"rank {rank}: {answer}"
    return answers
