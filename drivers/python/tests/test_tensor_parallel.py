"""fully_shard and DistributedDataParallel of real DTensors on two tensor-parallel ranks: what each has of a gradient, with values worked out by hand."""
from __future__ import annotations

import pytest

from command import Command, ok, shown

PART = [{"name": "column", "numel": 2, "part": {"over": "tp", "number": number, "count": 2}} for number in range(2)]
PARAMETERS = [*PART, {"name": "norm", "numel": 2, "summed_over": "tp"}, {"name": "bias", "numel": 1}]
# The part of each rank, its term of a sum, and what both have alike.
GIVEN = {0: {0: [1, 2], 2: [10, 20], 3: [7]}, 1: {1: [3, 4], 2: [30, 50], 3: [7]}}
LAID = {"tp": [[0, 1]], "dp": [[0], [1]]}


@pytest.fixture(scope="module", params=["fsdp2", "ddp"])
def driver(request):
    with Command(request.param) as out:
        out.start_ranks()
        yield request.param, out


def backward(driver, config=None, **how):
    name, command = driver
    ok(command.configure(PARAMETERS, {"framework": name, "config": config or {}, "optimizer": {"type": "SGD"}}, groups=LAID, **how))
    answers = ok(command.event("backward", GIVEN))
    return [shown(answers[rank], "reduced" if name == "fsdp2" else "replicated") for rank in range(2)]


def test_parts_are_a_ranks_own_and_terms_are_added_up(driver):
    assert backward(driver) == [{"column.grad": [1, 2], "norm.grad": [40, 70], "bias.grad": [7]}, {"column.grad": [3, 4], "norm.grad": [40, 70], "bias.grad": [7]}]


def test_nobody_adds_up_what_is_no_dtensor(driver):
    assert [held["norm.grad"] for held in backward(driver, {"plain": ["norm"]})] == [[10, 20], [30, 50]]


def test_terms_are_added_up_in_every_backward_or_where_a_module_is_reduced(driver):
    name, command = driver
    ok(command.configure(PARAMETERS, {"framework": name, "config": {}, "optimizer": {"type": "SGD"}}, groups=LAID))
    ok(command.event("enter_no_sync"))
    held = [shown(answer, "local" if name == "fsdp2" else "replicated") for _, answer in sorted(ok(command.event("backward", GIVEN)).items())]
    gradient = "norm.unsharded_param.grad" if name == "fsdp2" else "norm.grad"
    assert [each[gradient] for each in held] == ([[10, 20], [30, 50]] if name == "fsdp2" else [[40, 70], [40, 70]])
    ok(command.event("exit_no_sync"))
    answers = ok(command.event("backward", GIVEN))
    assert all(shown(answer)["norm.grad"] == [80, 140] for answer in answers.values())


def test_a_loop_clips_by_the_norm_of_all_parts_or_of_its_own(driver):
    backward(driver)
    name, command = driver
    norms = [answer["facts"]["loop_norm"] for answer in ok(command.event("clip_gradients", max_norm=1e9, group="world" if name == "fsdp2" else "rank")).values()]
    whole = [1, 2, 3, 4, 40, 70, 7]
    expected = [whole, whole] if name == "fsdp2" else [[1, 2, 40, 70, 7], [3, 4, 40, 70, 7]]
    assert norms == pytest.approx([sum(x * x for x in each) ** 0.5 for each in expected])


@pytest.mark.parametrize("linear", [False, True])
def test_a_clip_raises_over_two_meshes_whether_it_may_decide_on_values_or_not(driver, linear):
    name, command = driver
    if name != "fsdp2":
        pytest.skip("a norm over the mesh is fully_shard's")
    held = backward(driver, {"plain": ["norm"]}, linear=linear)
    answers = command.event("clip_gradients", max_norm=1e-3, group="world")
    assert all("must have the same mesh" in answer["error"]["text"] for answer in answers.values())
    assert [shown(answers[rank], "reduced") for rank in range(2)] == held


def test_a_matrix_in_parts_has_the_rows_of_a_part(driver):
    name, _ = driver
    if name == "fsdp2":
        pytest.skip("fully_shard has rows of its own, which its tests look at")
    config = {"rows": {"column": 1}, "comm_hook": "powerSGD", "PowerSGDState": {"start_powerSGD_iter": 10}}
    assert [held["column.grad"] for held in backward(driver, config)] == [[1, 2], [3, 4]]
