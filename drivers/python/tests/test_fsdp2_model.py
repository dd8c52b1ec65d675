"""The model that fully_shard is given: which modules a forward calls, in which order, and what they take."""
from __future__ import annotations

import pytest
import torch
from gradledger.driver import Backward, Configuration, Parameter, Refused
from gradledger.drivers.fsdp2_model import ShardedModel
from gradledger.model import Graph

NAMES = ("a", "b", "c", "d")
GIVEN = {p: torch.full((4,), float(p + 1)) for p in range(len(NAMES))}


def model(config: dict, tied: int | None = None) -> ShardedModel:
    parameters = tuple(Parameter(name, 4, True, tied if p == 3 else None, torch.zeros(4)) for p, name in enumerate(NAMES))
    return ShardedModel(Configuration(0, {"config": config}, parameters), "cpu")


def graph(uses: tuple[int, ...], **more) -> Graph:
    return Graph.of(Backward(0, 0, uses, GIVEN, **more))


def calls(of: ShardedModel, uses: tuple[int, ...] = (3, 2, 1, 0), start: torch.Tensor | None = None) -> list[tuple[int, bool]]:
    """Units in the order of their calls, and whether their input requires a gradient."""
    out: list[tuple[int, bool]] = []
    for number, module in enumerate(of.called):
        module.register_forward_pre_hook(lambda _, given, number=number: out.append((number, given[0].requires_grad)))
    of(graph(uses), start).backward()
    return out


def test_units_are_called_by_the_numbers_of_their_parameters_and_the_first_input_requires_no_gradient() -> None:
    assert calls(model({})) == [(0, False), (1, True), (2, True), (3, True)]
    assert calls(model({"units": [["c", "d"], ["a"]]})) == [(1, False), (0, True)]
    assert calls(model({"units": [["b"], ["c"]]})) == [(0, True), (1, True)], "the root's own parameter came first"
    assert calls(model({"units": [["b"], ["c"]], "root_parameters_last": True})) == [(0, False), (1, True)]


def test_an_input_that_requires_a_gradient_goes_to_the_first_module_too() -> None:
    start = torch.zeros((), requires_grad=True)
    assert calls(model({}), start=start)[0] == (0, True) and start.grad == 1


@pytest.mark.parametrize("config", [{}, {"units": [["a"], ["b"], ["c"], ["d"]]}])
def test_a_unit_that_is_not_used_is_called_where_the_scenario_says_so(config) -> None:
    assert [unit for unit, _ in calls(model(config), uses=(2, 0))] == [0, 2]
    assert [unit for unit, _ in calls(model(config | {"calls_unused_units": True}), uses=(2, 0))] == [0, 1, 2, 3]


@pytest.mark.parametrize("config", [{}, {"wrap": "root"}, {"units": [["b", "c"]]}, {"units": [["a"], ["c"]], "nested": ["d"]}, {"rows": {"b": 2, "d": 1}}])
def test_gradients_are_those_that_are_given(config) -> None:
    of = model(config)
    of(graph((3, 2, 1, 0))).backward()
    assert [layer.weight.grad.flatten().tolist() for layer in of.layers] == [[p + 1] * 4 for p in range(4)]


def test_parameters_in_modules_below_the_root_come_before_its_own() -> None:
    names = [name for name, _ in model({"units": [["a"]], "nested": ["d"]}).named_parameters()]
    assert names.index("weight1") < names.index("weight2") and "nested.0.weight" in names and "weight3" not in names


def test_an_exception_behind_all_gradients_still_comes_where_no_input_requires_one() -> None:
    of = model({"units": [["a", "b"]]})
    given = graph((1, 0))
    given.raises_after = 2
    with pytest.raises(RuntimeError, match="raised by the script"):
        of(given).backward()
    assert of.layers[0].weight.grad is not None and of.layers[1].weight.grad is not None


def test_what_the_model_cannot_do_is_refused() -> None:
    with pytest.raises(Refused, match="tied"):
        model({"units": [["a"]]}, tied=0)
    with pytest.raises(Refused, match="phases"):
        model({})(graph((1, 0), phases=2))
