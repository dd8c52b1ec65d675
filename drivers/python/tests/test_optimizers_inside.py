"""Optimizers that run inside backwards, of DistributedDataParallel and of fully_shard on two ranks: what they apply, by values worked out by hand."""
from __future__ import annotations

import pytest
import torch

from command import Command, by_element, ok, shown

PARAMETERS = [{"name": "a", "numel": 4}, {"name": "b", "numel": 2}]
GIVEN = {0: {0: [1, 2, 3, 4], 1: [10, 5]}, 1: {0: [3, 2, 1, 0], 1: [20, 7]}}
MEAN = {"a": [2, 2, 2, 2], "b": [15, 6]}
OWN = {rank: {"a": given[0], "b": given[1]} for rank, given in GIVEN.items()}
SGD = {"type": "SGD", "lr": 0.5}
FSDP2 = torch.__version__ >= "2.6"  # on a CPU


@pytest.fixture(scope="module")
def ddp():
    with Command("ddp") as out:
        out.start_ranks()
        yield out


@pytest.fixture(scope="module")
def fsdp2():
    with Command("fsdp2") as out:
        out.start_ranks()
        yield out


def configure(command, framework, config, **more):
    return ok(command.configure(PARAMETERS, {"framework": framework, "config": config, "optimizer": SGD}, **more))


@pytest.mark.parametrize("observe", [True, False])
@pytest.mark.parametrize(("key", "applied"), [("optimizer_in_backward", {0: MEAN, 1: MEAN}), ("post_accumulate_grad_hook", OWN)])
def test_a_backward_steps_with_the_average_or_with_what_a_rank_has_itself(ddp, key, applied, observe):
    configure(ddp, "ddp", {key: True}, observe=observe)
    for times in (1, 2):
        for rank, answer in ok(ddp.event("backward", GIVEN)).items():
            assert shown(answer, "applied") == {f"{name}.grad in its hook": values for name, values in applied[rank].items()}
            assert shown(answer, "parameter") == {name: [-0.5 * times * value for value in values] for name, values in applied[rank].items()}
            assert answer["facts"] == {"updated": 1}


def test_a_backward_in_no_sync_steps_with_its_own_gradient_in_a_hook_of_the_loop(ddp):
    configure(ddp, "ddp", {"post_accumulate_grad_hook": True})
    ok(ddp.event("enter_no_sync"))
    for rank, answer in ok(ddp.event("backward", GIVEN)).items():
        assert shown(answer, "applied")["a.grad in its hook"] == OWN[rank]["a"]
    ok(ddp.event("exit_no_sync"))


def test_what_hooks_stepped_on_in_a_backward_that_raised_is_shown(ddp):
    """The first backward of a static graph in no_sync ends with an exception, behind all hooks."""
    configure(ddp, "ddp", {"post_accumulate_grad_hook": True, "static_graph": True})
    ok(ddp.event("enter_no_sync"))
    for rank, answer in ddp.event("backward", GIVEN).items():
        assert "INTERNAL ASSERT" in answer["error"]["text"]
        assert shown(answer, "applied")["a.grad in its hook"] == OWN[rank]["a"]


def test_groups_of_parameters_have_learning_rates_of_their_own(ddp):
    groups = [{"params": ["b"], "lr": 0.25}, {"params": ["a"]}]
    for key in ("optimizer_in_backward", "post_accumulate_grad_hook"):
        ok(ddp.configure(PARAMETERS, {"framework": "ddp", "config": {key: True}, "optimizer": SGD, "param_groups": groups}))
        given = {rank: GIVEN[0] for rank in GIVEN}
        assert shown(ok(ddp.event("backward", given))[0], "parameter") == {"a": [-0.5, -1, -1.5, -2], "b": [-2.5, -1.25]}


def test_moments_last_over_a_checkpoint(ddp):
    ok(ddp.configure(PARAMETERS, {"framework": "ddp", "config": {"post_accumulate_grad_hook": True}, "optimizer": {"type": "Adam"}}))
    before = shown(ok(ddp.event("backward", GIVEN))[0], "first moment")
    ok(ddp.event("save"))
    ok(ddp.event("restore"))
    after = shown(ok(ddp.event("backward", {rank: {0: [0] * 4, 1: [0] * 2} for rank in GIVEN}))[0], "first moment")
    assert {name: [0.9 * value for value in values] for name, values in before.items()} == {name: pytest.approx(values) for name, values in after.items()}
    assert any(value != 0 for values in before.values() for value in values)


@pytest.mark.skipif(not FSDP2, reason="fully_shard asks for CUDA there")
def test_a_shard_is_stepped_once_it_is_reduced_and_its_gradient_is_gone(fsdp2):
    configure(fsdp2, "fsdp2", {"optimizer_in_backward": True})
    ok(fsdp2.event("enter_no_sync"))
    for answer in ok(fsdp2.event("backward", GIVEN)).values():
        assert not shown(answer, "applied") and answer["facts"] == {}
    ok(fsdp2.event("exit_no_sync"))
    held = {}
    for answer in ok(fsdp2.event("backward", GIVEN)).values():
        held |= by_element(answer, "applied")
        assert not shown(answer, "reduced") and answer["facts"] == {"updated": 1}
    assert held == {(p, i): 2 * value for p, name in enumerate(MEAN) for i, value in enumerate(MEAN[name])}


@pytest.mark.skipif(not FSDP2, reason="fully_shard asks for CUDA there")
def test_a_clip_that_is_given_a_generator_that_was_gone_through_clips_nothing(fsdp2):
    for config, norm in (({}, pytest.approx(277 ** 0.5)), ({"clips_a_used_up_generator": True}, 0)):
        configure(fsdp2, "fsdp2", config)
        ok(fsdp2.event("backward", GIVEN))
        held = {}
        for answer in ok(fsdp2.event("clip_gradients", max_norm=1.0, group="world")).values():
            held |= by_element(answer, "reduced")
            assert answer["facts"] == {"loop_norm": norm}
        assert (held[1, 0] == 15) == bool(config)
