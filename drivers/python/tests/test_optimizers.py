"""What a step is given, as it is seen where the step begins."""
from __future__ import annotations

import pytest
import torch

from gradledger.optimizers import Applied, as_they_were, clip_with_norm, total_norm


def given(parameters: list[torch.nn.Parameter], numel: list[int]) -> list:
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    numbers = {parameter: number for number, parameter in enumerate(parameters)}
    applied = Applied(optimizer, lambda parameter: [(numbers[parameter], 0, numel[numbers[parameter]])])
    optimizer.step()
    steps, seen = applied.take()
    assert steps == 1 and applied.take() == (0, [])
    return [(buffer.name, [tensor.tolist() for tensor in buffer.tensor], list(buffer.pieces)) for buffer in seen]


def with_gradient(values: list[float], dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
    out = torch.nn.Parameter(torch.zeros(len(values), dtype=dtype))
    out.grad = torch.tensor(values, dtype=dtype)
    return out


def test_gradients_of_several_dtypes_have_a_name_each():
    parameters = [with_gradient([1, 2]), with_gradient([3], torch.bfloat16), with_gradient([4])]
    assert given(parameters, [2, 1, 1]) == [
        ("param.grad", [[1, 2], [4]], [(0, 0, 2), (2, 0, 1)]), ("param.grad of torch.bfloat16", [[3]], [(1, 0, 1)])]


def test_a_parameter_without_a_gradient_is_not_stepped():
    absent = torch.nn.Parameter(torch.zeros(1))
    assert given([absent, with_gradient([5])], [1, 1]) == [("param.grad", [[5]], [(1, 0, 1)])]


def test_what_lies_behind_a_gradient_that_does_not_fit_is_not_stepped():
    assert given([with_gradient([1]), with_gradient([2, 3]), with_gradient([4])], [1, 1, 1]) == [("param.grad", [[1]], [(0, 0, 1)])]


def test_gradients_are_as_they_were_behind_what_a_linear_run_does_to_them():
    gradients = [torch.tensor([1.0, 2.0]), torch.tensor([3.0])]
    with pytest.raises(ZeroDivisionError), as_they_were(iter(gradients)):
        gradients[0].mul_(float("nan"))
        raise ZeroDivisionError
    assert [gradient.tolist() for gradient in gradients] == [[1, 2], [3]]


def test_before_PyTorch_2_6_a_clip_over_a_group_is_what_its_halves_are_since(monkeypatch):
    """2.5 has clip_grad_norm_ alone, in one piece."""
    clipped = []
    for _ in range(2):
        parameters = [with_gradient([0.1, 0.7, 3.3]), with_gradient([1.9])]
        norm = total_norm([parameter.grad for parameter in parameters])
        clip_with_norm(parameters, 0.3, norm)
        clipped.append([norm.item(), *(parameter.grad.tolist() for parameter in parameters)])
        for name in ("get_total_norm", "clip_grads_with_norm_"):
            monkeypatch.delattr(torch.nn.utils, name, raising=False)
    assert clipped[0] == clipped[1]
    whole = [with_gradient([0.1, 0.7, 3.3]), with_gradient([1.9])]
    assert clipped[0] == [torch.nn.utils.clip_grad_norm_(whole, 0.3).item(), *(parameter.grad.tolist() for parameter in whole)]
    assert total_norm([]).item() == 0
