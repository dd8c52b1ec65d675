"""The real DistributedDataParallel on two ranks: buffers by values worked out by hand."""
from __future__ import annotations

import pytest
import torch

from command import Command, by_element, ok, shown

RELEASE = tuple(int(number) for number in torch.__version__.split(".")[:2])
LAZY = ({"lazy_bucket_allocation": True}, {"lazy_bucket_allocation": True, "gradient_as_bucket_view": True})
PARAMETERS = [{"name": "a", "numel": 3}, {"name": "b", "numel": 2}]
GIVEN = {0: {0: [1, 2, 3], 1: [10, 5]}, 1: {0: [3, 2, 1], 1: [20, 7]}}
MEAN = {"a.grad": [2, 2, 2], "b.grad": [15, 6]}


@pytest.fixture(scope="module")
def command():
    with Command("ddp") as out:
        out.start_ranks()
        yield out


def configure(command, config=None, parameters=PARAMETERS, optimizer=None, **more):
    return ok(command.configure(parameters, {"framework": "ddp", "config": config or {}, "optimizer": optimizer or {"type": "SGD"}}, **more))


@pytest.mark.parametrize("config", [
    {}, {"bucket_cap_mb": 0.00001}, {"bucket_cap_mb_list": [0.00001, 1]}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True},
    {"static_graph": True}, {"batched_grad_copy": True}, {"find_unused_parameters": True, "skip_all_reduce_unused_params": True}, {"comm_hook": "allreduce"},
    {"comm_hook": "powerSGD", "PowerSGDState": {"start_powerSGD_iter": 2}, "rows": {"a": 3}}, {"comm_hook": "fp16_compress"}, {"comm_hook": "bf16_compress"}, {"comm_hook": "fp16_wrapper"}, {"comm_hook": "bf16_wrapper"},
    *(LAZY if RELEASE >= (2, 15) else ())], ids=str)
def test_a_backward_leaves_the_mean_in_every_configuration(command, config):
    configure(command, config)
    for _ in range(3):  # buckets are made again after the first
        for answer in ok(command.event("backward", GIVEN)).values():
            assert shown(answer, "replicated") == MEAN
        ok(command.event("step"))
        ok(command.event("zero_grad", of="optimizer"))


def test_a_term_around_the_outputs_is_averaged_too(command):
    """A loop keeps it, as the loss of a router, and adds it behind the forward."""
    parameters = [{"name": "a", "numel": 3}, {"name": "b", "numel": 2, "hooked_outputs": 0}, {"name": "c", "numel": 1, "hooked_outputs": 2}]
    for config in ({}, {"static_graph": True}, {"gradient_as_bucket_view": True}):
        configure(command, config, parameters)
        for _ in range(2):
            answers = ok(command.event("backward", {rank: {**GIVEN[rank], 2: [4.0 * rank]} for rank in GIVEN}, uses=[1, 2, 0]))
            assert all(shown(answer, "replicated") == {**MEAN, "c.grad": [2.0]} for answer in answers.values())
            ok(command.event("zero_grad", of="optimizer"))


def test_one_backward_of_a_sum_of_losses_is_reduced_once(command):
    """The second loss uses one parameter alone, and its forward looks for no other; the backward reaches all."""
    for config in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        configure(command, config)
        for answer in ok(command.event("backward", GIVEN, further=[{rank: {0: [4, 4, 4], 1: [6, 2]} for rank in GIVEN}])).values():
            assert shown(answer, "replicated") == {"a.grad": [6, 6, 6], "b.grad": [21, 8]}
    configure(command)
    for answer in ok(command.event("backward", GIVEN, further=[{rank: {1: [6, 2]} for rank in GIVEN}])).values():
        assert shown(answer, "replicated") == {"a.grad": [2, 2, 2], "b.grad": [21, 8]}


def test_a_backward_inside_the_forward_does_not_pass_the_wrapper_and_a_static_graph_reduces_nothing(command):
    for config, means in (({}, True), ({"find_unused_parameters": True}, True), ({"static_graph": True}, False)):
        configure(command, config | {"backward_in_forward": True})
        for rank, answer in ok(command.event("backward", GIVEN)).items():
            assert shown(answer, "replicated") == (MEAN if means else {"a.grad": GIVEN[rank][0], "b.grad": GIVEN[rank][1]})
    assert "backward_in_forward" in command.event("backward", GIVEN, of=3)[0]["error"]["text"]


def test_a_parameter_that_is_looked_for_at_the_outputs_alone_is_ready_twice(command):
    parameters = [{"name": "a", "numel": 3}, {"name": "b", "numel": 2, "hooked_outputs": 0}]
    configure(command, {"find_unused_parameters": True}, parameters)
    answers = command.event("backward", GIVEN, uses=[1, 0])
    assert all("mark a variable ready only once" in answer["error"]["text"] for answer in answers.values())


def test_a_delayed_all_reduce_is_over_or_not_when_a_backward_ends(command):
    """The wrapper drops its handle and nobody waits (upstream/ddp-delayed-all-reduce-not-waited): an element is the mean, or still the rank's own part of it."""
    configure(command, {"delay_all_reduce": {"params": ["b"], "hook": "a"}})
    for rank, answer in ok(command.event("backward", GIVEN)).items():
        seen = shown(answer)
        assert seen["a.grad"] == MEAN["a.grad"]
        assert all(value in (mean, own / 2) for value, mean, own in zip(seen["b.grad"], MEAN["b.grad"], GIVEN[rank][1], strict=True))


def test_buckets_that_are_allocated_in_backwards_are_refused_before_2_15(command):
    answer = command.configure(PARAMETERS, {"framework": "ddp", "config": LAZY[0]})[0]
    assert (answer["type"] == "refused") == (RELEASE < (2, 15)) and "lazy_bucket_allocation" in answer.get("error", {}).get("text", "lazy_bucket_allocation")


def test_a_skipped_bucket_is_copied_back_where_it_was_reduced_once(command):
    """Divided, and not averaged: what each rank has in no_sync. A bucket that is allocated for one backward has no reduction before it."""
    if RELEASE < (2, 8):
        return
    skips = {"bucket_cap_mb": 0.000001, "find_unused_parameters": True, "skip_all_reduce_unused_params": True}
    for config, factor in ((skips, 0.5), *([({**skips, **LAZY[0]}, 1.0)] if RELEASE >= (2, 15) else [])):
        configure(command, config)
        ok(command.event("backward", GIVEN))
        ok(command.event("zero_grad", of="optimizer", set_to_none=False))
        ok(command.event("enter_no_sync"))
        ok(command.event("backward", {rank: {0: GIVEN[rank][0]} for rank in GIVEN}))
        ok(command.event("exit_no_sync"))
        for rank, answer in ok(command.event("backward", {rank: {1: GIVEN[rank][1]} for rank in GIVEN})).items():
            assert shown(answer)["a.grad"] == [factor * value for value in GIVEN[rank][0]]


def test_a_bucket_cap_beside_delayed_parameters_is_a_whole_number_up_to_2_11(command):
    delayed = {"delay_all_reduce": {"params": ["b"], "hook": "a"}}
    assert command.configure(PARAMETERS, {"framework": "ddp", "config": {**delayed, "bucket_cap_mb": 2.0}})[0]["type"] != "refused"
    answer = command.configure(PARAMETERS, {"framework": "ddp", "config": {**delayed, "bucket_cap_mb": 1.5}})[0]
    assert (answer["type"] == "refused") == (RELEASE < (2, 12)) and answer.get("error", {}).get("type", "TypeError") == "TypeError"


def test_a_hook_that_does_nothing_leaves_own_gradients(command):
    configure(command, {"comm_hook": "noop"})
    assert {rank: shown(answer)["b.grad"] for rank, answer in ok(command.event("backward", GIVEN)).items()} == {0: [10, 5], 1: [20, 7]}


def test_a_hook_that_does_not_divide_leaves_the_sum(command):
    configure(command, {"comm_hook": "sum"})
    assert [shown(answer) for answer in ok(command.event("backward", GIVEN)).values()] == [{"a.grad": [4, 4, 4], "b.grad": [30, 12]}] * 2


def test_power_sgd_averages_until_it_starts_and_leaves_the_same_on_all_ranks_from_there_on(command):
    matrix = [{"name": "m", "numel": 6}]
    given = {0: {0: [1, 2, 3, 4, 5, 7]}, 1: {0: [3, 2, 1, 0, 5, 2]}}
    configure(command, {"comm_hook": "powerSGD", "rows": {"m": 2}, "PowerSGDState": {"start_powerSGD_iter": 2, "min_compression_rate": 1}}, matrix)
    seen = []
    for _ in range(4):
        answers = ok(command.event("backward", given))
        assert shown(answers[0]) == shown(answers[1])
        seen.append(shown(answers[0])["m.grad"])
        ok(command.event("step"))
        ok(command.event("zero_grad", of="optimizer"))
    assert seen[0] == seen[1] == [2, 2, 2, 2, 5, 4.5]
    assert seen[2] != seen[0] and seen[3] != seen[0]


def test_what_power_sgd_is_not_made_with_is_refused_by_pytorch(command):
    answer = command.configure(PARAMETERS, {"framework": "ddp", "config": {"comm_hook": "powerSGD", "PowerSGDState": {"start_powerSGD_iter": 1}}})[0]
    assert answer["type"] == "refused" and not answer["by_driver"] and "Expect `start_powerSGD_iter` > 1" in answer["error"]["text"]


def test_a_step_shows_what_it_was_given_and_the_weights_after_it(command):
    configure(command, optimizer={"type": "SGD", "lr": 0.5})
    ok(command.event("backward", GIVEN))
    for answer in ok(command.event("step")).values():
        assert by_element(answer, "applied") == {(0, 0): 2, (0, 1): 2, (0, 2): 2, (1, 0): 15, (1, 1): 6}
        assert shown(answer, "parameter") == {"a": [-1, -1, -1], "b": [-7.5, -3]}
        assert answer["facts"] == {"updated": 1}
        assert [buffer["at_end"] for buffer in answer["buffers"] if buffer["role"] == "applied"] == [False]
    assert not any(shown(answer) for answer in ok(command.event("zero_grad", of="engine")).values())
    assert not any(by_element(answer, "applied") for answer in ok(command.event("step")).values())


def test_moments_of_adam_are_shown_and_groups_have_their_own_rate(command):
    engine = {"framework": "ddp", "config": {}, "optimizer": {"type": "AdamW", "lr": 0.25, "betas": [0.5, 0.75], "eps": 0.0},
              "param_groups": [{"params": ["b"], "lr": 1.0}, {"params": ["a"]}]}
    ok(command.configure(PARAMETERS, engine))
    ok(command.event("backward", GIVEN))
    answer = ok(command.event("step"))[1]
    assert shown(answer, "first moment") == {"exp_avg[a]": [1, 1, 1], "exp_avg[b]": [7.5, 3]}
    assert shown(answer, "second moment") == {"exp_avg_sq[a]": [1, 1, 1], "exp_avg_sq[b]": [56.25, 9]}
    assert shown(answer, "parameter") == {"a": [-0.25] * 3, "b": [-1, -1]}


def test_a_restored_loop_goes_on_as_one_that_was_never_ended(command):
    held = []
    for ends in (False, True):
        configure(command, {"grad_scaler": {"init_scale": 8.0, "growth_interval": 2}}, optimizer={"type": "Adam", "lr": 0.25})
        for window in range(4):
            ok(command.event("backward", GIVEN))
            done = ok(command.event("step"))
            ok(command.event("zero_grad", of="optimizer"))
            if ends and window == 1:
                ok(command.event("save"))
                assert not any(shown(answer) for answer in ok(command.event("restore")).values())
        held.append([(answer["facts"], *(shown(answer, role) for role in ("parameter", "first moment", "second moment"))) for answer in done.values()])
    assert held[0] == held[1]


def test_a_restored_loop_has_no_gradient_of_the_window_before(command):
    configure(command)
    ok(command.event("enter_no_sync"))
    ok(command.event("backward", GIVEN))
    ok(command.event("exit_no_sync"))
    ok(command.event("save"))
    ok(command.event("restore"))
    assert shown(ok(command.event("backward", GIVEN))[1]) == MEAN


def test_no_sync_adds_up_own_gradients_until_a_backward_outside(command):
    configure(command)
    ok(command.event("enter_no_sync"))
    assert shown(ok(command.event("backward", GIVEN))[1]) == {"a.grad": [3, 2, 1], "b.grad": [20, 7]}
    ok(command.event("exit_no_sync"))
    assert shown(ok(command.event("backward", GIVEN))[1]) == {"a.grad": [4, 4, 4], "b.grad": [30, 12]}


def test_the_forward_decides_whether_its_backward_is_reduced(command):
    configure(command)
    ok(command.event("enter_no_sync"))
    ok(command.event("forward", GIVEN))
    ok(command.event("exit_no_sync"))
    assert shown(ok(command.event("backward", GIVEN, of=1))[1]) == {"a.grad": [3, 2, 1], "b.grad": [20, 7]}


def test_a_backward_that_the_loop_ends_leaves_own_gradients_until_then(command):
    configure(command)
    if not hasattr(torch.nn.parallel.DistributedDataParallel, "finalize_backward"):  # up to 2.14
        assert command.event("require_manual_backward_finalization", value=True)[0]["error"]["type"] == "Refused"
        assert command.event("finalize_backward")[0]["error"]["type"] == "Refused"
        return
    ok(command.event("require_manual_backward_finalization", value=True))
    assert shown(ok(command.event("backward", GIVEN))[1]) == {"a.grad": [3, 2, 1], "b.grad": [20, 7]}
    assert shown(ok(command.event("finalize_backward"))[1]) == MEAN
    assert "no gradient reduction requires finalization" in command.event("finalize_backward")[0]["error"]["text"]


def test_a_loss_factor_multiplies_before_the_reduction(command):
    configure(command)
    assert shown(ok(command.event("backward", GIVEN, loss_factor=0.25))[0]) == {"a.grad": [0.5, 0.5, 0.5], "b.grad": [3.75, 1.5]}


def test_a_parameter_that_one_rank_does_not_use_has_the_mean_with_zero(command):
    configure(command, {"find_unused_parameters": True})
    answers = ok(command.event("backward", {0: GIVEN[0], 1: {0: [3, 2, 1]}}))
    assert [shown(answer) for answer in answers.values()] == [{"a.grad": [2, 2, 2], "b.grad": [5, 2.5]}] * 2


def test_what_the_framework_raises_is_the_answer_and_the_rank_goes_on(command):
    configure(command)
    ok(command.event("backward", {rank: {0: GIVEN[rank][0]} for rank in range(2)}))  # b is not reduced, which DDP notices with the next forward
    for answer in command.event("backward", GIVEN).values():
        assert answer["error"]["type"] == "RuntimeError" and "Expected to have finished reduction" in answer["error"]["text"]
        assert "distributed.py" in answer["error"]["traceback"]
    configure(command)
    ok(command.event("backward", GIVEN))


def test_an_exception_leaves_autograd_after_so_many_gradients(command):
    configure(command)
    ok(command.event("enter_no_sync"))
    answer = command.event("backward", GIVEN, raises_after=1)[0]
    assert answer["error"]["text"] == "raised by the script in a backward"
    assert shown(answer) == {"b.grad": [10, 5]}


def test_a_caught_exception_leaves_the_block(command):
    configure(command)
    ok(command.event("enter_no_sync"))
    ok(command.event("raise", caught=True))
    ok(command.event("exit_no_sync", raising=True))
    assert shown(ok(command.event("backward", GIVEN))[0]) == MEAN
    error = command.event("raise", caught=False)[0]["error"]
    assert (error["type"], error["text"]) == ("RuntimeError", "raised by the script")


def test_a_scaler_multiplies_losses_and_skips_a_step_that_overflows(command):
    configure(command, {"grad_scaler": {"init_scale": 1024.0, "growth_interval": 1}})
    answer = ok(command.event("backward", GIVEN))[0]
    assert shown(answer) == {"a.grad": [2048] * 3, "b.grad": [15360, 6144]} and {buffer["scale"] for buffer in answer["buffers"]} == {1024}
    answer = ok(command.event("step"))[0]
    assert by_element(answer, "applied")[(1, 0)] == 15 and answer["facts"] == {"updated": 1, "skipped": 0, "loss_scale": 2048}
    ok(command.event("zero_grad", of="optimizer"))
    ok(command.event("backward", {0: GIVEN[0] | {0: [float("inf"), 0, 0]}, 1: GIVEN[1]}))
    answer = ok(command.event("step"))[1]
    assert not by_element(answer, "applied") and answer["facts"] == {"updated": 0, "skipped": 1, "loss_scale": 1024}


def test_gradients_are_unscaled_ahead_of_the_step_once(command):
    configure(command, {"grad_scaler": {"init_scale": 4.0}})
    ok(command.event("backward", GIVEN))
    answer = ok(command.event("unscale"))[0]
    assert shown(answer) == MEAN and {buffer["scale"] for buffer in answer["buffers"]} == {1}
    assert "already been called" in command.event("unscale")[0]["error"]["text"]
    assert by_element(ok(command.event("step"))[0], "applied")[(1, 1)] == 6


def test_a_loss_and_a_step_can_go_past_the_scaler(command):
    configure(command, {"grad_scaler": {"init_scale": 4.0}})
    assert shown(ok(command.event("backward", GIVEN, past_scaler=True))[0]) == MEAN
    answer = ok(command.event("step", past_scaler=True))[0]
    assert by_element(answer, "applied")[(1, 1)] == 6 and answer["facts"] == {"updated": 1}


def test_a_loop_scales_and_reduces_what_it_finds_itself(command):
    configure(command, groups={"pair": [[0, 1]], "alone": [[0], [1]]})
    ok(command.event("enter_no_sync"))
    ok(command.event("backward", GIVEN))
    ok(command.event("scale_gradients", by=0.5))
    ok(command.event("all_reduce", group="alone", **{"as": "sum", "of": "gradients"}))
    ok(command.event("all_reduce", group="pair", **{"as": "mean", "of": "scalar"}))
    assert shown(ok(command.event("all_reduce", group="pair", **{"as": "sum", "of": "gradients"}))[0]) == {"a.grad": [2, 2, 2], "b.grad": [15, 6]}
    assert shown(ok(command.event("all_reduce", group="world", **{"as": "mean", "of": "gradients"}))[1]) == {"a.grad": [2, 2, 2], "b.grad": [15, 6]}


def test_a_norm_is_of_the_rank_or_of_a_group(command):
    parameters, given = [{"name": "w", "numel": 2}], {0: {0: [3, 4]}, 1: {0: [0, 12]}}
    for group, norms in (("rank", (5, 12)), ("world", (13, 13))):
        configure(command, parameters=parameters)
        ok(command.event("enter_no_sync"))
        ok(command.event("backward", given))
        answers = ok(command.event("clip_gradients", max_norm=1.0, group=group))
        for rank, norm in enumerate(norms):
            assert answers[rank]["facts"] == {"loop_norm": norm}
            assert shown(answers[rank])["w.grad"] == pytest.approx([value / norm for value in given[rank][0]], rel=1e-5)
        assert ok(command.event("step"))[0]["facts"]["gradient_norm"] == norms[0]


def test_a_norm_is_not_of_what_comes_behind_it(command):
    configure(command, parameters=[{"name": "w", "numel": 2}])
    ok(command.event("clip_gradients", max_norm=1.0, group="rank"))
    ok(command.event("backward", {0: {0: [3, 4]}, 1: {0: [0, 12]}}))
    assert "gradient_norm" not in ok(command.event("step"))[0]["facts"]


def test_nothing_is_clipped_where_no_decision_may_depend_on_values(command):
    configure(command, linear=True)
    ok(command.event("backward", GIVEN))
    assert shown(ok(command.event("clip_gradients", max_norm=1e-3, group="rank"))[0]) == MEAN
    assert shown(ok(command.event("clip_gradients", max_norm=1e-3, group="world"))[0]) == MEAN
    assert command.event("clip_gradients", max_norm=1e-3, group="nowhere")[0]["error"]["type"] == "Refused"


def test_zero_grad_can_fill_instead_of_dropping(command):
    configure(command)
    ok(command.event("backward", GIVEN))
    assert shown(ok(command.event("zero_grad", of="optimizer", set_to_none=False))[0]) == {"a.grad": [0, 0, 0], "b.grad": [0, 0]}


def test_tied_frozen_and_empty_parameters_are_served(command):
    parameters = [{"name": "a", "numel": 2}, {"name": "frozen", "numel": 2, "trainable": False}, {"name": "none", "numel": 0},
                  {"name": "again", "numel": 2, "tied_to": "a"}]
    configure(command, parameters=parameters)
    answer = ok(command.event("backward", {0: {0: [1, 2], 2: []}, 1: {0: [3, 6], 2: []}}))[0]
    assert shown(answer) == {"a.grad": [2, 4]}
    assert shown(ok(command.event("step"))[0], "parameter") == {"a": [-2, -4]}


def test_16_bit_gradients_travel_as_they_are(command):
    configure(command, model_dtype="bf16")
    answer = ok(command.event("backward", GIVEN))[0]
    assert shown(answer) == MEAN and {buffer["dtype"] for buffer in answer["buffers"]} == {"bf16"}


def test_buffers_are_shown_at_steps_alone_where_nobody_observes(command):
    configure(command, observe=False)
    assert not ok(command.event("backward", GIVEN))[0]["buffers"]
    assert by_element(ok(command.event("step"))[0], "applied")


@pytest.mark.parametrize(("config", "says"), [({"bucket_size": 1}, "bucket_size"), ({"comm_hook": "powersgd"}, "powersgd"),
                                              ({"grad_scaler": {"scale": 1}}, "scale")])
def test_what_the_driver_cannot_do_is_refused_in_its_own_name(command, config, says):
    for answer in command.configure(PARAMETERS, {"framework": "ddp", "config": config}).values():
        assert answer["type"] == "refused" and answer["by_driver"] and says in answer["error"]["text"]


def test_what_the_framework_refuses_is_no_fault_of_the_driver(command):
    answer = command.configure(PARAMETERS, {"framework": "ddp", "config": {"delay_all_reduce": {"params": ["a", "b"], "hook": "b"}}})[0]
    assert answer["type"] == "refused" and not answer["by_driver"] and answer["error"]["type"] == "ValueError"
