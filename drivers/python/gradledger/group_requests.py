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
    """A rank that waits does nothing else, as far as the command can see: while one thread waits, others neither ask nor wait, but take what has come.

    Whoever waits reads the connection. There is no thread of its own that could read at a moment that nobody chose.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._is_waiting = False
        self._issued = 0
        self._answers: dict[int, dict[str, Any]] = {}

    def issue(self, **keys: Any) -> int:
        """Sends a collective. Numbers follow the order of sending."""
        with self._changed:
            while self._is_waiting:
                self._changed.wait()
            number = self._issued
            self._issued += 1
            self._connection.send({"type": "collective", "id": number} | keys)
        return number

    def issued(self) -> int:
        return self._issued

    def result(self, number: int) -> bytes | None:
        """Waits for one collective. None: the command says to go on without it, which it says once at most for each."""
        with self._changed:
            while self._is_waiting and number not in self._answers:
                self._changed.wait()
            answer = self._answers.pop(number, None)
            self._is_waiting |= answer is None
        if answer is None:
            answer = self._wait_for(number)
        if answer["type"] == "go_on":
            return None
        if answer["type"] == "refused":
            error = answer["error"]
            raise REFUSALS.get(error["type"], CollectiveError)(error["text"])
        return answer["data"]

    def _wait_for(self, number: int) -> dict[str, Any]:
        """Nobody else sends or reads until this is over."""
        try:
            self._connection.send({"type": "wait", "id": number})
            while True:
                message = self._connection.receive()
                if message["type"] not in ("result", "refused", "go_on"):
                    raise CollectiveError(f"the command sent {message['type']!r} instead of a result. {message.get('reason', '')}")
                if message["id"] == number:
                    return message
                with self._changed:
                    self._answers[message["id"]] = message
                    self._changed.notify_all()
        finally:
            with self._changed:
                self._is_waiting = False
                self._changed.notify_all()
