"""The real schedules of Megatron-Core on two stages of one rank each, and checkpoints: buffers by values worked out by hand."""
from __future__ import annotations

import pytest

from command import Command, by_element, ok, shown

pytest.importorskip("megatron.core", reason="the environment has no megatron-core")

STAGES = [{"name": "first", "numel": 2}, {"name": "second", "numel": 2, "pipeline_stage": 1}]
FIRST, SECOND = {0: {0: [1, 2]}, 1: {1: [10, 20]}}, {0: {0: [3, 5]}, 1: {1: [30, 50]}}  # of two micro-batches, by rank and parameter
CHUNKS = [{"name": "a0", "numel": 2}, {"name": "a1", "numel": 2, "pipeline_stage": 1}, {"name": "b0", "numel": 2}, {"name": "b1", "numel": 2, "pipeline_stage": 1}]
CALL, FINALIZE = ("forward_backward_func",), ("finalize_model_grads",)


@pytest.fixture(scope="module")
def command():
    with Command("megatron") as out:
        out.start_ranks()
        yield out


def configure(command, parameters, schedule=None, ddp=None, attributes=None):
    config = {"ddp": ddp or {}, "optimizer_config": {"clip_grad": 0.0}, "schedule": {"num_microbatches": 2, "loss": "mean"} | (schedule or {}), "parameters": attributes or {}}
    engine = {"framework": "megatron", "as_of": "0.16.1", "config": config, "optimizer": {"type": "SGD"}, "pipeline_stages": 2}
    return ok(command.configure(parameters, engine))


def main_grads(answers):
    return {name: values for answer in ok(answers).values() for name, values in shown(answer).items() if name.endswith(".main_grad")}


@pytest.mark.parametrize("schedule", [{}, {"grad_sync_func": True}], ids=str)
def test_a_stage_has_the_gradients_of_its_own_layers_divided_by_the_micro_batches(command, schedule):
    configure(command, STAGES, schedule=schedule, ddp={"overlap_grad_reduce": True})
    for _ in range(2):
        called, one, two, finalized, _, _ = command.ahead(CALL, ("backward", FIRST), ("backward", SECOND), FINALIZE, ("step",), ("zero_grad",))
        assert main_grads(called) == {"first.main_grad": [0, 0], "second.main_grad": [0, 0]}
        assert main_grads(one) == {"first.main_grad": [0.5, 1], "second.main_grad": [5, 10]}
        assert main_grads(finalized) == {"first.main_grad": [2, 3.5], "second.main_grad": [20, 35]}
        ok(two)
        ok(command.event("zero_grad", of="engine"))


def test_a_loop_of_its_own_sends_from_stage_to_stage(command):
    configure(command, STAGES)
    command.ahead(("enter_no_sync",), ("backward", FIRST), ("exit_no_sync",), ("backward", SECOND))
    assert main_grads(command.event("finalize_model_grads")) == {"first.main_grad": [2, 3.5], "second.main_grad": [20, 35]}


def test_first_and_last_stage_add_up_their_gradients_of_the_embedding(command):
    parameters = [{"name": "embedding", "numel": 2}, {"name": "later", "numel": 1, "pipeline_stage": 1}]
    configure(command, parameters, attributes={"embedding": ["shared_embedding", "shared"]})
    given = {0: {0: [1, 2]}, 1: {0: [10, 20], 1: [7]}}
    answers = command.ahead(CALL, ("backward", given), ("backward", given), FINALIZE)
    for rank, answer in ok(answers[-2]).items():
        assert shown(answer)["embedding.main_grad"] == given[rank][0]
    for answer in ok(answers[-1]).values():
        assert shown(answer)["embedding.main_grad"] == [11, 22]


def test_of_several_chunks_the_last_one_has_its_backwards_first(command):
    configure(command, CHUNKS, schedule={"model_chunks": [["a0", "a1"], ["b0", "b1"]]}, ddp={"overlap_grad_reduce": True})
    of_b, of_a = {0: {2: [2, 4]}, 1: {3: [6, 8]}}, {0: {0: [10, 20]}, 1: {1: [30, 40]}}
    answers = command.ahead(CALL, ("backward", of_b), ("backward", of_b), ("backward", of_a), ("backward", of_a), FINALIZE)
    assert main_grads(answers[2]) == {"a0.main_grad": [0, 0], "a1.main_grad": [0, 0], "b0.main_grad": [2, 4], "b1.main_grad": [6, 8]}
    assert main_grads(answers[3])["a1.main_grad"] == [15, 20]
    assert main_grads(answers[-1]) == {"a0.main_grad": [10, 20], "a1.main_grad": [30, 40], "b0.main_grad": [2, 4], "b1.main_grad": [6, 8]}


@pytest.mark.parametrize(("parameters", "schedule", "events", "words"), [
    (CHUNKS, {"model_chunks": [["a0", "a1"], ["b0", "b1"]]}, (CALL, ("backward", {0: {0: [1, 2]}, 1: {1: [3, 4]}})), "another chunk"),
    (STAGES, {}, (CALL, ("backward", FIRST), ("restore",)), "left in the middle")], ids=["chunk", "left"])
def test_what_no_schedule_does_is_refused(command, parameters, schedule, events, words):
    configure(command, parameters, schedule=schedule)
    for event in events:
        for rank, message in command.messages_of(*event).items():
            command.ranks[rank].send(message)
    last = [command.ranks[1].receive() for _ in events][-1]  # the first stage waits for what the last one does not send any more
    assert last["error"]["type"] == "Refused" and words in last["error"]["text"]
    command.end_ranks()
    command.start_ranks()


@pytest.mark.parametrize("ddp", [{}, {"use_distributed_optimizer": True}, {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True}], ids=str)
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_a_restored_optimizer_goes_on_as_if_nothing_had_been(command, ddp, kind):
    """Three windows with a restore behind the second, against three without; each rank has several parameters, that share nothing."""
    parameters = [{"name": "a", "numel": 3}, {"name": "b", "numel": 2}, {"name": "c", "numel": 2}]
    given = {0: {0: [1, 2, 3], 1: [1, 5], 2: [1, 1]}, 1: {0: [3, 2, 1], 1: [2, 7], 2: [2, 3]}}
    masters = []
    for restored in (False, True):
        ok(command.configure(parameters, {"framework": "megatron", "as_of": "0.16.1", "optimizer": {"type": kind},
                                          "config": {"ddp": ddp, "optimizer_config": {"clip_grad": 0.0}}}, model_dtype="bf16"))
        for window in range(3):
            ok(command.event("backward", given))
            ok(command.event("finalize_model_grads"))
            last = ok(command.event("step"))
            ok(command.event("zero_grad", of="engine"))
            ok(command.event("zero_grad", of="optimizer"))
            if restored and window == 1:
                ok(command.event("save"))
                ok(command.event("restore"))
        masters.append({rank: by_element(answer, "master parameter") for rank, answer in last.items()})
    assert masters[0] == masters[1]


def test_a_restored_process_has_lost_what_stood_in_main_grad(command):
    parameters = [{"name": "a", "numel": 2}]
    ok(command.configure(parameters, {"framework": "megatron", "as_of": "0.16.1", "optimizer": {"type": "SGD"}, "config": {"optimizer_config": {"clip_grad": 0.0}}}))
    ok(command.event("backward", {0: {0: [1, 2]}, 1: {0: [3, 4]}}))
    ok(command.event("save"))
    for answer in ok(command.event("restore")).values():
        assert shown(answer) == {"a.main_grad": [0, 0]}
