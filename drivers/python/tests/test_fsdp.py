"""The real fully_shard and FullyShardedDataParallel on two ranks: shards by parameter and element, with values worked out by hand."""
from __future__ import annotations

import pytest
import torch

from command import by_element, ok, shown
from fsdp_world import GIVEN, MEAN, PARAMETERS, commands, configured, whole  # noqa: F401

BEFORE_2_15 = tuple(int(number) for number in torch.__version__.split(".")[:2]) < (2, 15)

OWN = [{(p, i): value for p, values in GIVEN[rank].items() for i, value in enumerate(values)} for rank in range(2)]
CONFIGURATIONS = {
    "fsdp2": [{}, {"wrap": "root"}, {"reshard_after_forward": True}, {"reshard_after_forward": False}, {"offload": True},
              {"mixed_precision": {"param_dtype": "bf16", "reduce_dtype": "fp32"}}, {"mixed_precision": {"reduce_dtype": "bf16"}}],
    "fsdp1": [{}, {"wrap": "root"}, {"sharding_strategy": "SHARD_GRAD_OP"}, {"use_orig_params": True}, {"use_orig_params": True, "wrap": "root"},
              {"mixed_precision": {"param_dtype": "bf16", "reduce_dtype": "fp32"}}, {"mixed_precision": {"param_dtype": "bf16", "keep_low_precision_grads": True}},
              {"backward_prefetch": "BACKWARD_POST", "limit_all_gathers": False}, {"backward_prefetch": "none", "forward_prefetch": True},
              {"units": [["a"]]}, {"units": [["a", "b"]], "use_orig_params": True}, {"units": []}, {"offload": True, "computes_on_cpu": True},
              {"offload": True, "computes_on_cpu": True, "use_orig_params": True, "sharding_strategy": "SHARD_GRAD_OP"}],
}
OF_BOTH = [pytest.param(driver, config, id=f"{driver} {config}") for driver, configs in CONFIGURATIONS.items() for config in configs]


def times(factor, values):
    return {place: factor * value for place, value in values.items()}


@pytest.mark.parametrize(("driver", "config"), OF_BOTH)
def test_a_backward_leaves_shards_of_the_mean_and_a_step_applies_them(commands, driver, config):
    command = configured(commands, driver, config)
    for window in range(1, 3):
        answers = command.event("backward", GIVEN)
        assert whole(answers, "reduced") == MEAN
        assert not any(by_element(answer, "local") for answer in answers.values())
        answers = command.event("step")
        assert whole(answers, "applied") == MEAN
        assert whole(answers, "parameter") == times(-window, MEAN)
        assert not any(shown(answer) for answer in ok(command.event("zero_grad", of="optimizer")).values())


# Of another factor gloo cannot make a collective: kernels divide.
@pytest.mark.parametrize(("config", "by"), [({"gradient_divide_factor": 2}, 1), ({"force_sum_reduction_for_comms": True}, 1),
                                            ({"gradient_divide_factor": 4, "force_sum_reduction_for_comms": True}, 0.5)])
def test_a_divide_factor_takes_the_place_of_the_number_of_ranks(commands, config, by):
    command = configured(commands, "fsdp2", config)
    assert whole(command.event("backward", GIVEN), "reduced") == times(by, MEAN)


def test_a_divide_factor_is_a_method_of_one_unit_too(commands):
    command = configured(commands, "fsdp2")
    ok(command.event("set_gradient_divide_factor", value=4, unit=1))
    ok(command.event("set_force_sum_reduction_for_comms", value=True, unit=1))
    halved = {place: value * (0.5 if place[0] == 1 else 1) for place, value in MEAN.items()}
    assert whole(command.event("backward", GIVEN), "reduced") == halved


THREE = [*PARAMETERS, {"name": "c", "numel": 6}]
OF_THREE = {rank: GIVEN[rank] | {2: [4 + 2 * rank, 8, 0, 2, 2, 6]} for rank in range(2)}
MEAN_OF_THREE = MEAN | {(2, i): value for i, value in enumerate([5, 8, 0, 2, 2, 6])}


@pytest.mark.parametrize("config", [
    {"units": []}, {"units": [["a", "b", "c"]]}, {"units": [["b"], ["c"]]}, {"units": [["b", "c"]], "nested": ["a"]}, {"units": [["b"]], "nested": ["c"]},
    {"units": [["b"], ["c"]], "root_parameters_last": True}, {"units": [["b", "c"]], "input_requires_grad": True}, {"input_requires_grad": True},
    {"wrap": "root", "input_requires_grad": True}, {"rows": {"c": 3}}, {"rows": {"c": 2}, "units": [["a", "c"], ["b"]]}, {"rows": {"c": 1}, "wrap": "root"}])
def test_units_and_rows_change_where_shards_are_and_not_what_is_in_them(commands, config):
    command = configured(commands, "fsdp2", config, parameters=THREE)
    for window in range(1, 3):
        assert whole(command.event("backward", OF_THREE), "reduced") == MEAN_OF_THREE
        answers = command.event("step")
        assert whole(answers, "applied") == MEAN_OF_THREE and whole(answers, "parameter") == times(-window, MEAN_OF_THREE)
        ok(command.event("zero_grad", of="optimizer"))


def test_a_parameter_with_rows_is_cut_between_them(commands):
    command = configured(commands, "fsdp2", {"rows": {"c": 3}}, parameters=THREE)
    answers = ok(command.event("backward", OF_THREE))
    assert [{i for p, i in by_element(answers[rank], "reduced") if p == 2} for rank in range(2)] == [{0, 1, 2, 3}, {4, 5}]


# Two replicas of one shard each: every rank has the whole average.
def test_replicas_of_a_shard_have_the_same_average(commands):
    command = configured(commands, "fsdp2", {"mesh": ["replicate", "shard"]}, groups={"replicate": [[0, 1]], "shard": [[0], [1]]})
    answers = ok(command.event("backward", GIVEN))
    assert [by_element(answers[rank], "reduced") for rank in range(2)] == [MEAN, MEAN]


@pytest.mark.parametrize("strategy", ["HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"])
def test_a_hybrid_strategy_shards_within_its_part_of_the_ranks(commands, strategy):
    command = configured(commands, "fsdp1", {"sharding_strategy": strategy, "mesh": ["replicate", "shard"]}, groups={"replicate": [[0], [1]], "shard": [[0, 1]]})
    assert whole(command.event("backward", GIVEN), "reduced") == MEAN


def test_whole_shards_of_a_hybrid_strategy_are_not_reduced_between_replicas(commands):
    command = configured(commands, "fsdp1", {"sharding_strategy": "HYBRID_SHARD", "mesh": ["replicate", "shard"]}, groups={"replicate": [[0, 1]], "shard": [[0], [1]]})
    answers = ok(command.event("backward", GIVEN))
    assert [by_element(answers[rank], "replicated") for rank in range(2)] == [times(0.5, OWN[rank]) for rank in range(2)]


@pytest.mark.parametrize("called", [False, True])
def test_a_module_that_is_called_and_not_used_loses_what_was_reduced_before(commands, called):
    command = configured(commands, "fsdp1", {"calls_unused_units": called})
    ok(command.event("backward", GIVEN))
    held = whole(command.event("backward", {rank: {0: GIVEN[rank][0]} for rank in range(2)}), "reduced")
    assert {p for p, _ in held} == ({0} if called else {0, 1})


@pytest.mark.parametrize(("driver", "config"), [("fsdp2", {}), ("fsdp1", {"sharding_strategy": "HYBRID_SHARD"})])
def test_a_mesh_whose_shards_are_not_in_order_is_refused(commands, driver, config):
    command = commands(driver)
    answers = command.configure(PARAMETERS, {"framework": driver, "config": {"mesh": ["world", "dp"], **config}, "optimizer": {"type": "SGD"}})
    assert all("expected ranks that follow each other" in str(answer) for answer in answers.values())


@pytest.mark.parametrize(("driver", "config"), OF_BOTH)
def test_no_sync_adds_up_whole_gradients_until_a_backward_outside(commands, driver, config):
    command = configured(commands, driver, config)
    ok(command.event("enter_no_sync"))
    ok(command.event("backward", GIVEN))
    answers = ok(command.event("backward", GIVEN))
    assert [by_element(answers[rank], "local") for rank in range(2)] == [times(2, OWN[0]), times(2, OWN[1])]
    ok(command.event("exit_no_sync"))
    answers = command.event("backward", GIVEN)
    assert whole(answers, "reduced") == times(3, MEAN) and not any(by_element(answer, "local") for answer in answers.values())


@pytest.mark.parametrize("driver", CONFIGURATIONS)
def test_own_gradients_beside_a_reduced_shard_are_told_apart(commands, driver):
    command = configured(commands, driver)
    ok(command.event("backward", GIVEN))
    ok(command.event("enter_no_sync"))
    answers = command.event("backward", GIVEN)
    assert whole(answers, "reduced") == MEAN
    assert [by_element(answers[rank], "local") for rank in range(2)] == OWN


@pytest.mark.parametrize("driver", CONFIGURATIONS)
def test_whether_a_backward_is_reduced_is_decided_while_it_runs(commands, driver):
    command = configured(commands, driver)
    ok(command.event("enter_no_sync"))
    ok(command.event("forward", GIVEN))
    ok(command.event("exit_no_sync"))
    assert whole(command.event("backward", GIVEN, of=1), "reduced") == MEAN


# The first backward gathers a unit ahead that has run already, and its end asks for a stream of an accelerator.
def test_several_forwards_stand_before_their_backwards(commands):
    command = configured(commands, "fsdp2")
    for _ in range(2):
        ok(command.event("forward", GIVEN))
    assert whole(command.event("backward", GIVEN, of=0), "reduced") == MEAN
    assert whole(command.event("backward", GIVEN, of=1), "reduced") == times(2, MEAN)


def test_zero_grad_does_not_reach_what_fully_shard_has_not_reduced(commands):
    command = configured(commands, "fsdp2")
    ok(command.event("enter_no_sync"))
    ok(command.event("backward", GIVEN))
    ok(command.event("exit_no_sync"))
    answers = ok(command.event("zero_grad", of="engine"))
    assert by_element(answers[1], "local") == OWN[1]
    assert whole(command.event("backward", GIVEN), "reduced") == times(2, MEAN)


def test_methods_of_fully_shard_are_events_of_its_own(commands):
    command = configured(commands, "fsdp2")
    ok(command.event("set_requires_gradient_sync", value=False))
    ok(command.event("backward", GIVEN))
    ok(command.event("set_requires_gradient_sync", value=True, unit=0, recurse=False))
    answers = ok(command.event("backward", GIVEN))
    assert {p for answer in answers.values() for p, _ in by_element(answer, "reduced")} == {0}, "the switch of one unit is no other's"
    assert {p for p, _ in by_element(answers[0], "local")} == {1}
    ok(command.event("reset_iter_state"))
    answers = ok(command.event("set_requires_gradient_sync", value=True))
    assert {p for p, _ in by_element(answers[0], "local")} == ({1} if BEFORE_2_15 else set()), "up to 2.14 a reset leaves what was not reduced"


def test_a_loop_ends_backwards_of_fully_shard_itself_from_2_15_on(commands):
    command = configured(commands, "fsdp2")
    if BEFORE_2_15:
        for event in (command.event("set_manual_backward_finalization", value=True), command.event("finalize_backward")):
            assert event[0]["error"]["type"] == "Refused"
        return
    ok(command.event("set_manual_backward_finalization", value=True))
    answers = ok(command.event("backward", GIVEN))
    assert {p for p, _ in by_element(answers[0], "local")} == {0}, "the first module's input needs no gradient, and the loop reduces it"
    ok(command.event("finalize_backward", async_op=True))
    assert "must be waited on" in command.event("backward", GIVEN)[0]["error"]["text"]
    assert whole(command.event("wait_for_gradient_reduction"), "reduced") == MEAN


@pytest.mark.parametrize(("precision", "dtype"), [({"param_dtype": "bf16", "reduce_dtype": "fp32"}, "fp32"),
                                                  ({"param_dtype": "bf16", "reduce_dtype": "bf16"}, "bf16")])
def test_the_dtype_of_sums_that_wait_is_shown(commands, precision, dtype):
    command = configured(commands, "fsdp2", {"mixed_precision": precision})
    ok(command.event("enter_no_sync"))
    answer = ok(command.event("backward", GIVEN))[0]
    assert {buffer["dtype"] for buffer in answer["buffers"]} == {dtype}
    assert len(answer["buffers"]) == 2, "one of each parameter, whatever its names"


def test_parameters_of_a_module_compute_in_dtypes_of_their_own_from_2_15_on(commands):
    """bf16 has 8 bits of 1 + 1/256, which is 1 in it."""
    config = {"wrap": "root", "mixed_precision": {"param_dtype": "bf16", "reduce_dtype": "fp32", "param_dtype_override_fn": {"b": "fp32"}}}
    if BEFORE_2_15:
        answer = commands("fsdp2").configure(PARAMETERS, {"framework": "fsdp2", "config": config})[0]
        assert answer["type"] == "refused" and answer["by_driver"] and "param_dtype_override_fn" in answer["error"]["text"]
        return
    fine = 1 + 1 / 256
    command = configured(commands, "fsdp2", config)
    reduced = whole(command.event("backward", {rank: {0: [fine] * 3, 1: [fine] * 5} for rank in range(2)}), "reduced")
    assert {value for (p, _), value in reduced.items() if p == 0} == {1} and {value for (p, _), value in reduced.items() if p == 1} == {fine}


def test_the_dtype_that_a_loop_gives_gradients_is_kept_from_2_15_on(commands):
    command = configured(commands, "fsdp2", {"grad_dtype": "bf16"})
    ok(command.event("enter_no_sync"))
    answer = ok(command.event("backward", GIVEN))[0]
    assert {buffer["dtype"] for buffer in answer["buffers"]} == {"fp32" if BEFORE_2_15 else "bf16"}


def test_what_is_offloaded_is_shown_on_the_host(commands):
    command = configured(commands, "fsdp2", {"offload": True})
    ok(command.event("backward", GIVEN))
    assert {buffer["space"] for buffer in ok(command.event("step"))[0]["buffers"]} == {"host"}
    ok(command.event("enter_no_sync"))
    answer = ok(command.event("backward", GIVEN))[0]
    assert {(buffer["role"], buffer["space"]) for buffer in answer["buffers"]} == {("local", "device"), ("reduced", "host")}


@pytest.mark.parametrize("driver", CONFIGURATIONS)
def test_a_norm_is_that_of_the_world_or_of_the_shards_of_a_rank(commands, driver):
    parameters, given = [{"name": "w", "numel": 2}], {rank: {0: [3, 4]} for rank in range(2)}
    for group, clipped in (("world", [0.6, 0.8]), ("rank", [1, 1])):
        command = configured(commands, driver, parameters=parameters)
        ok(command.event("backward", given))
        held = whole(command.event("clip_gradients", max_norm=1.0, group=group), "reduced")
        assert [held[0, i] for i in range(2)] == pytest.approx(clipped, rel=1e-5)


@pytest.mark.parametrize("driver", CONFIGURATIONS)
def test_moments_lie_where_their_shards_do(commands, driver):
    command = configured(commands, driver, optimizer={"type": "Adam", "betas": [0.5, 0.75]})
    ok(command.event("backward", GIVEN))
    answers = command.event("step")
    assert whole(answers, "first moment") == times(0.5, MEAN)
    assert whole(answers, "second moment") == {place: value * value / 4 for place, value in MEAN.items()}


@pytest.mark.parametrize("driver", CONFIGURATIONS)
def test_a_scaler_is_undone_before_the_step(commands, driver):
    command = configured(commands, driver, {"grad_scaler": {"init_scale": 8.0}})
    answers = command.event("backward", GIVEN)
    assert whole(answers, "reduced") == times(8, MEAN) and {buffer["scale"] for buffer in answers[0]["buffers"]} == {8}
    assert whole(command.event("step"), "applied") == MEAN


@pytest.mark.parametrize(("driver", "config"), OF_BOTH + [pytest.param("fsdp1", {"sharding_strategy": "NO_SHARD"}, id="fsdp1 NO_SHARD")])
def test_a_restored_loop_goes_on_as_one_that_was_never_ended(commands, driver, config):
    held = []
    kind = "SGD" if "keep_low_precision_grads" in str(config) else "Adam"  # which takes gradients in the weights' dtype alone
    for ends in (False, True):
        command = configured(commands, driver, config | {"grad_scaler": {"init_scale": 8.0, "growth_interval": 2}}, optimizer={"type": kind, "lr": 0.25})
        for window in range(4):
            ok(command.event("backward", GIVEN))
            done = ok(command.event("step"))
            ok(command.event("zero_grad", of="optimizer"))
            if ends and window == 1:
                ok(command.event("save"))
                assert not any(by_element(answer, role) for answer in ok(command.event("restore")).values() for role in ("local", "reduced"))
        held.append([(answer["facts"], *(by_element(answer, role) for role in ("parameter", "first moment", "second moment"))) for answer in done.values()])
    assert held[0] == held[1]


@pytest.mark.parametrize("driver", CONFIGURATIONS)
def test_a_restored_loop_has_no_gradient_of_the_window_before(commands, driver):
    command = configured(commands, driver)
    ok(command.event("enter_no_sync"))
    ok(command.event("backward", GIVEN))
    ok(command.event("exit_no_sync"))
    ok(command.event("save"))
    ok(command.event("restore"))
    assert whole(command.event("backward", GIVEN), "reduced") == MEAN


def test_switches_of_fully_shard_are_where_they_began_in_a_new_process(commands):
    command = configured(commands, "fsdp2")
    ok(command.event("set_requires_gradient_sync", value=False))
    ok(command.event("save"))
    ok(command.event("restore"))
    assert whole(command.event("backward", GIVEN), "reduced") == MEAN


def test_padding_of_flat_parameters_is_no_element(commands):
    command = configured(commands, "fsdp1", {"wrap": "root", "use_orig_params": True}, parameters=PARAMETERS + [{"name": "c", "numel": 1}])
    answers = ok(command.event("backward", {rank: GIVEN[rank] | {2: [6]} for rank in range(2)}))
    pieces = [piece for answer in answers.values() for buffer in answer["buffers"] for piece in buffer["pieces"]]
    assert sum(numel for parameter, _, numel in pieces if parameter >= 0) == 9 and any(parameter == -1 for parameter, _, _ in pieces)
    assert whole(answers, "reduced") == MEAN | {(2, 0): 6}


def test_a_flat_parameter_that_is_not_sharded_is_replicated(commands):
    command = configured(commands, "fsdp1", {"sharding_strategy": "NO_SHARD"})
    answers = ok(command.event("backward", GIVEN))
    assert [by_element(answers[rank], "replicated") for rank in range(2)] == [MEAN, MEAN]


def test_a_flat_parameter_of_one_element_is_whole_inside_no_sync(commands):
    command = configured(commands, "fsdp1", parameters=[{"name": "a", "numel": 2}, {"name": "one", "numel": 1}])
    given = {rank: {0: [1, 2], 1: [4 + 2 * rank]} for rank in range(2)}
    ok(command.event("enter_no_sync"))
    answers = ok(command.event("backward", given))
    assert [by_element(answers[rank], "local")[1, 0] for rank in range(2)] == [4, 6]
    ok(command.event("exit_no_sync"))
    assert whole(command.event("backward", given), "reduced") == {(0, 0): 2, (0, 1): 4, (1, 0): 10}


@pytest.mark.parametrize("driver", CONFIGURATIONS)
def test_tied_parameters_are_served_where_the_wrapper_can(commands, driver):
    command = configured(commands, driver, {"wrap": "root"}, parameters=PARAMETERS + [{"name": "again", "numel": 3, "tied_to": "a"}])
    assert whole(command.event("backward", GIVEN), "reduced") == MEAN


@pytest.mark.parametrize(("driver", "config", "says"), [
    ("fsdp2", {"wrap": "all"}, "layers, root"), ("fsdp2", {"mixed_precision": {"dtype": "bf16"}}, "param_dtype"),
    ("fsdp2", {"mixed_precision": {"param_dtype_override_fn": {"c": "fp32"}}}, "names c"), ("fsdp2", {"mixed_precision": {"param_dtype_override_fn": {"a": "int8"}}}, "int8"),
    ("fsdp1", {"sharding_strategy": "HYBRID"}, "FULL_SHARD"), ("fsdp1", {"backward_prefetch": "never"}, "BACKWARD_PRE"), ("fsdp1", {"offload": True}, "offload")])
def test_what_the_driver_does_not_know_is_refused(commands, driver, config, says):
    for answer in commands(driver).configure(PARAMETERS, {"framework": driver, "config": config}).values():
        assert answer["type"] == "refused" and answer["by_driver"] and says in answer["error"]["text"]


@pytest.mark.parametrize(("config", "refused"), [({"wrap": "root"}, True), ({"wrap": "layers"}, False)])
def test_groups_of_the_optimizer_do_not_divide_a_flat_parameter(commands, config, refused):
    engine = {"framework": "fsdp1", "config": config, "param_groups": [{"params": ["a"], "lr": 2.0}, {"params": ["b"]}]}
    assert (commands("fsdp1").configure(PARAMETERS, engine)[0]["type"] == "refused") == refused
