"""The drivers on the process group of gradledger: the same gradients, and every collective with the event that it belongs to."""
from __future__ import annotations

import pytest

from command import Command, by_element, ok

PARAMETERS = [{"name": "a", "numel": 3}, {"name": "b", "numel": 5}]
GIVEN = {0: {0: [1, 2, 3], 1: [0, 5, 0, 1, 7]}, 1: {0: [3, 2, 1], 1: [2, 5, 4, 1, 9]}}
MEAN = {(0, 0): 2, (0, 1): 2, (0, 2): 2, (1, 0): 1, (1, 1): 5, (1, 2): 2, (1, 3): 1, (1, 4): 8}


@pytest.mark.parametrize(("driver", "kinds"), [
    ("ddp", {"all_reduce"}), ("fsdp2", {"all_gather", "reduce_scatter"}), ("fsdp1", {"all_gather", "reduce_scatter"})])
def test_a_window_is_averaged_and_its_collectives_say_their_event(driver, kinds):
    with Command(driver, 2, backend="gradledger") as command:
        command.start_ranks()
        for _ in range(2):
            earlier = len(command.coordinator.log)
            ok(command.configure(PARAMETERS, {"framework": driver, "config": {}}))
            before = len(command.coordinator.log)
            assert all(message["event"] == -1 for _, message in command.coordinator.log[earlier:before] if message["type"] == "collective")
            ok(command.event("enter_no_sync"))
            ok(command.event("backward", GIVEN))
            ok(command.event("exit_no_sync"))
            ok(command.event("backward", GIVEN))
            answers = ok(command.event("step"))
            assert by_element(answers[0], "applied") | by_element(answers[1], "applied") == {place: 2 * value for place, value in MEAN.items()}
            sent = [message for _, message in command.coordinator.log[before:] if message["type"] == "collective"]
            assert {message["kind"] for message in sent if message["event"] == 3} == kinds
            assert {message["event"] for message in sent} <= {1, 3}
        assert not command.coordinator.problems


def test_ranks_that_ask_for_different_things_are_told():
    with Command("ddp", 2, backend="gradledger") as command:
        command.start_ranks()
        ok(command.configure(PARAMETERS, {"framework": "ddp", "config": {}}))
        ok(command.event("enter_no_sync", ranks=[1]))
        ok(command.event("backward", GIVEN, ranks=[1]))
        ok(command.event("exit_no_sync", ranks=[1]))
        for rank in range(2):
            name, arguments = ("backward", {"micro_batch": 0, "uses": [1, 0]}) if rank else ("all_reduce", {"group": "world", "of": "scalar", "as": "sum"})
            gradients = {str(p): bytes(4 * PARAMETERS[p]["numel"]) for p in range(2)} if rank else {}
            command.ranks[rank].send({"type": "event", "number": 9, "name": name, "arguments": arguments, "gradients": gradients})
        errors = [command.ranks[rank].receive()["error"] for rank in range(2)]
        assert all(error["type"] == "CollectiveMismatch" and "event 9" in error["text"] for error in errors)
