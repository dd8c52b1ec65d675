"""The driver of DeepSpeed in releases of it: gradients, sums and weights worked out by hand, whatever stage, dtype and place of the optimizer.

GRADLEDGER_DEEPSPEED is a folder of folders, each made by `pip install --target` and named by its release; without it the installed release is taken.
"""
from __future__ import annotations

from collections.abc import Iterator

import pytest
from command import by_element, fp32, ok
from deepspeed_world import (ELEMENTS, MICRO_BATCHES, PARAMETERS, SCALE, WORLD, Session, available, gradient, known_factor, mean, sessions,
                             skip_without_deepspeed, together, window, zero)

skip_without_deepspeed()
CONFIGURATIONS = [(stage, dtype, offload) for stage in range(4) for dtype in ("fp32", "bf16", "fp16") for offload in (False, True) if stage or not offload]


@pytest.fixture(scope="module", params=available(), ids=lambda release: release or "installed")
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    yield from sessions(request.param)


# ---- applied gradients ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stage", "dtype", "offload"), CONFIGURATIONS)
def test_the_applied_gradient_is_the_mean_of_the_window_and_the_ranks_cover_every_element(session: Session, stage: int, dtype: str, offload: bool) -> None:
    ok(session.configure({"gradient_accumulation_steps": MICRO_BATCHES} | zero(stage, offload), dtype))
    factor = known_factor(session.version, stage, dtype)
    answers = window(session)
    applied = together(answers, "applied")
    replicated = stage == 0 and not (dtype == "bf16" and session.version < (0, 17, 6))  # there BF16_Optimizer divides stage 0 too
    assert applied == {element: [value * factor] * (WORLD if replicated else 1) for element, value in mean().items()}
    for answer in answers.values():
        assert answer["facts"]["updated"] == 1 and answer["facts"]["skipped"] == 0
        assert all(not buffer["at_end"] and buffer["space"] == ("host" if offload else "device") for buffer in answer["buffers"] if buffer["role"] == "applied")


@pytest.mark.parametrize(("stage", "dtype", "offload"), CONFIGURATIONS)
def test_weights_and_masters_are_what_a_step_of_SGD_leaves(session: Session, stage: int, dtype: str, offload: bool) -> None:
    parameters = [parameter | {"weights": fp32([1.0] * parameter["numel"])} for parameter in PARAMETERS]
    ok(session.configure({"gradient_accumulation_steps": MICRO_BATCHES} | zero(stage, offload), dtype, parameters))
    factor = known_factor(session.version, stage, dtype)
    answers = window(session)
    for role in ("parameter", "master parameter"):
        held = together(answers, role)
        assert held.keys() == set(ELEMENTS)
        for element, value in mean().items():
            due = 1 - value * factor
            # 16 bits hold these integers; where the step was too small they round 1 - a little to 1 or the number below.
            exact = factor == 1.0 or role == "master parameter"
            assert all(abs(x - due) <= (0 if exact and factor == 1.0 else 2**-8) for x in held[element]), (role, element)
    assert len(set(map(len, together(answers, "parameter").values()))) == 1


# ---- sums -------------------------------------------------------------------------------------------------------------------------------


def test_stage_0_shows_replicated_sums_and_their_average_at_the_boundary(session: Session) -> None:
    ok(session.configure({"gradient_accumulation_steps": 2} | zero(0)))
    first = ok(session.backward(0))
    for rank in range(WORLD):
        assert by_element(first[rank], "replicated") == {(p, e): x / 2 for p, values in gradient(rank, 0).items() for e, x in enumerate(values)}
    ok(session.event("step"))
    assert together(ok(session.backward(1)), "replicated") == {element: [value] * WORLD for element, value in mean().items()}


def test_stage_1_shows_the_ranks_own_sums_until_the_boundary_and_reduced_ones_behind_it(session: Session) -> None:
    ok(session.configure({"gradient_accumulation_steps": 2} | zero(1)))
    first = ok(session.backward(0))
    assert by_element(first[1], "local") == {(p, e): x / 2 for p, values in gradient(1, 0).items() for e, x in enumerate(values)}
    ok(session.event("step"))
    second = ok(session.backward(1))
    assert not together(second, "local")
    assert together(second, "reduced") == {element: [value] for element, value in mean().items()}


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("offload", [False, True])
def test_stages_2_and_3_show_the_average_of_every_backward(session: Session, stage: int, offload: bool) -> None:
    ok(session.configure({"gradient_accumulation_steps": 2} | zero(stage, offload)))
    first = together(ok(session.backward(0)), "reduced")
    assert first == {element: [value] for element, value in mean({0: 0.25}).items()}
    ok(session.event("step"))
    second = ok(session.backward(1))
    role = "master" if offload else "reduced"
    assert together(second, role) == {element: [value] for element, value in mean().items()}


def test_scaled_sums_say_so(session: Session) -> None:
    ok(session.configure({"gradient_accumulation_steps": 2} | zero(2), "fp16"))
    answer = ok(session.backward(0))[0]
    sums = [buffer for buffer in answer["buffers"] if buffer["role"] == "reduced"]
    assert sums and all(buffer["scale"] == SCALE for buffer in sums)
    held = by_element(answer, "reduced")
    assert held == {element: SCALE * value for element, value in mean({0: 0.25}).items() if element in held}


def test_bf16_with_fp32_sums_shows_what_each_rank_accumulates(session: Session) -> None:
    ok(session.configure({"data_types": {"grad_accum_dtype": "fp32"}} | zero(1), "bf16"))
    ok(session.event("set_boundary", boundary=False))
    first = ok(session.backward(0))
    served_by_a_wrapper_of_fp16 = (0, 17, 6) <= session.version < (0, 18, 5)
    assert by_element(first[0], "replicated") == {(p, e): x for p, values in gradient(0, 0).items() for e, x in enumerate(values)}
    ok(session.event("set_boundary", boundary=True))
    ok(session.backward(1))
    applied = together(ok(session.event("step")), "applied")
    factor = known_factor(session.version, 0, "bf16") if served_by_a_wrapper_of_fp16 else 1.0
    copies = WORLD if served_by_a_wrapper_of_fp16 else 1
    assert applied == {element: [2 * value * factor] * copies for element, value in mean().items()}
