"""Frames and addresses, without a framework."""
from __future__ import annotations

import socket
import threading

import msgpack
import pytest

from gradledger import protocol
from gradledger.protocol import Address, Closed, Connection, ProtocolError


@pytest.fixture
def both():
    ours, theirs = socket.socketpair()
    yield Connection(ours), theirs
    ours.close()
    theirs.close()


def frame(message, size=None) -> bytes:
    body = message if isinstance(message, bytes) else msgpack.packb(message)
    return (len(body) if size is None else size).to_bytes(4, "big") + body


@pytest.mark.parametrize("text", ["", "unix:", "tcp:", "tcp:host", "tcp:host:", "tcp:host:0", "tcp:host:65536", "tcp::80", "udp:host:80", "/tmp/socket",
                                  "tcp:host:٣"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ProtocolError, match="expected unix:PATH or tcp:HOST:PORT"):
        Address(text)


def test_addresses_are_read():
    assert Address("unix:/tmp/a:b").place == "/tmp/a:b"
    assert Address("tcp:127.0.0.1:80").place == ("127.0.0.1", 80)
    assert Address("tcp:[::1]:80").family == socket.AF_INET6


def test_a_message_arrives_however_its_bytes_are_cut(both):
    connection, theirs = both
    sent = {"type": "result", "id": 3, "data": bytes(range(256)) * 300}

    def drip():
        whole = frame(sent)
        for i in range(0, len(whole), 1 << 10):
            theirs.sendall(whole[i:i + (1 << 10)])
    thread = threading.Thread(target=drip)
    thread.start()
    assert connection.receive() == sent
    thread.join()


@pytest.mark.parametrize(("sent", "says"), [
    (frame(b"\xc1"), "no MessagePack"),
    (frame(b""), "no MessagePack"),
    (frame(msgpack.packb({"type": "bye"}) + b"\x00"), "no MessagePack"),
    (frame(b"\x91" * 5000 + b"\xc0"), "no MessagePack"),
    (frame(b"\xdf\xff\xff\xff\xff"), "no MessagePack"),
    (frame([1]), "no map with a type"),
    (frame({"type": 1}), "no map with a type"),
    (frame({"type": "hullo"}), "expected one of"),
    (frame({"type": "bye", "reson": ""}), "unknown key reson"),
    (frame({"type": "result", "id": 1}), "lacks data"),
    (b"\x40\x00\x00\x01", "expected at most 1073741824"),
])
def test_what_is_no_message_is_named(both, sent, says):
    connection, theirs = both
    theirs.sendall(sent)
    with pytest.raises(ProtocolError, match=says):
        connection.receive()


def test_an_end_between_frames_is_no_error_and_one_inside_is(both):
    connection, theirs = both
    theirs.sendall(frame({"type": "bye"}))
    theirs.sendall(frame({"type": "bye"})[:6])
    theirs.shutdown(socket.SHUT_WR)
    connection.receive()
    with pytest.raises(ProtocolError, match="inside of a frame"):
        connection.receive()
    ours, other = socket.socketpair()
    other.close()
    with pytest.raises(Closed):
        Connection(ours).receive()
    ours.close()


def test_threads_that_send_do_not_mix_their_frames(both):
    connection, theirs = both
    def send(byte: int) -> None:
        for _ in range(5):
            connection.send({"type": "x", "data": bytes([byte]) * 100_000})
    threads = [threading.Thread(target=send, args=(byte,)) for byte in range(4)]
    for thread in threads:
        thread.start()
    other = Connection(theirs)
    for _ in range(20):
        data = msgpack.unpackb(other.read(int.from_bytes(other.read(4), "big")))["data"]
        assert len(data) == 100_000 and len(set(data)) == 1
    for thread in threads:
        thread.join()


def test_an_environment_without_a_secret_is_told_so():
    with pytest.raises(ProtocolError, match="GRADLEDGER_ADDRESS and GRADLEDGER_TOKEN"):
        protocol.connect(protocol.hello("group", 0, 1), environment={})
    with pytest.raises(ProtocolError, match="64 hexadecimal digits"):
        protocol.connect(protocol.hello("group", 0, 1), environment={"GRADLEDGER_ADDRESS": "unix:/nowhere", "GRADLEDGER_TOKEN": "secret"})


@pytest.mark.parametrize(("answer", "says"), [({"type": "bye", "reason": "protocol 9 is spoken here"}, "protocol 9 is spoken here"),
                                              ({"type": "go_on", "id": 1}, "expected 'welcome'")])
def test_whoever_is_not_welcome_is_told_why(tmp_path, answer, says):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen(1)
    heard = []

    def command():
        theirs, _ = listener.accept()
        heard.append(theirs.recv(64, socket.MSG_WAITALL))
        theirs.sendall(frame(answer))
        theirs.recv(1 << 16)
    thread = threading.Thread(target=command)
    thread.start()
    with pytest.raises(ProtocolError, match=says):
        protocol.connect(protocol.hello("group", 0, 1), environment={"GRADLEDGER_ADDRESS": f"unix:{tmp_path}/s", "GRADLEDGER_TOKEN": "0f" * 32})
    thread.join()
    listener.close()
    assert heard == [b"0f" * 32]
