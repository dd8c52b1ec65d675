"""The driver of DeepSpeed where ranks hold different parts, and where models have several outputs: worked out by hand, four ranks."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from command import Command, by_element, fp32, ok, shown
from deepspeed_world import skip_without_deepspeed, zero

skip_without_deepspeed()
WORLD = 4
PLAIN = {"gradient_clipping": 0.0}
FLAT = [{"name": "a", "numel": 2}, {"name": "b", "numel": 2}, {"name": "c", "numel": 2}]


@pytest.fixture(scope="module")
def command() -> Iterator[Command]:
    with Command("deepspeed", WORLD, backend="gradledger") as command:
        command.start_ranks()
        yield command


def since(command: Command, *release: int) -> None:
    found = tuple(int(part) for part in command.host.hello["versions"]["deepspeed"].split("+")[0].split(".")[:3])
    if found < release:
        pytest.skip(f"NOT RUN: DeepSpeed {found} is older than {release}")


def configure(command: Command, parameters: list[dict[str, Any]], config: Mapping[str, Any] | None = None, engine: Mapping[str, Any] | None = None,
              **more: Any) -> dict[int, dict[str, Any]]:
    given = {"framework": "deepspeed", "config": PLAIN | (config or {}), "optimizer": {"type": "SGD", "lr": 1.0}} | (engine or {})
    return command.configure(parameters, given, **more)


def refusal(answers: dict[int, dict[str, Any]]) -> str:
    (text,) = {answer["error"]["text"] for answer in answers.values()}
    return text


# ---- several outputs


def test_a_gradient_is_divided_by_each_output_that_it_passes(command: Command) -> None:
    since(command, 0, 18, 3)
    parameters = [{"name": "around", "numel": 1, "hooked_outputs": 0}, {"name": "one", "numel": 1}, {"name": "three", "numel": 1, "hooked_outputs": 3}]
    ok(configure(command, parameters, {"gradient_accumulation_steps": 2} | zero(1)))
    given = {rank: {0: [8.0], 1: [8.0], 2: [8.0]} for rank in range(WORLD)}
    answers = ok(command.event("backward", given, uses=[0, 2, 1], direct=True))
    assert shown(answers[0], "local") == {"around.grad": [8.0], "one.grad": [4.0], "three.grad": [1.0]}


def test_a_term_around_the_outputs_is_made_behind_them(command: Command) -> None:
    ok(configure(command, [{"name": "one", "numel": 1}, {"name": "around", "numel": 1, "hooked_outputs": 0}]))
    answers = command.event("backward", {rank: {0: [1.0], 1: [1.0]} for rank in range(WORLD)}, uses=[0, 1])
    assert "a term around the outputs" in refusal(answers)


# ---- experts


def test_experts_are_averaged_by_the_ranks_that_hold_them(command: Command) -> None:
    parameters = [{"name": "trunk", "numel": 1}, {"name": "e0", "numel": 1, "expert": 0}, {"name": "e1", "numel": 1, "expert": 1}]
    ok(configure(command, parameters, engine={"expert_parallel_size": 2}))
    given = {rank: {0: [4.0 * (rank + 1)], 1 + rank % 2: [4.0 * (rank + 1)]} for rank in range(WORLD)}
    answers = ok(command.event("backward", given))
    # All ranks have sent tokens to an expert, so that the sum over those that hold it is divided by all.
    assert [shown(answers[rank], "replicated") for rank in range(2)] == [{"trunk.grad": [10.0], "e0.grad": [4.0]}, {"trunk.grad": [10.0], "e1.grad": [6.0]}]
    assert {tuple(by_element(answer, "applied").items()) for answer in ok(command.event("step")).values()} == {
        (((0, 0), 10.0), ((1, 0), 4.0)), (((0, 0), 10.0), ((2, 0), 6.0))}


# ---- pipelines


def test_stages_of_a_pipeline_average_over_their_own_ranks(command: Command) -> None:
    since(command, 0, 19, 3)  # before it each stage divided again
    parameters = [{"name": "first", "numel": 1}, {"name": "second", "numel": 1, "pipeline_stage": 1}]
    ok(configure(command, parameters, {"gradient_accumulation_steps": 2}, {"pipeline_stages": 2}))
    for micro_batch in range(2):
        given = {rank: {rank // 2: [4.0 * (rank + 1)]} for rank in range(WORLD)}
        ok(command.event("backward", given, micro_batch=micro_batch))
        answers = ok(command.event("step"))
        assert {answer["facts"]["updated"] for answer in answers.values()} == {micro_batch}
    assert [by_element(answers[rank], "applied") for rank in range(WORLD)] == [{(0, 0): 6.0}] * 2 + [{(1, 0): 14.0}] * 2
    assert "which a pipeline runs itself" in refusal(command.event("set_boundary", boundary=True))


def test_a_stage_of_a_pipeline_has_one_output(command: Command) -> None:
    for outputs in (0, 2):
        parameters = [{"name": "first", "numel": 1, "hooked_outputs": outputs}, {"name": "second", "numel": 1, "pipeline_stage": 1}]
        assert "several outputs of a stage of a pipeline" in refusal(configure(command, parameters, engine={"pipeline_stages": 2}))


# ---- ranks that share a sequence, and those that cut a model


def test_ranks_that_share_a_sequence_count_as_one(command: Command) -> None:
    since(command, 0, 18, 3)
    ok(configure(command, FLAT[:1], engine={"sequence_parallel_size": 2}))
    answers = ok(command.event("backward", {rank: {0: [1.0, 2.0 * rank]} for rank in range(WORLD)}))
    assert shown(answers[3], "replicated") == {"a.grad": [2.0, 6.0]}


def test_autotp_averages_over_the_data_parallel_ranks(command: Command) -> None:
    since(command, 0, 17, 0)
    groups = {"tp": [[0, 1], [2, 3]], "dp_cp": [[0, 2], [1, 3]]}
    parameters = [{"name": "w", "numel": 1, "part": {"over": "tp", "number": number, "count": 2}} for number in range(2)] + [{"name": "norm", "numel": 1}]
    ok(configure(command, parameters, {"tensor_parallel": {"autotp_size": 2}} | zero(1), groups=groups))
    ok(command.event("backward", {rank: {rank % 2: [float(rank)], 2: [5.0]} for rank in range(WORLD)}))
    applied: dict[tuple[int, int], float] = {}
    for answer in ok(command.event("step")).values():
        applied |= by_element(answer, "applied")
        assert answer["facts"]["gradient_norm"] == pytest.approx(30.0**0.5)  # of 1, 2 and 5
    assert applied == {(0, 0): 1.0, (1, 0): 2.0, (2, 0): 5.0}


# ---- Muon


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_momentum_of_muon_takes_in_a_share_of_the_average(command: Command, stage: int) -> None:
    since(command, 0, 18, 9)
    parameters = [parameter | {"numel": 8, "weights": fp32([1.0] * 8)} for parameter in FLAT[:2]]
    answers = ok(configure(command, parameters, zero(stage, reduce_scatter=False), {"optimizer": {"type": "Muon", "momentum": 0.5}}))
    assert "orthogonalization is left out" in answers[0]["notes"][0]
    ok(command.event("backward", {rank: {p: [2.0 * rank] * 8 for p in range(2)} for rank in range(WORLD)}))
    answers = ok(command.event("step"))
    applied, momentum = {}, {}
    for answer in answers.values():
        assert "gradient_norm" not in answer["facts"]
        applied |= by_element(answer, "applied")
        momentum |= by_element(answer, "first moment")
    everywhere = {(p, e) for p in range(2) for e in range(8)}
    assert applied == dict.fromkeys(everywhere, 3.0) and momentum == dict.fromkeys(everywhere, 1.5)


def test_what_muon_is_not_run_with_is_refused(command: Command) -> None:
    for config in (zero(0), zero(2, offload=True)):
        assert "Muon without stage 1, 2 or 3, or with offload" in refusal(configure(command, FLAT[:1], config, {"optimizer": {"type": "Muon"}}))


def test_a_checkpoint_of_experts_is_refused(command: Command) -> None:
    ok(configure(command, [{"name": "e0", "numel": 1, "expert": 0}]))
    assert "a checkpoint of a pipeline or of experts" in refusal(command.event("save"))
