"""Hosts of drivers with shards, for tests that ask them: two ranks, and what they are given and then hold together."""
from __future__ import annotations

import pytest

from command import Command, by_element, ok

# Sizes that two ranks cannot share evenly.
PARAMETERS = [{"name": "a", "numel": 3}, {"name": "b", "numel": 5}]
GIVEN = {0: {0: [1, 2, 3], 1: [0, 5, 0, 1, 7]}, 1: {0: [3, 2, 1], 1: [2, 5, 4, 1, 9]}}
MEAN = {(0, 0): 2, (0, 1): 2, (0, 2): 2, (1, 0): 1, (1, 1): 5, (1, 2): 2, (1, 3): 1, (1, 4): 8}


@pytest.fixture(scope="module")
def commands():
    """Hosts take seconds to start: each is kept for all tests of its driver."""
    started: dict[str, Command] = {}

    def command(driver: str) -> Command:
        if driver not in started:
            started[driver] = Command(driver).__enter__()
            started[driver].start_ranks()
        return started[driver]
    yield command
    for each in started.values():
        each.__exit__()


def configured(commands, driver, config=None, parameters=PARAMETERS, optimizer=None, **more):
    command = commands(driver)
    ok(command.configure(parameters, {"framework": driver, "config": config or {}, "optimizer": optimizer or {"type": "SGD"}}, **more))
    return command


def whole(answers, role):
    """What all ranks hold together. No two hold the same element."""
    out: dict = {}
    for answer in ok(answers).values():
        held = by_element(answer, role)
        assert not out.keys() & held.keys()
        out |= held
    return out
