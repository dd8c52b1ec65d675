"""The real Megatron-Core on two ranks: buffers by values worked out by hand."""
from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from command import Command, by_element, ok, shown

pytest.importorskip("megatron.core", reason="the environment has no megatron-core")

PARAMETERS = [{"name": "a", "numel": 3}, {"name": "b", "numel": 2}]
GIVEN = {0: {0: [1, 2, 3], 1: [10, 5]}, 1: {0: [3, 2, 1], 1: [20, 7]}}
MEAN = {"a.main_grad": [2, 2, 2], "b.main_grad": [15, 6]}
FINALIZE = "finalize_model_grads"


@pytest.fixture(scope="module")
def command():
    with Command("megatron") as out:
        out.start_ranks()
        yield out


def configure(command, parameters=PARAMETERS, optimizer=None, clip=0.0, ddp=None, more=None, **others):
    config = {"ddp": ddp or {}, "optimizer_config": {"clip_grad": clip}, **(more or {})}
    return ok(command.configure(parameters, {"framework": "megatron", "as_of": "0.16.1", "config": config, "optimizer": optimizer or {"type": "SGD"}}, **others))


def times(factor, values):
    return {name: [factor * value for value in of] for name, of in values.items()}


@pytest.mark.parametrize("ddp", [{}, {"overlap_grad_reduce": True, "bucket_size": 1}, {"average_in_collective": True}, {"check_for_nan_in_grad": True}], ids=str)
def test_a_window_is_its_own_ranks_until_it_is_finalized_and_the_mean_behind(command, ddp):
    configure(command, ddp=ddp)
    for _ in range(3):
        ok(command.event("enter_no_sync"))
        for rank, answer in ok(command.event("backward", GIVEN)).items():
            assert shown(answer, "local") == {"a.main_grad": GIVEN[rank][0], "b.main_grad": GIVEN[rank][1]}
        ok(command.event("exit_no_sync"))
        ok(command.event("backward", GIVEN))
        for answer in ok(command.event(FINALIZE)).values():
            assert shown(answer, "reduced") == times(2, MEAN)
        for answer in ok(command.event("step")).values():
            assert by_element(answer, "applied") == {(0, 0): 4, (0, 1): 4, (0, 2): 4, (1, 0): 30, (1, 1): 12}
        ok(command.event("zero_grad", of="engine"))
        ok(command.event("zero_grad", of="optimizer"))


def test_the_distributed_optimizer_owns_a_part_of_the_mean(command):
    configure(command, ddp={"use_distributed_optimizer": True})
    ok(command.event("backward", GIVEN))
    held: dict = {}
    for answer in ok(command.event(FINALIZE)).values():
        own = by_element(answer, "reduced")
        assert not held.keys() & own.keys()
        held |= own
    assert held == {(0, 0): 2, (0, 1): 2, (0, 2): 2, (1, 0): 15, (1, 1): 6}


def test_a_distributed_optimizer_without_moments_is_saved_more_than_once(command):
    configure(command, ddp={"use_distributed_optimizer": True})
    ok(command.event("backward", GIVEN))
    ok(command.event(FINALIZE))
    ok(command.event("step"))
    ok(command.event("zero_grad", of="engine"))
    for _ in range(2):
        ok(command.event("save"))


def test_what_a_zero_grad_that_raises_has_cleared_is_shown(command):
    configure(command, ddp={"overlap_grad_reduce": True})
    ok(command.event("step"))
    command.event("backward", {rank: {1: of[1]} for rank, of in GIVEN.items()})  # one of two parameters, which the reset asserts against
    for answer in command.event("zero_grad", of="engine").values():
        assert answer["error"]["type"] == "AssertionError"
        assert shown(answer, "local") == times(0, MEAN)


def test_of_several_instances_a_gradient_is_shown_unless_its_own_reduction_is_on_its_way(command):
    configure(command, ddp={"overlap_grad_reduce": True, "use_distributed_optimizer": True, "num_distributed_optimizer_instances": 2, "bucket_size": 1})
    for _ in range(2):  # from the first windows some releases learn for how many gradients they wait
        ok(command.event("backward", GIVEN))
        ok(command.event(FINALIZE))
        ok(command.event("zero_grad", of="engine"))
    for answer in ok(command.event("backward", {rank: {1: of[1]} for rank, of in GIVEN.items()}, uses=[1])).values():
        assert shown(answer, "local") == {"a.main_grad": [0, 0, 0]}
    ok(command.event("backward", {rank: {0: of[0]} for rank, of in GIVEN.items()}, uses=[0]))
    for answer in ok(command.event(FINALIZE)).values():
        assert shown(answer, "reduced") == MEAN


def test_a_gradient_that_a_step_left_is_added_to_itself(command):
    """scenarios/megatron/gradient-left-in-fp32-added-twice"""
    configure(command)
    ok(command.event("backward", GIVEN))
    ok(command.event(FINALIZE))
    ok(command.event("step"))
    ok(command.event("zero_grad", of="engine"))
    for rank, answer in ok(command.event("backward", GIVEN)).items():
        assert shown(answer, "local") == {"a.main_grad": [2 * value for value in GIVEN[rank][0]], "b.main_grad": [2 * value for value in GIVEN[rank][1]]}


def test_a_schedule_divides_losses_and_waits_for_each_backward(command):
    configure(command, more={"schedule": {"num_microbatches": 2, "loss": "mean"}})
    for _ in range(2):
        ok(command.event("forward_backward_func"))
        for number in (1, 2):
            for rank, answer in ok(command.event("backward", GIVEN)).items():
                assert shown(answer, "local")["b.main_grad"] == [number * value / 2 for value in GIVEN[rank][1]]
        for answer in ok(command.event(FINALIZE)).values():
            assert shown(answer, "reduced") == MEAN
        ok(command.event("step"))
        ok(command.event("zero_grad", of="engine"))
        ok(command.event("zero_grad", of="optimizer"))


def test_a_schedule_that_is_left_leaves_no_thread_in_it(command):
    configure(command, more={"schedule": {"num_microbatches": 3, "loss": "mean"}})
    ok(command.event("forward_backward_func"))
    ok(command.event("backward", GIVEN))
    ok(command.event("raise", caught=True))
    ok(command.event("zero_grad", of="engine"))
    for rank, answer in ok(command.event("backward", GIVEN)).items():
        assert shown(answer, "local")["b.main_grad"] == pytest.approx([value / 3 for value in GIVEN[rank][1]])


def test_tokens_are_divided_by_at_the_end(command):
    configure(command, more={"model": {"calculate_per_token_loss": True}})
    ok(command.event("backward", GIVEN, tokens=4, loss_factor=4.0))
    ok(command.event(FINALIZE))
    for answer in ok(command.event("step")).values():
        assert by_element(answer, "applied")[1, 0] == (4 * 10 + 4 * 20) / 8


@pytest.mark.parametrize("attributes", [["gradient_accumulation_fusion"], ["used_twice"], ["gradient_accumulation_fusion", "used_twice"]], ids=str)
def test_a_fused_weight_and_one_that_is_used_twice_have_the_same_gradient(command, attributes):
    configure(command, more={"parameters": {"b": attributes}})
    ok(command.event("backward", GIVEN))
    for answer in ok(command.event(FINALIZE)).values():
        assert shown(answer, "reduced") == MEAN


def test_an_overflow_of_one_rank_skips_the_step_of_all(command):
    parameters = [{"name": "a", "numel": 3}, {"name": "b", "numel": 2}]
    ok(command.configure(parameters, {"framework": "megatron", "as_of": "0.16.1", "optimizer": {"type": "SGD"},
                                      "config": {"optimizer_config": {"clip_grad": 0.0, "initial_loss_scale": 8, "hysteresis": 1}}}, model_dtype="fp16"))
    ok(command.event("backward", {0: GIVEN[0], 1: {0: [float("inf"), 2, 1], 1: [20, 7]}}))
    ok(command.event(FINALIZE))
    for answer in ok(command.event("step")).values():
        assert answer["facts"] == {"updated": 0, "skipped": 1, "loss_scale": 4.0}


@pytest.mark.parametrize(("config", "words"), [
    ({"parameters": {"a": ["shared_embedding"], "b": ["shared_embedding"]}}, "shared embeddings"),
    ({"schedule": {"num_microbatches": 2, "loss": "sum_and_tokens", "model_chunks": [["a"], ["b"]]}}, "model_chunks"),
    ({"zero_optimization": {}}, "zero_optimization")], ids=str)
def test_what_the_driver_cannot_do_is_refused_by_its_name(command, config, words):
    answers = command.configure(PARAMETERS, {"framework": "megatron", "as_of": "0.16.1", "config": config, "optimizer": {"type": "SGD"}})
    for answer in answers.values():
        assert answer["type"] == "refused" and answer["by_driver"] and words in answer["error"]["text"]


def test_an_expert_is_on_its_rank_alone_and_its_gradient_is_divided_by_all_ranks(command):
    parameters = [{"name": "a", "numel": 3}, {"name": "first", "numel": 2, "expert": 0}, {"name": "second", "numel": 2, "expert": 1}]
    ok(command.configure(parameters, {"framework": "megatron", "as_of": "0.16.1", "optimizer": {"type": "SGD"}, "expert_parallel_size": 2,
                                      "config": {"optimizer_config": {"clip_grad": 0.0}}}))
    ok(command.event("backward", {0: {0: [1, 2, 3], 1: [10, 5]}, 1: {0: [3, 2, 1], 2: [20, 7]}}))
    for rank, answer in ok(command.event(FINALIZE)).items():
        of_expert = {"first.main_grad": [5, 2.5]} if rank == 0 else {"second.main_grad": [10, 3.5]}
        assert shown(answer, "reduced") == {"a.main_grad": [2, 2, 2], **of_expert}
    for rank, answer in ok(command.event("step")).items():
        assert by_element(answer, "applied")[1 + rank, 0] == (5, 10)[rank]


def test_nothing_is_quantized_where_the_release_refuses_it_without_transformer_engine(monkeypatch):
    """As 0.12.0 does, whatever it is given."""
    from megatron.core import fp8_utils

    from gradledger.drivers import megatron_cpu

    def refuses(*_):
        raise RuntimeError("Invalid Transformer Engine version for FP8 distributed optimizer")

    monkeypatch.setattr(fp8_utils, "_quantize_param_shard_impl", refuses)
    there = megatron_cpu.importlib.util.find_spec
    monkeypatch.setattr(megatron_cpu.importlib.util, "find_spec", lambda name: None if name == "transformer_engine" else there(name))
    assert megatron_cpu.let_nothing_be_quantized.__wrapped__()
    assert fp8_utils._quantize_param_shard_impl([], [], [], None, None) is None
    with pytest.raises(RuntimeError, match="Transformer Engine"):
        fp8_utils._quantize_param_shard_impl(["of fp8"], [], [], None, None)


def test_a_distributed_optimizer_that_refuses_to_be_made_without_apex_is_made_and_the_release_is_as_it_was_behind_that(monkeypatch):
    """As that of 0.9.0 refuses."""
    from megatron.core.optimizer import distrib_optimizer

    from gradledger.drivers import megatron_cpu

    monkeypatch.setattr(distrib_optimizer, "HAVE_APEX_OR_TE", False, raising=False)
    with megatron_cpu.without_apex() as told_otherwise:
        assert not told_otherwise and not distrib_optimizer.HAVE_APEX_OR_TE

    class Refusing:
        def __init__(self):
            assert HAVE_APEX_OR_TE  # noqa: F821

    monkeypatch.setattr(distrib_optimizer, "DistributedOptimizer", Refusing)
    with megatron_cpu.without_apex() as told_otherwise:
        assert told_otherwise and distrib_optimizer.HAVE_APEX_OR_TE
    assert not distrib_optimizer.HAVE_APEX_OR_TE


def test_a_release_whose_experts_have_no_tensor_parallel_ranks_of_their_own_is_served_and_refuses_a_group_of_them(monkeypatch):
    """As 0.9.0."""
    from gradledger.driver import Refused
    from gradledger.drivers import megatron_groups

    state = megatron_groups.parallel_state
    monkeypatch.setattr(megatron_groups, "_made", {})
    monkeypatch.delattr(state, "get_expert_tensor_parallel_group", raising=False)
    for name in ("initialize", "destroy"):
        monkeypatch.setattr(state, f"{name}_model_parallel", lambda **_: None)
    for name in ("tensor_model", "context", "pipeline_model", "expert_model"):
        monkeypatch.setattr(state, f"get_{name}_parallel_group", lambda: None)
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", lambda group: (0,))
    configuration = SimpleNamespace(config={}, engine={})

    def of(*names):
        return SimpleNamespace(members=names, world=(0, 1), rank=0, size=lambda name: 2, of=lambda name: (0, 1))

    megatron_groups.make(configuration, of(), 1)
    with pytest.raises(Refused, match="a group etp"):
        megatron_groups.make(configuration, of("etp"), 1)
    with pytest.raises(Refused, match=r"ranks \(0, 1\) in the group ep; Megatron's order has \(0,\)"):
        megatron_groups.make(configuration, of(), 2)


def test_what_looks_at_classes_of_streams_is_imported_before_another_takes_their_place():
    """torch._dynamo of PyTorch 2.5 does, and Megatron-Core imports it."""
    looks = "import sys; from gradledger.drivers import megatron_cpu; before = 'torch._dynamo' in sys.modules; megatron_cpu.install(); print(before, 'torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, check=True).stdout.split()[-1] == "True"


COMPILES = """
from torch.utils import cpp_extension
cpp_extension.CUDA_HOME = "/usr"  # a compiler, and no device to compile for
import gradledger.drivers.megatron
try:
    cpp_extension.load_inline("nothing", [""], functions=[], with_cuda=True)
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device to compile for")
def test_nothing_is_compiled_for_cuda_where_there_is_a_cpu_alone():
    done = subprocess.run([sys.executable, "-c", COMPILES], capture_output=True, text=True)
    assert "CUDA_HOME" in done.stdout, done.stderr[-500:]
