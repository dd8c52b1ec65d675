"""Connections to the command: an address, a secret, and frames of MessagePack. docs/driver-protocol.md describes them for every language."""
from __future__ import annotations

import os
import re
import socket
import threading
from typing import Any, Mapping

import msgpack

VERSION = 1
FRAME_BYTES_MAX = 1 << 30
HELLO_BYTES_MAX = 64 << 10
TOKEN_BYTES = 64

# What the command may send: keys that a message must have, and keys that it may have.
FROM_COMMAND: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    type_: (frozenset(must.split()), frozenset(may.split()))
    for type_, must, may in (
        ("welcome", "", ""),
        ("bye", "", "reason"),
        ("start", "rank world_size errors", ""),
        ("end", "rank", ""),
        ("configure", "run engine parameters model_dtype", "groups linear observe seed streams"),
        ("event", "number name", "arguments gradients further"),
        ("finish", "", "number"),
        ("result", "id data", ""),
        ("refused", "id error", ""),
        ("go_on", "id", ""),
    )
}


class ProtocolError(Exception):
    """The other side sent what the protocol does not have. Nothing after it can be understood."""


class Closed(Exception):
    """The other side closed the connection, which is how a run ends."""


class Address:
    """`unix:PATH` or `tcp:HOST:PORT`."""

    def __init__(self, text: str) -> None:
        kind, _, rest = text.partition(":")
        host, _, port = rest.rpartition(":")
        self.text = text
        if kind == "unix" and rest:
            self.family, self.place = socket.AF_UNIX, rest
        elif kind == "tcp" and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536:
            self.family, self.place = socket.AF_INET6 if ":" in host else socket.AF_INET, (host.strip("[]"), int(port))
        else:
            raise ProtocolError(f"{text!r} is no address; expected unix:PATH or tcp:HOST:PORT")

    def connect(self, timeout_seconds: float) -> socket.socket:
        out = socket.socket(self.family, socket.SOCK_STREAM)
        try:
            out.settimeout(timeout_seconds)
            out.connect(self.place)
            out.settimeout(None)
            if self.family != socket.AF_UNIX:
                out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            out.close()
            raise
        return out


class Connection:
    """Frames in both directions. Any thread may send; one receives."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.sending = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        packed = msgpack.packb(message)
        if len(packed) > FRAME_BYTES_MAX:
            raise ProtocolError(f"a message of type {message.get('type')!r} has {len(packed)} bytes; expected at most {FRAME_BYTES_MAX}")
        head = len(packed).to_bytes(4, "big")
        with self.sending:
            try:
                for part in (head + packed,) if len(packed) < 1 << 16 else (head, packed):
                    self.socket.sendall(part)
            except ConnectionError:
                raise Closed("the other side closed the connection") from None

    def receive(self) -> dict[str, Any]:
        """The next message. Raises Closed where the other side is gone, ProtocolError where it is no message of the command's."""
        size = int.from_bytes(self.read(4, between_frames=True), "big")
        if size > FRAME_BYTES_MAX:
            raise ProtocolError(f"a frame of {size} bytes is announced; expected at most {FRAME_BYTES_MAX}")
        try:
            message = msgpack.unpackb(self.read(size))
        except (ValueError, msgpack.exceptions.UnpackException) as error:
            raise ProtocolError(f"a frame of {size} bytes is no MessagePack: {error or type(error).__name__}") from None
        return checked(message)

    def read(self, size: int, between_frames: bool = False) -> bytearray:
        out = bytearray(size)
        rest = memoryview(out)
        while rest:
            try:
                count = self.socket.recv_into(rest)
            except ConnectionError:
                count = 0
            if not count:
                if between_frames and len(rest) == size:
                    raise Closed("the other side closed the connection")
                raise ProtocolError(f"the connection ended inside of a frame, {len(rest)} bytes before its end")
            rest = rest[count:]
        return out

    def close(self) -> None:
        self.socket.close()


def checked(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ProtocolError("a frame holds no map with a type")
    type_ = message["type"]
    if type_ not in FROM_COMMAND:
        raise ProtocolError(f"a message of type {type_!r}; expected one of {', '.join(FROM_COMMAND)}")
    must, may = FROM_COMMAND[type_]
    keys = message.keys() - {"type"}
    if missing := must - keys:
        raise ProtocolError(f"{type_!r} lacks {', '.join(sorted(missing))}")
    if unknown := keys - must - may:
        raise ProtocolError(f"{type_!r} has the unknown key {', '.join(sorted(map(str, unknown)))}")
    return message


def connect(hello: Mapping[str, Any], timeout_seconds: float = 60.0, environment: Mapping[str, str] = os.environ) -> Connection:
    """A connection to the command of GRADLEDGER_ADDRESS that has been welcomed. `hello` is what `hello()` makes."""
    missing = [name for name in ("GRADLEDGER_ADDRESS", "GRADLEDGER_TOKEN") if not environment.get(name)]
    if missing:
        raise ProtocolError(f"{' and '.join(missing)} not set; this process is started by gradledger, or by a launcher that it was given to")
    token = environment["GRADLEDGER_TOKEN"].encode()
    if not re.fullmatch(rb"[0-9a-fA-F]{%d}" % TOKEN_BYTES, token):
        raise ProtocolError(f"GRADLEDGER_TOKEN is no secret; expected {TOKEN_BYTES} hexadecimal digits")
    out = Connection(Address(environment["GRADLEDGER_ADDRESS"]).connect(timeout_seconds))
    try:
        out.socket.settimeout(timeout_seconds)
        out.socket.sendall(token)
        out.send(hello)
        answer = out.receive()
        out.socket.settimeout(None)
        if answer["type"] == "bye":
            raise ProtocolError(f"gradledger refuses this process: {answer.get('reason') or 'without a reason'}")
        if answer["type"] != "welcome":
            raise ProtocolError(f"the answer to hello is {answer['type']!r}; expected 'welcome'")
    except BaseException:
        out.close()
        raise
    return out


def hello(kind: str, rank: int | None = None, world_size: int | None = None, **more: Any) -> dict[str, Any]:
    """`more` is driver, versions and capabilities, for hosts and drivers."""
    out: dict[str, Any] = {"type": "hello", "protocol": VERSION, "kind": kind, "process": os.getpid()}
    if rank is not None:
        out |= {"rank": rank, "world_size": world_size}
    out |= more
    if len(msgpack.packb(out)) > HELLO_BYTES_MAX:
        raise ProtocolError(f"a hello of more than {HELLO_BYTES_MAX} bytes")
    return out
