"""The model with given gradients: what autograd deposits, and when."""
from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
import torch

from gradledger.driver import Backward, Configuration, Parameter, Refused
from gradledger.model import Graph, LinearModel, rounded_once, shares


def model_of(*sizes: int, dtype: torch.dtype = torch.float32, frozen: tuple[int, ...] = (), tied: dict[int, int] | None = None) -> LinearModel:
    parameters = tuple(Parameter(f"p{p}", size, p not in frozen, (tied or {}).get(p), torch.zeros(size)) for p, size in enumerate(sizes))
    return LinearModel(Configuration(0, {}, parameters, dtype))


def ready(model: LinearModel, graph: Graph, factor: float = 1.0) -> list[int]:
    """Runs forward and backward. Returns the parameters in the order of their gradients."""
    order: list[int] = []
    hooks = [weight.register_post_accumulate_grad_hook(lambda _, p=p: order.append(p)) for p, weight in model.weights.items() if weight.requires_grad]
    try:
        (model(graph) * factor).backward()
    except RuntimeError as error:
        assert "raised by the script" in str(error)
    finally:
        for hook in hooks:
            hook.remove()
    return order


def ones(*sizes: int) -> dict[int, torch.Tensor]:
    return {p: torch.ones(size) for p, size in enumerate(sizes)}


@pytest.mark.parametrize("phases", [1, 2, 3])
def test_gradients_become_ready_in_the_order_that_is_asked_for(phases):
    draw = random.Random(phases)
    for _ in range(20):
        uses = draw.sample(range(7), draw.randint(1, 7))
        assert ready(model_of(*[3] * 7), Graph(uses, ones(*[3] * 7), phases)) == uses


def test_a_gradient_is_what_was_given_times_what_multiplies_the_loss():
    model = model_of(2, 0, 3)
    ready(model, Graph([2, 1, 0], {0: torch.tensor([1.0, 2.0]), 1: torch.zeros(0), 2: torch.tensor([3.0, 0.0, -5.0])}), 0.25)
    assert [model.weights[p].grad.tolist() for p in range(3)] == [[0.25, 0.5], [], [0.75, 0.0, -1.25]]


def test_a_parameter_that_is_not_used_or_frozen_has_no_gradient():
    model = model_of(2, 2, 2, frozen=(1,))
    assert ready(model, Graph([1, 0], ones(2, 2, 2))) == [0]
    assert model.weights[1].grad is None and model.weights[2].grad is None


def test_a_loss_that_uses_nothing_can_be_differentiated():
    assert ready(model_of(2), Graph([], {})) == []


@pytest.mark.parametrize("uses", [1, 2, 3, 5, 8])
def test_all_uses_of_a_tied_parameter_together_have_its_gradient_and_no_bit_is_lost(uses):
    given = torch.tensor([1.0 + 2.0 ** -23, 3.0])
    sizes = [2] * (uses + 1)
    model = model_of(*sizes, tied=dict.fromkeys(range(2, uses + 1), 0))
    assert ready(model, Graph([0, 1], {0: given, 1: torch.ones(2)})) == [0, 1]
    assert torch.equal(model.weights[0].grad, given)
    assert len(list(model.parameters())) == 2


def test_a_tied_parameter_is_ready_with_its_last_use():
    model = model_of(1, 1, 1, tied={2: 0})
    assert ready(model, Graph([2, 1, 0], ones(1, 1, 1))) == [1, 0]
    assert ready(model_of(1, 1, 1, tied={2: 0}), Graph([0, 1], ones(1, 1, 1))) == [0, 1]


@pytest.mark.parametrize("uses", range(1, 40))
def test_shares_are_powers_of_two_that_add_up_to_one(uses):
    assert len(shares(uses)) == uses and sum(map(Fraction, shares(uses))) == 1
    assert all(math.frexp(share)[0] == 0.5 for share in shares(uses)) and max(shares(uses)) <= 2 * min(shares(uses))


@pytest.mark.parametrize("phases", [1, 2])
@pytest.mark.parametrize("after", [0, 1, 2, 3, 9])
def test_an_exception_leaves_autograd_after_so_many_gradients(after, phases):
    model, graph = model_of(1, 1, 1), Graph([2, 0, 1], ones(1, 1, 1), phases)
    graph.raises_after = after
    assert ready(model, graph) == [2, 0, 1][:after]


def test_another_backward_of_the_same_graph_has_gradients_of_its_own():
    model, first, second = model_of(2), {0: torch.tensor([1.0, 2.0])}, {0: torch.tensor([30.0, 50.0])}
    graph = Graph([0], first)
    loss = model(graph)
    for number, given in enumerate((first, second, {})):
        graph.before(Backward(number=number, micro_batch=number, uses=(0,), gradients=given, of=0))
        loss.backward(retain_graph=True)
    assert model.weights[0].grad.tolist() == [61.0, 102.0]  # one that brings none has those of the backward before


@pytest.mark.parametrize(("uses", "text"), [((0,), "other parameters"), ((0, 1), "another order")])
def test_another_backward_of_the_same_graph_goes_through_it_as_the_first_did(uses, text):
    graph = Graph([1, 0], ones(1, 1))
    graph.before(Backward(number=0, micro_batch=0, uses=(1, 0), gradients=ones(1, 1), of=0))
    with pytest.raises(Refused, match=text):
        graph.before(Backward(number=1, micro_batch=1, uses=uses, gradients=ones(1, 1), of=0))


def nearest(exact: float, precision: int, exponent_min: int) -> float:
    """By fractions: the nearest of a format, ties to even."""
    if exact == 0:
        return 0.0
    quantum = Fraction(2) ** (max(math.frexp(exact)[1] - 1, exponent_min) - precision + 1)
    return float(round(Fraction(exact) / quantum) * quantum)


@pytest.mark.parametrize(("dtype", "precision", "exponent_min"), [(torch.bfloat16, 8, -126), (torch.float16, 11, -14)])
def test_a_deposit_is_rounded_once(dtype, precision, exponent_min):
    draw = random.Random(7)
    exact = [(257 + 2 * draw.randint(0, 60)) * 2.0 ** draw.randint(-30, 0) * (1 + draw.choice([-1, 1]) * 2.0 ** -40) for _ in range(500)]
    exact += [(2049 + 2 * draw.randint(0, 500)) * 2.0 ** draw.randint(-38, -4) * (1 + draw.choice([-1, 1]) * 2.0 ** -40) for _ in range(500)]
    exact += [draw.choice([-1, 1]) * draw.random() * 2.0 ** draw.randint(-30, 10) for _ in range(1000)]
    given = torch.tensor(exact, dtype=torch.float64)
    expected = [nearest(value, precision, exponent_min) for value in exact]
    assert rounded_once(given, dtype).double().tolist() == expected
    assert given.to(dtype).double().tolist() != expected  # what the detour is for


def test_what_is_no_number_stays_what_it_is():
    out = rounded_once(torch.tensor([float("inf"), float("-inf"), float("nan"), 1e300, -1e300], dtype=torch.float64), torch.bfloat16).tolist()
    assert out[:2] == [float("inf"), float("-inf")] and math.isnan(out[2]) and out[3:] == [float("inf"), float("-inf")]
