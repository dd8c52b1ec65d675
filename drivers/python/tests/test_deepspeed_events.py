"""What the driver of DeepSpeed does with events, configurations and errors, in releases of it; test_deepspeed.py says where they are found."""
from __future__ import annotations

from collections.abc import Iterator

import pytest
from command import by_element, ok
from deepspeed_world import (ELEMENTS, MICRO_BATCHES, PARAMETERS, WORLD, Session, available, gradient, mean, sessions, skip_without_deepspeed, together,
                             window, zero)

skip_without_deepspeed()
ADAM = {"type": "AdamW", "lr": 0.5, "weight_decay": 0.25}


@pytest.fixture(scope="module", params=available(), ids=lambda release: release or "installed")
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    yield from sessions(request.param)


def in_order(weights: dict[int, float]) -> dict[tuple[int, int], list[float]]:
    return {element: [value] for element, value in mean(weights).items()}


def errors(answers: dict) -> set[str | None]:
    return {(answer["error"] or {}).get("type") for answer in answers.values()}


# ---- defects that releases have -----------------------------------------------------------------------------------------------------------


def test_a_boundary_set_by_hand_loses_micro_batches_with_offload_before_7981_and_not_after(session: Session) -> None:
    """DeepSpeed#7981: the host accumulator was not used at gradient_accumulation_steps 1. DeepSpeed#7967 and it came with 0.19.0."""
    ok(session.configure({"gradient_accumulation_steps": 1} | zero(2, True)))
    ok(session.event("set_boundary", boundary=False))
    ok(session.backward(0))
    ok(session.event("set_boundary", boundary=True))
    ok(session.backward(1))
    applied = together(ok(session.event("step")), "applied")
    assert applied == in_order({1: 0.5} if session.version < (0, 19, 0) else {0: 0.5, 1: 0.5})


def test_two_boundary_backwards_keep_the_second_alone_at_stage_2(session: Session) -> None:
    """What became of the sums of the first is another question in every line of releases; at 0.18.3 and later the list is emptied between."""
    ok(session.configure(zero(2)))
    ok(session.backward(0))
    ok(session.backward(1))
    applied = together(ok(session.event("step")), "applied")
    assert applied == in_order({1: 0.5} if session.version >= (0, 18, 3) else {0: 0.5, 1: 0.5})


# ---- events -------------------------------------------------------------------------------------------------------------------------------


def test_a_step_that_is_no_boundary_updates_nothing_and_says_so(session: Session) -> None:
    ok(session.configure({"gradient_accumulation_steps": 2} | zero(1)))
    ok(session.backward(0))
    answers = ok(session.event("step"))
    assert all(answer["facts"] == {"updated": 0} for answer in answers.values())
    assert not together(answers, "applied")
    assert set(map(tuple, together(answers, "parameter").values())) == {(0.0, 0.0)}


def test_no_sync_keeps_gradients_on_the_rank_and_partitions_refuse_it(session: Session) -> None:
    ok(session.configure(zero(1)))
    ok(session.event("enter_no_sync"))
    inside = ok(session.backward(0))
    assert by_element(inside[0], "local") == {(p, e): x for p, values in gradient(0, 0).items() for e, x in enumerate(values)}
    ok(session.event("exit_no_sync"))
    ok(session.backward(1))
    assert together(ok(session.event("step")), "applied") == in_order({0: 0.5, 1: 0.5})
    ok(session.configure(zero(2)))
    assert errors(session.event("enter_no_sync")) == {"AssertionError"}


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_coalesced_block_reduces_once_at_its_end_where_the_release_has_it(session: Session, stage: int) -> None:
    ok(session.configure(zero(stage)))
    entered = session.event("enter_coalesce")
    if session.version < (0, 19, 1):
        assert errors(entered) == {"AttributeError"}  # what a user's loop meets there
        return
    ok(entered)
    ok(session.backward(0))
    inside = ok(session.backward(1))
    own = {(p, e): x + y for p in gradient(1, 0) for e, (x, y) in enumerate(zip(gradient(1, 0)[p], gradient(1, 1)[p]))}
    assert by_element(inside[1], "local") == own
    assert together(ok(session.event("exit_coalesce")), "reduced") == in_order({0: 0.5, 1: 0.5})
    assert together(ok(session.event("step")), "applied") == in_order({0: 0.5, 1: 0.5})


def test_an_exception_of_the_users_leaves_the_blocks_around_it(session: Session) -> None:
    ok(session.configure(zero(1)))
    ok(session.event("enter_no_sync"))
    ok(session.backward(0))
    ok(session.event("raise", caught=True))
    ok(session.event("enter_no_sync"))  # the block before was left, else this would be refused
    assert errors(session.event("raise", caught=False)) == {"RuntimeError"}


def test_a_block_that_is_refused_leaves_the_one_around_it_as_it_is(session: Session) -> None:
    ok(session.configure(zero(1)))
    ok(session.event("enter_no_sync"))
    assert errors(session.event("enter_coalesce")) == {"AssertionError" if session.version >= (0, 19, 1) else "AttributeError"}
    ok(session.event("exit_coalesce"))
    assert errors(session.event("enter_no_sync")) == {"AssertionError"}  # still inside the first
    ok(session.event("exit_no_sync"))
    ok(session.event("exit_no_sync"))
    ok(session.event("enter_no_sync"))


def test_forwards_may_be_run_ahead(session: Session) -> None:
    ok(session.configure({"gradient_accumulation_steps": 2} | zero(2)))
    for micro_batch in range(MICRO_BATCHES):
        session.command.event("forward", {rank: gradient(rank, micro_batch) for rank in range(WORLD)}, micro_batch=micro_batch, uses=[2, 1, 0])
    for number in range(MICRO_BATCHES):
        ok(session.event("backward", micro_batch=number, uses=[2, 1, 0], of=number))
        answers = ok(session.event("step"))
    assert together(answers, "applied") == in_order({0: 0.25, 1: 0.25})


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_direct_backward_does_what_the_engines_does_since_7665(session: Session, stage: int) -> None:
    if session.version < (0, 18, 3):
        return  # releases before have no support for it, and each goes wrong in its own way
    ok(session.configure({"gradient_accumulation_steps": 2} | zero(stage)))
    for micro_batch in range(MICRO_BATCHES):
        ok(session.backward(micro_batch, direct=True))
        answers = ok(session.event("step"))
    assert together(answers, "applied") == in_order({0: 0.25, 1: 0.25})


def test_the_loop_may_weigh_a_loss(session: Session) -> None:
    ok(session.configure({"gradient_accumulation_steps": 2} | zero(2)))
    ok(session.backward(0, loss_factor=0.5))
    ok(session.event("step"))
    ok(session.backward(1))
    assert together(ok(session.event("step")), "applied") == in_order({0: 0.125, 1: 0.25})


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_gradient_that_is_set_is_what_the_step_applies(session: Session, stage: int) -> None:
    ok(session.configure(zero(stage)))
    ok(session.backward(0))
    ok(session.event("set_gradient", parameter=1, factor=0.5, local=stage == 3))
    applied = together(ok(session.event("step")), "applied")
    due = {element: {value * (0.5 if element[0] == 1 else 1)} for element, value in mean({0: 0.5}).items()}
    assert {element: set(values) for element, values in applied.items()} == due


def test_what_a_loop_does_to_param_grad_reaches_what_is_there(session: Session) -> None:
    ok(session.configure(zero(0)))
    ok(session.backward(0))
    ok(session.event("scale_gradients", by=0.5))
    ok(session.event("all_reduce", group="world", of="gradients", **{"as": "sum"}))
    ok(session.event("all_reduce", group="world", of="scalar"))
    assert together(ok(session.event("step")), "applied") == {element: [value] * WORLD for element, value in mean({0: 0.5}).items()}


def test_both_zero_grads_are_the_frameworks(session: Session) -> None:
    ok(session.configure({"gradient_accumulation_steps": 2} | zero(0)))
    ok(session.backward(0))
    assert not together(ok(session.event("zero_grad", of="engine")), "replicated")
    ok(session.backward(1))
    assert not together(ok(session.event("zero_grad", of="optimizer")), "replicated")
    assert errors(session.event("zero_grad", of="engine", set_to_none=False)) == {"TypeError"}


def test_an_exception_in_a_backward_is_the_events(session: Session) -> None:
    ok(session.configure(zero(0)))
    answers = session.backward(0, raises_after=1)
    assert errors(answers) == {"RuntimeError"}
    assert {buffer["name"] for buffer in answers[0]["buffers"]} == {"c.grad"}


def test_what_DeepSpeed_has_no_words_for_is_refused(session: Session) -> None:
    ok(session.configure(zero(1)))
    assert errors(session.event("step", past_scaler=True)) == {"Refused"}
    assert errors(session.backward(0, past_scaler=True)) == {"Refused"}
    assert "unscale" not in session.command.host.hello["capabilities"]["events"]


# ---- steps that skip ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_an_overflow_skips_the_step_and_halves_the_scale(session: Session, stage: int) -> None:
    ok(session.configure({"fp16": {"enabled": True, "initial_scale_power": 20, "hysteresis": 1}} | zero(stage), "fp16"))
    ok(session.backward(0))  # 4 times 2 to the 20th is beyond fp16
    answers = ok(session.event("step"))
    for answer in answers.values():
        assert answer["facts"] == {"updated": 0, "skipped": 1, "loss_scale": 2.0**19}
    assert not together(answers, "applied")
    assert set(map(tuple, together(answers, "parameter").values())) in ({(0.0, 0.0)}, {(0.0,)})


def test_a_loops_clip_is_asked_for_in_a_linear_run_too_and_leaves_the_values(session: Session) -> None:
    ok(session.configure(zero(0), linear=True))
    before = together(session.backward(0), "replicated")
    assert before and together(ok(session.event("clip_gradients", max_norm=1e-3, group="world")), "replicated") == before
    assert session.event("clip_gradients", max_norm=1e-3, group="nowhere")[0]["error"]["type"] == "Refused"


def test_the_applied_gradient_is_clipped_and_a_linear_run_does_not_clip(session: Session) -> None:
    norm = sum(value**2 for value in mean({0: 0.5}).values()) ** 0.5
    for linear in (False, True):
        ok(session.configure({"gradient_clipping": 1.0} | zero(2), linear=linear))
        ok(session.backward(0))
        answers = ok(session.event("step"))
        factor = 1.0 if linear else 1.0 / norm
        for element, (value,) in together(answers, "applied").items():
            assert value == pytest.approx(mean({0: 0.5})[element] * factor, rel=1e-5)
        assert answers[0]["facts"]["gradient_norm"] == pytest.approx(norm)


@pytest.mark.parametrize(("group", "counted"), [("rank", 1), ("world", WORLD)])
def test_a_loops_own_clip_says_which_norm_it_clips_by(session: Session, group: str, counted: int) -> None:
    norm = (counted * sum(value**2 for value in mean({0: 0.5}).values())) ** 0.5
    ok(session.configure(zero(0)))
    ok(session.backward(0))
    answers = ok(session.event("clip_gradients", max_norm=1.0, group=group))
    assert answers[0]["facts"] == {"loop_norm": pytest.approx(norm)}
    for element, values in together(answers, "replicated").items():
        assert values == [pytest.approx(mean({0: 0.5})[element] / norm, rel=1e-5)] * WORLD
    assert "loop_norm" not in ok(session.event("step"))[0]["facts"]


# ---- configurations -----------------------------------------------------------------------------------------------------------------------


def test_parameters_that_are_dealt_to_ranks_in_turn_are_shown_where_they_lie(session: Session) -> None:
    ok(session.configure({"gradient_accumulation_steps": 2} | zero(2, round_robin_gradients=True)))
    answers = window(session)
    assert together(answers, "applied") == in_order({0: 0.25, 1: 0.25})
    assert {p for p, _ in by_element(answers[0], "applied")} == {0, 2}  # a and c are dealt to rank 0, b to rank 1


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("overlap", [False, True])
def test_gradients_that_lie_apart_are_averaged_as_on_a_device(session: Session, stage: int, dtype: str, overlap: bool) -> None:
    answers = ok(session.configure({"gradient_accumulation_steps": 2} | zero(stage, contiguous_gradients=False, overlap_comm=overlap), dtype))
    assert any("lie apart" in note for note in answers[0]["notes"]) == (session.version < (0, 19, 8))  # later ones ask for the dtype
    assert together(window(session), "applied") == in_order({0: 0.25, 1: 0.25})


def test_a_step_of_stage_3_lets_go_of_what_is_left_in_param_grad(session: Session) -> None:
    if session.version < (0, 18, 3):
        pytest.skip("a direct backward leaves nothing there")
    ok(session.configure(zero(3)))
    numbers = [ok(session.command.event("forward", {rank: gradient(rank, m) for rank in range(WORLD)}, micro_batch=m, uses=[2, 1, 0]))[0]["number"] for m in range(2)]
    for micro_batch, number in enumerate(numbers):
        session.backward(micro_batch, of=number, direct=True)
    assert errors(session.event("step")) <= {None}


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_groups_have_their_own_rates(session: Session, stage: int, dtype: str) -> None:
    groups = [{"params": ["c"], "lr": 0.5}, {"params": ["b", "a"]}]
    engine = {"param_groups": groups, "optimizer": {"type": "SGD", "lr": 2.0}}
    ok(session.configure({"gradient_accumulation_steps": 2} | zero(stage, sub_group_size=4), dtype, engine=engine))
    answers = window(session)
    applied, weights = together(answers, "applied"), together(answers, "master parameter")
    assert applied.keys() == weights.keys() == set(ELEMENTS)
    for element, held in weights.items():
        rate = 0.5 if element[0] == 2 else 2.0
        assert held == [-rate * value for value in applied[element]]


def test_frozen_and_tied_parameters_have_no_gradient_of_their_own(session: Session) -> None:
    parameters = [PARAMETERS[0], PARAMETERS[1] | {"trainable": False}, PARAMETERS[2], {"name": "again", "numel": PARAMETERS[0]["numel"], "tied_to": "a"}]
    for stage in range(4):
        ok(session.configure(zero(stage), parameters=parameters))
        ok(session.backward(0, uses=(2, 0)))
        applied = together(ok(session.event("step")), "applied")
        due = {element: value for element, value in mean({0: 0.5}).items() if element[0] != 1}
        assert {element: values[0] for element, values in applied.items()} == due, f"stage {stage}"


@pytest.mark.parametrize("stage", [1, 2])
def test_sums_of_another_dtype_are_shown(session: Session, stage: int) -> None:
    ok(session.configure({"data_types": {"grad_accum_dtype": "fp32"}, "gradient_accumulation_steps": 2} | zero(stage, offload=stage == 1), "bf16"))
    first = ok(session.backward(0))
    names = {buffer["name"].split("[")[0] for buffer in first[0]["buffers"] if buffer["role"] in ("local", "reduced")}
    whole = "averaged_gradients" if session.version < (0, 17, 6) or session.version >= (0, 19, 8) else "all_grad_tensors"
    assert names == ({"a.grad_accum", "b.grad_accum", "c.grad_accum"} if stage == 1 else {whole})
    ok(session.event("step"))
    ok(session.backward(1))
    assert together(ok(session.event("step")), "applied").keys() == set(ELEMENTS)


def test_Adam_brings_the_wrapper_of_its_kind_and_its_moments(session: Session) -> None:
    for torch_adam, master in ((False, "fp32_groups_flat[0]"), (True, "fp32_groups[0]")):
        answers = session.configure({"fp16": {"enabled": True}} | zero(0), "fp16", engine={"optimizer": ADAM | {"torch_adam": torch_adam}})
        ok(answers)
        assert any("FusedAdam" in note for note in answers[0]["notes"]) == (not torch_adam)
        ok(session.backward(0))
        done = ok(session.event("step"))[0]
        assert {buffer["name"] for buffer in done["buffers"] if buffer["role"] == "master parameter"} == {master}
        assert {buffer["role"] for buffer in done["buffers"]} >= {"first moment", "second moment"}


@pytest.mark.parametrize("offload", [False, True])
def test_Adams_first_step_moves_every_used_weight_by_the_rate(session: Session, offload: bool) -> None:
    answers = session.configure(zero(2, offload), engine={"optimizer": {"type": "Adam", "lr": 0.5, "eps": 1e-20}})
    ok(answers)
    assert any(("DeepSpeedCPUAdam" if offload else "FusedAdam") in note for note in answers[0]["notes"])
    ok(session.backward(0))
    done = ok(session.event("step"))
    for element, (value,) in together(done, "master parameter").items():
        assert value == pytest.approx(-0.5 if mean({0: 0.5})[element] else 0.0, rel=1e-5)
    for element, (value,) in together(done, "first moment").items():
        assert value == pytest.approx(0.1 * mean({0: 0.5})[element], rel=1e-5)
    for element, (value,) in together(done, "second moment").items():
        assert value == pytest.approx(0.001 * mean({0: 0.5})[element] ** 2, rel=1e-5)


def test_FusedAdam_counts_the_steps_of_the_last_tensor_with_a_gradient_for_its_whole_group() -> None:
    """ops/adam/fused_adam.py: step(). A tensor whose first gradient comes late is counted anew, and those before it take its number."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("deepspeed", reason="DeepSpeed is not importable: that its own step counts is NOT tested here")
    from gradledger.drivers.deepspeed_setup import UncompiledFusedAdam

    first, late = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    optimizer = UncompiledFusedAdam([first, late], lr=1.0, betas=(0.9, 0.999), eps=0.0, weight_decay=0.0, adam_w_mode=True)
    moves = []
    for parameters in ((first,), (first, late)):
        before = first.item()
        for parameter in parameters:
            parameter.grad = torch.ones(1)
        optimizer.step()
        moves.append(before - first.item())
    assert moves == pytest.approx([1.0, 1.9 / 1.999**0.5])  # 1.0 twice, were each counted alone


def test_the_driver_refuses_what_it_cannot_and_passes_on_what_DeepSpeed_refuses(session: Session) -> None:
    by_driver = session.configure(zero(1, offload_optimizer={"device": "nvme"}))
    assert all(answer["type"] == "refused" and answer["by_driver"] and "offload_optimizer to nvme" in answer["error"]["text"] for answer in by_driver.values())
    by_framework = session.configure(zero(2) | {"gradient_predivide_factor": 2.0})
    assert all(answer["type"] == "refused" and not answer["by_driver"] and answer["error"]["type"] == "AssertionError" for answer in by_framework.values())
    ok(session.configure(zero(2)))  # a refusal leaves nothing that the next engine meets
    assert together(ok(session.backward(0)), "reduced") == in_order({0: 0.5})


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_a_restored_engine_goes_on_as_one_that_was_never_ended(session: Session, stage: int) -> None:
    held = []
    for ends in (False, True):
        ok(session.configure(zero(stage), "bf16" if stage else "fp32", engine={"optimizer": ADAM}))
        ok(session.backward(0))
        ok(session.event("step"))
        if ends:
            ok(session.event("save"))
            ok(session.event("restore"))
        ok(session.backward(1))
        done = ok(session.event("step"))
        held.append([together(done, role) for role in ("applied", "master parameter", "first moment", "second moment")])
    assert held[0] == held[1]


# ---- one engine after another -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_engines_one_after_another_leave_no_memory(session: Session, stage: int) -> None:
    def resident_kib() -> int:
        process = session.command.ranks[0].hello["process"]
        with open(f"/proc/{process}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    def cycle() -> None:
        ok(session.configure({"gradient_accumulation_steps": 2} | zero(stage)))
        window(session)

    for _ in range(10):
        cycle()
    before = resident_kib()
    for _ in range(40):
        cycle()
    assert resident_kib() - before < 4096  # an engine that stays takes 130 KiB and more
