"""The requests of all process groups of a process: one connection, from whatever thread."""
from __future__ import annotations

import threading
from typing import Any, Protocol


class CollectiveError(RuntimeError):
    """The command refused a collective; the text says what each rank had asked for."""


class CollectiveMismatch(CollectiveError):
    """The members of a group do not ask for the same."""


class CollectiveDeadlock(CollectiveError):
    """Nobody can move any more."""


class CollectiveRefused(CollectiveError):
    """What is asked for is nothing that the protocol, or the command, can do."""


REFUSALS = {kind.__name__: kind for kind in (CollectiveMismatch, CollectiveDeadlock, CollectiveRefused)}


class Connection(Protocol):
    def send(self, message: dict[str, Any]) -> None: ...

    def receive(self) -> dict[str, Any]: ...


class Requests:
    """Whoever waits reads the connection, and keeps what is meant for others: there is no thread that could read at a moment that nobody chose."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._reading = False
        self._issued = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._broken: BaseException | None = None

    def issue(self, **keys: Any) -> int:
        """Sends a collective. Numbers follow the order of sending."""
        with self._sending:
            number = self._issued
            self._issued += 1
            self._connection.send({"type": "collective", "id": number} | keys)
        return number

    def issued(self) -> int:
        return self._issued

    def result(self, number: int) -> bytes | None:
        """Waits for one collective. None: the command says to go on without it, which it says once at most for each."""
        with self._changed:
            known = number in self._answers
        if not known:
            with self._sending:
                self._connection.send({"type": "wait", "id": number})
        answer = self._answer(number)
        if answer["type"] == "go_on":
            return None
        if answer["type"] == "refused":
            error = answer["error"]
            raise REFUSALS.get(error["type"], CollectiveError)(error["text"])
        return answer["data"]

    def _answer(self, number: int) -> dict[str, Any]:
        while True:
            with self._changed:
                while number not in self._answers and self._reading and self._broken is None:
                    self._changed.wait()
                if number in self._answers:
                    return self._answers.pop(number)
                if self._broken is not None:
                    raise CollectiveError(f"the connection to the command is gone: {self._broken}") from self._broken
                self._reading = True
            self._read_one()

    def _read_one(self) -> None:
        message: dict[str, Any] | None = None
        broken: BaseException | None = None
        try:
            message = self._connection.receive()
            if message["type"] not in ("result", "refused", "go_on"):
                broken = ConnectionError(message.get("reason") or f"a {message['type']!r} came, which answers no collective")
        except Exception as error:  # everybody who waits has to hear of it, not this thread alone
            broken = error
        finally:
            with self._changed:
                self._reading = False
                if broken is not None:
                    self._broken = broken
                elif message is not None:
                    self._answers[message["id"]] = message
                self._changed.notify_all()
