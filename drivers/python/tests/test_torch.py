"""The bare optimizer on one process."""
from __future__ import annotations

import pytest

from command import Command, by_element, ok, shown

PARAMETERS = [{"name": "a", "numel": 2}, {"name": "b", "numel": 1}]
GIVEN = {0: {0: [1, 2], 1: [4]}}


@pytest.fixture(scope="module")
def command():
    with Command("torch", 1) as out:
        out.start_ranks()
        yield out


def test_gradients_add_up_until_they_are_cleared(command):
    ok(command.configure(PARAMETERS, {"framework": "torch", "config": {}, "optimizer": {"type": "SGD", "lr": 0.5}}))
    ok(command.event("backward", GIVEN))
    assert shown(ok(command.event("backward", GIVEN, loss_factor=0.5))[0], "local") == {"a.grad": [1.5, 3], "b.grad": [6]}
    answer = ok(command.event("step"))[0]
    assert by_element(answer, "applied") == {(0, 0): 1.5, (0, 1): 3, (1, 0): 6} and shown(answer, "parameter") == {"a": [-0.75, -1.5], "b": [-3]}
    assert not ok(command.event("zero_grad", of="optimizer"))[0]["buffers"]


def test_reentrant_autograd_deposits_the_same(command):
    ok(command.configure(PARAMETERS, {"framework": "torch", "config": {}}))
    assert shown(ok(command.event("backward", GIVEN, phases=2))[0]) == {"a.grad": [1, 2], "b.grad": [4]}


def test_one_forward_may_have_several_backwards(command):
    ok(command.configure(PARAMETERS, {"framework": "torch", "config": {}}))
    ok(command.event("forward", GIVEN))
    ok(command.event("backward", GIVEN, of=0))
    assert shown(ok(command.event("backward", GIVEN, of=0))[0]) == {"a.grad": [2, 4], "b.grad": [8]}
    assert command.event("backward", of=7)[0]["error"]["type"] == "Refused"


@pytest.mark.parametrize(("kind", "expected"), [("Adam", 0.5), ("AdamW", 0.25)])
def test_adam_adds_the_decay_to_the_gradient_and_adamw_takes_it_off_the_weight(command, kind, expected):
    optimizer = {"type": kind, "lr": 0.5, "betas": [0.0, 0.0], "eps": 0.0, "weight_decay": 0.5, "torch_adam": True}
    parameter = {"name": "w", "numel": 1, "weights": bytes.fromhex("0000803f")}
    ok(command.configure([parameter], {"framework": "torch", "config": {}, "optimizer": optimizer}))
    ok(command.event("backward", {0: {0: [4]}}))
    # Adam: 1 - 0.5 sign(4.5); AdamW: 1 - 0.5 * 0.5 * 1 - 0.5 sign(4).
    assert shown(ok(command.event("step"))[0], "parameter") == {"w": [expected]}


def test_arguments_of_a_wrapper_are_left_out_with_a_note(command):
    answer = ok(command.configure(PARAMETERS, {"framework": "ddp", "config": {"static_graph": True}}))[0]
    assert answer["notes"] == ["no DistributedDataParallel: static_graph left out"]


def test_what_needs_a_wrapper_is_not_offered(command):
    assert "enter_no_sync" not in command.host.hello["capabilities"]["events"]
    ok(command.configure(PARAMETERS, {"framework": "torch", "config": {}}))
    assert command.event("enter_no_sync")[0]["error"]["type"] == "Refused"


@pytest.mark.parametrize("arguments", [{"direct": True, "of": 7}, {"scale_wrt_gas": False}])
def test_a_backward_that_torch_does_not_have_is_refused(command, arguments):
    ok(command.configure(PARAMETERS, {"framework": "torch", "config": {}}))
    assert command.event("backward", GIVEN, **arguments)[0]["error"]["type"] == "Refused"


def test_an_optimizer_that_is_not_known_is_refused(command):
    answer = command.configure(PARAMETERS, {"framework": "torch", "config": {}, "optimizer": {"type": "Muon"}})[0]
    assert answer["type"] == "refused" and answer["by_driver"] and "Muon" in answer["error"]["text"]


def test_more_than_one_process_is_refused():
    with Command("torch", 2) as command:
        command.start_ranks()
        answer = command.configure(PARAMETERS, {"framework": "torch", "config": {}})[0]
        assert answer["type"] == "refused" and "world_size 1" in answer["error"]["text"]
