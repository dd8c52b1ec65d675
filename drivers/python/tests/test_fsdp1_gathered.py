"""The real FullyShardedDataParallel on two ranks, where a backward or a forward left weights that are no part of a shard, and a step follows."""
from __future__ import annotations

import pytest

from command import by_element, ok
from fsdp_world import GIVEN, MEAN, commands, configured, whole  # noqa: F401


@pytest.mark.parametrize("config", [{}, {"wrap": "root"}, {"use_orig_params": True}, {"use_orig_params": True, "wrap": "root"}, {"units": [["b"]], "use_orig_params": True}])
def test_weights_that_an_exception_left_gathered_are_told_by_their_shards(commands, config):
    command = configured(commands, "fsdp1", config)
    answers = command.event("backward", GIVEN, raises_after=0)
    assert all("raised by the script in a backward" in str(answer) for answer in answers.values())
    assert whole(command.event("step"), "parameter") == dict.fromkeys(MEAN, 0)


def test_one_element_that_an_exception_left_gathered_is_let_go_of_by_the_next_backward(commands):
    """It is as large as its shard. What the wrapper gathered for it is not shown, and stays the wrapper's own to free."""
    command = configured(commands, "fsdp1", parameters=[{"name": "w", "numel": 1}])
    given = {rank: {0: [2 + 2 * rank]} for rank in range(2)}
    assert all("raised by the script" in str(answer) for answer in command.event("backward", given, raises_after=0).values())
    assert whole(command.event("step"), "parameter") == {(0, 0): 0}
    assert whole(command.event("backward", given), "reduced") == {(0, 0): 3}


def test_weights_that_a_called_module_has_replaced_are_shown_all_the_same(commands):
    """Without shards the optimizer keeps the parameter whose place a view has taken, which belongs to no flat one any more."""
    command = configured(commands, "fsdp1", {"sharding_strategy": "NO_SHARD", "use_orig_params": True, "calls_unused_units": True})
    ok(command.event("backward", {rank: {0: GIVEN[rank][0]} for rank in range(2)}))
    ok(command.event("backward", GIVEN))
    for answer in ok(command.event("step")).values():
        assert by_element(answer, "parameter").keys() == MEAN.keys()


@pytest.mark.parametrize("numel", [1, 3])
def test_a_step_on_gathered_weights_is_shown_whole_unless_adam_has_moments_of_a_shard(commands, numel):
    command = configured(commands, "fsdp1", parameters=[{"name": "w", "numel": numel}], optimizer={"type": "Adam"})
    given = {rank: {0: [1 + rank] * numel} for rank in range(2)}
    own = [{(0, i): 1 + rank for i in range(numel)} for rank in range(2)]
    kept = dict.fromkeys(own[0], 0)
    for steps_before in (False, True):
        ok(command.event("enter_no_sync"))
        ok(command.event("backward", given))
        ok(command.event("exit_no_sync"))
        command.event("backward", given, raises_after=0)
        answers = command.event("step")
        if steps_before and numel > 1:
            assert all("must match" in str(answer) for answer in answers.values()) and not any(by_element(answer, "applied") for answer in answers.values())
            return
        assert [by_element(answer, "applied") for answer in answers.values()] == own
        assert whole(answers, "parameter") == kept, "the shard, which nothing has changed"
        command = configured(commands, "fsdp1", parameters=[{"name": "w", "numel": numel}], optimizer={"type": "Adam"})
        ok(command.event("backward", given))
        kept = whole(command.event("step"), "parameter")
        ok(command.event("zero_grad"))


def test_the_optimizer_has_parameters_in_the_order_of_the_module(commands):
    """Those of the root come first. Its gradient, which is whole, fits no shard, so that the step raises before it comes to the unit of one element."""
    parameters = [{"name": "a", "numel": 1}, {"name": "b", "numel": 5}]
    for config in ({"units": [["a"]]}, {"units": [["a"]], "use_orig_params": True}):
        command = configured(commands, "fsdp1", config, parameters)
        ok(command.event("enter_no_sync"))
        ok(command.event("backward", {rank: {0: [3], 1: values[1]} for rank, values in GIVEN.items()}))
        answers = command.event("step")
        assert all("must match" in str(answer) for answer in answers.values())
        assert not any(by_element(answer, "applied") for answer in answers.values())
