"""The real Megatron-FSDP on two ranks, both versions: buffers by values worked out by hand."""
from __future__ import annotations

import importlib.metadata

import pytest

from command import Command, by_element, ok, shown

pytest.importorskip("megatron_fsdp", reason="the environment has no megatron-fsdp")

RELEASE = tuple(map(int, importlib.metadata.version("megatron-fsdp").split("+")[0].split(".")))
PARAMETERS = [{"name": "a", "numel": 3}, {"name": "b", "numel": 3}]
GIVEN = {0: {0: [1, 2, 3], 1: [10, 20, 30]}, 1: {0: [3, 2, 1], 1: [30, 20, 10]}}
MEAN = {(0, 0): 2, (0, 1): 2, (0, 2): 2, (1, 0): 20, (1, 1): 20, (1, 2): 20}
TOGETHER = {"units": [["a", "b"]]}
WINDOWED = {"sync_model_each_microbatch": False}
SHARDED = ("optim_grads", "optim_grads_params")
GROUPS = {"replicate": [[0, 1]], "shard": [[0], [1]]}


@pytest.fixture(scope="module", params=["gloo", "gradledger"])
def command(request):
    with Command("megatron-fsdp", backend=request.param) as out:
        out.start_ranks()
        yield out


@pytest.fixture(scope="module")
def second():
    if RELEASE < (0, 6):
        pytest.skip(f"megatron-fsdp {'.'.join(map(str, RELEASE))} has no second version")
    with Command("megatron-fsdp-v2") as out:
        out.start_ranks()
        yield out


def configure(command, config=TOGETHER, optimizer=None, parameters=PARAMETERS, **others):
    engine = {"framework": command.driver, "config": config, "optimizer": optimizer or {"type": "SGD"}}
    return ok(command.configure(parameters, engine, **others))


def times(factor, values):
    return {element: factor * value for element, value in values.items()}


def own_of(answers, role):
    """What ranks show of a role, put together: no element on two of them."""
    out: dict = {}
    for answer in answers.values():
        own = by_element(answer, role)
        assert not out.keys() & own.keys()
        out |= own
    return out


@pytest.mark.parametrize("strategy", SHARDED)
def test_what_a_rank_has_of_sharded_sums_is_the_mean_of_every_backward(command, strategy):
    configure(command, TOGETHER | {"zero_dp_strategy": strategy})
    for _ in range(2):
        for number in (1, 2):
            assert own_of(ok(command.event("backward", GIVEN)), "reduced") == times(number, MEAN)
        assert own_of(ok(command.event("step")), "applied") == times(2, MEAN)
        ok(command.event("zero_grad", of="optimizer"))


def test_a_whole_sum_is_the_ranks_own_until_no_sync_has_ended_and_the_mean_behind(command):
    configure(command, TOGETHER | WINDOWED | {"zero_dp_strategy": "no_shard"})
    ok(command.event("enter_no_sync"))
    for rank, answer in ok(command.event("backward", GIVEN)).items():
        assert shown(answer, "local") == {"main_grad_buffer[a]": GIVEN[rank][0] + GIVEN[rank][1]}
    ok(command.event("exit_no_sync"))
    for answer in ok(command.event("backward", GIVEN)).values():
        assert by_element(answer, "reduced") == times(2, MEAN)
    for answer in ok(command.event("step")).values():
        assert by_element(answer, "applied") == times(2, MEAN) and not shown(answer, "reduced")


def test_what_set_model_auto_sync_holds_back_finish_grad_sync_does_not_reduce(command):
    configure(command, TOGETHER | {"zero_dp_strategy": "no_shard"})
    ok(command.event("set_model_auto_sync", value=False))
    for rank, answer in ok(command.event("backward", GIVEN)).items():
        assert shown(answer, "local") == {"main_grad_buffer[a]": GIVEN[rank][0] + GIVEN[rank][1]}
    ok(command.event("finish_grad_sync"))
    for rank, answer in ok(command.event("step")).items():
        assert list(by_element(answer, "applied").values()) == GIVEN[rank][0] + GIVEN[rank][1]


def test_weights_and_masters_are_shown_in_the_part_that_a_rank_steps(command):
    configure(command, TOGETHER, model_dtype="bf16")
    ok(command.event("backward", GIVEN))
    answers = ok(command.event("step"))
    assert own_of(answers, "parameter").keys() == own_of(answers, "master parameter").keys() == MEAN.keys()
    assert own_of(answers, "parameter") == own_of(answers, "master parameter")


def test_one_that_is_not_extended_is_stepped_and_cleared_as_in_megatron_core(command):
    configure(command, TOGETHER | WINDOWED | {"zero_dp_strategy": "optim", "fully_shard_optimizer": False}, model_dtype="bf16")
    ok(command.event("enter_no_sync"))
    ok(command.event("exit_no_sync"))
    for _ in range(2):
        ok(command.event("backward", GIVEN))
        ok(command.event("finish_grad_sync"))
        answers = ok(command.event("step"))
        assert own_of(answers, "applied") == MEAN
        assert own_of(answers, "parameter") == own_of(answers, "master parameter")
        ok(command.event("zero_grad", of="optimizer"))


def test_sums_over_tokens_are_divided_by_the_loop(command):
    configure(command, TOGETHER | {"calculate_per_token_loss": True})
    ok(command.event("backward", GIVEN))
    ok(command.event("scale_gradients", by=0.125))
    assert own_of(ok(command.event("step")), "applied") == times(0.25, MEAN)


def test_what_shards_have_not_reduced_between_them_is_not_judged(command):
    configure(command, TOGETHER | WINDOWED | {"zero_dp_strategy": "optim", "mesh": ["replicate", "shard"]}, groups=GROUPS)
    ok(command.event("set_model_auto_sync", value=False))
    for answer in ok(command.event("backward", GIVEN)).values():
        assert not shown(answer, "reduced") and not shown(answer, "scratch")
    configure(command, TOGETHER | WINDOWED | {"zero_dp_strategy": "optim_grads", "mesh": ["replicate", "shard"]}, groups=GROUPS)
    for answer in ok(command.event("backward", GIVEN)).values():
        assert "main_grad_buffer[a]" in shown(answer, "scratch") and not shown(answer, "reduced")
    ok(command.event("enter_no_sync"))
    ok(command.event("exit_no_sync"))
    for answer in ok(command.event("backward", GIVEN)).values():
        assert "main_grad_buffer[a]" in shown(answer, "reduced")


def test_a_checkpoint_has_weights_and_moments_and_no_sums(command):
    configure(command, TOGETHER, optimizer={"type": "Adam", "lr": 0.5})
    for event in ("backward", "step", "zero_grad", "save"):
        answers = ok(command.event(event, GIVEN) if event == "backward" else command.event(event))
        kept = answers if event == "step" else kept if event != "backward" else None
    ok(command.event("backward", GIVEN))
    assert not any(own_of(ok(command.event("restore")), "local").values())
    ok(command.event("zero_grad"))
    answers = ok(command.event("step"))
    for role in ("parameter", "first moment", "second moment"):
        assert own_of(answers, role) == own_of(kept, role)


@pytest.mark.parametrize(("config", "named"), [
    ({"zero_dp_strategy": "optim_gradz"}, "optim_grads"), ({"wrap": "all"}, "layers, root"), ({"mixed_precision": {"params": None}}, "main_params_dtype"),
    ({"mixed_precision": {"main_grads_dtype": "fp8"}}, "fp32"), ({"overlap": True}, "overlap_grad_reduce"), ({"grad_scaler": {}}, "scales no loss")], ids=str)
def test_what_it_does_not_know_is_refused_with_what_it_knows(command, config, named):
    for answer in command.configure(PARAMETERS, {"framework": "megatron-fsdp", "config": config, "optimizer": {"type": "SGD"}}).values():
        assert answer["type"] == "refused" and answer["by_driver"] and named in answer["error"]["text"]


def test_no_sync_in_another_is_refused(command):
    configure(command)
    ok(command.event("enter_no_sync"))
    assert all("flag" in answer["error"]["text"] for answer in command.event("enter_no_sync").values())


# ---- the second version

def test_the_second_version_reduces_a_module_that_has_all_of_its_gradients(second):
    configure(second)
    for _ in range(2):
        for number in (1, 2):
            assert own_of(ok(second.event("backward", GIVEN)), "reduced") == times(number, MEAN)
        assert own_of(ok(second.event("step")), "applied") == times(2, MEAN)
        ok(second.event("zero_grad", of="optimizer"))


def test_what_lacks_a_gradient_of_its_module_waits_and_is_not_judged(second):
    configure(second)
    ok(second.event("backward", GIVEN))
    left_out = {rank: {0: of[0]} for rank, of in GIVEN.items()}
    for rank, answer in ok(second.event("backward", left_out, uses=[0])).items():
        assert shown(answer, "scratch")["a.unsharded.grad"] == GIVEN[rank][0] and not shown(answer, "reduced")
    assert own_of(ok(second.event("step")), "applied") == MEAN


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_step_averages_what_no_backward_was_said_to_be_the_last_of(second, dtype):
    configure(second, TOGETHER | {"mesh": ["replicate", "shard"]}, groups=GROUPS, model_dtype=dtype)
    ok(second.event("enter_no_sync"))
    for answer in ok(second.event("backward", GIVEN)).values():
        assert not shown(answer, "reduced")
    ok(second.event("exit_no_sync"))
    for answer in ok(second.event("step")).values():
        assert by_element(answer, "applied") == MEAN
    ok(second.event("zero_grad", of="engine"))
    for answer in ok(second.event("backward", GIVEN)).values():
        assert by_element(answer, "reduced") == MEAN


def test_the_second_version_offers_no_checkpoints(second):
    events = second.host.hello["capabilities"]["events"]
    assert "backward" in events and not {"save", "restore"} & set(events)
