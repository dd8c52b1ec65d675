"""`observe` on loops of one process: what is clean, what is named, what the losses are multiplied by, and that nothing stays of it."""
from __future__ import annotations

import random
from fractions import Fraction

import gradledger
import numpy
import pytest
import torch
from observed_loops import CRITERION, MICRO_BATCHES, batch, contributions, network, state_of, window


@pytest.fixture
def trained():
    """A model with an optimizer that has state, as in the middle of a training."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    window(model, optimizer)
    return model, optimizer


def observed(model, optimizer, loop=window, **options):
    with gradledger.observe(model, optimizer, **options) as ledger:
        loop(model, optimizer)
    return ledger


def of_losses(model, optimizer, *losses):
    """A window with one micro-batch for each function of outputs and labels."""
    def loop(model, optimizer):
        for loss in losses:
            inputs, labels = batch()
            loss(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    return loop


# ---- what is judged -----------------------------------------------------------------------------------------------------------------------


def test_a_loop_that_does_what_it_says_is_clean(trained):
    ledger = observed(*trained)
    assert ledger.clean, ledger
    assert [(weight.rank, weight.micro_batch, weight.due) for weight in ledger.weights] == [(0, 0, 0.5), (0, 1, 0.5)]
    assert ledger.report is not None and ledger.report.coverage.judged == 1
    assert "the mean over the micro-batches" in ledger.contract and "nothing was judged" not in str(ledger)


def test_a_zero_grad_between_micro_batches_loses_the_first(trained):
    ledger = observed(*trained, loop=lambda model, optimizer: window(model, optimizer, between=lambda i: optimizer.zero_grad() if i == 0 else None))
    assert contributions(ledger) == {(0, 0): (0.5, 0.0)}
    assert ledger.findings[0].finding_class == "discarded-gradient"
    assert {each.parameter: (each.begin, each.end) for each in ledger.findings[0].elements} == {"0.weight": (0, 1024), "0.bias": (0, 64), "3.weight": (0, 512), "3.bias": (0, 8)}
    assert "0.weight[0:1024]" in ledger.findings[0].sentence


def test_a_gradient_that_is_halved_on_the_way_has_half_its_weight(trained):
    def halve(i):
        for parameter in trained[0].parameters():
            parameter.grad.mul_(0.5)
    ledger = observed(*trained, loop=lambda model, optimizer: window(model, optimizer, between=lambda i: halve(i) if i == 1 else None))
    assert ledger.verdict == "findings" and {weight for _, weight in contributions(ledger).values()} == {0.25}


def test_a_fault_of_one_half_of_a_parameter_is_found_there_alone(trained):
    def spoil(i):
        trained[0][0].weight.grad[32:].zero_()
    ledger = observed(*trained, loop=lambda model, optimizer: window(model, optimizer, between=lambda i: spoil(i) if i == 0 else None))
    wrong = {each.parameter: (each.begin, each.end) for finding in ledger.findings for each in finding.elements}
    assert wrong.keys() == {"0.weight"} and 32 * 16 - 34 < wrong["0.weight"][0] <= 32 * 16 + 34 and wrong["0.weight"][1] == 1024


def test_a_fault_of_a_small_parameter_alone_is_named(trained):
    def spoil(i):
        trained[0][3].bias.grad.zero_()
    ledger = observed(*trained, loop=lambda model, optimizer: window(model, optimizer, between=lambda i: spoil(i) if i == 0 else None))
    assert contributions(ledger) == {(0, 0): (0.5, 0.0)} and {each.parameter for each in ledger.findings[0].elements} == {"3.bias"}


def test_a_hook_of_the_loop_is_given_the_probe_too(trained):
    handle = trained[0][3].weight.register_hook(lambda gradient: gradient * 2)
    ledger = observed(*trained)
    handle.remove()
    assert set(contributions(ledger).values()) == {(0.5, 1.0)}
    assert {each.parameter for each in ledger.findings[0].elements} == {"3.weight"}


def test_a_closure_is_judged_behind_the_backward_in_it(trained):
    def loop(model, optimizer):
        def closure():
            inputs, labels = batch()
            optimizer.zero_grad()
            loss = CRITERION(model(inputs), labels)
            loss.backward()
            return loss
        optimizer.step(closure)
    assert observed(*trained, loop=loop).clean


def test_a_zero_grad_before_the_step_loses_everything(trained):
    ledger = observed(*trained, loop=lambda model, optimizer: window(model, optimizer, between=lambda i: optimizer.zero_grad()))
    assert contributions(ledger) == {(0, 0): (0.5, 0.0), (0, 1): (0.5, 0.0)}


def test_two_windows_in_one_block_are_judged_apart(trained):
    def loop(model, optimizer):
        window(model, optimizer)
        window(model, optimizer, between=lambda i: i or optimizer.zero_grad())
    ledger = observed(*trained, loop=loop)
    assert ledger.windows == 2 and {finding.step for finding in ledger.findings} == {1}


def test_a_window_without_a_step_is_not_clean(trained):
    ledger = observed(*trained, loop=lambda model, optimizer: CRITERION(model(batch()[0]), batch()[1]).backward())
    assert ledger.verdict == "nothing judged" and not ledger.clean and "no optimizer stepped" in str(ledger)


def test_parameters_that_no_gradient_reaches_are_said_not_to_be_judged():
    model = torch.nn.ModuleDict({"used": network(), "unused": torch.nn.Linear(4, 4)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ledger = observed(model, optimizer, loop=lambda model, optimizer: window(model["used"], optimizer))
    assert ledger.clean and any("2 parameters that no probe came to, such as unused.weight" in each for each in ledger.not_judged)


def test_more_micro_batches_than_can_be_told_apart_are_judged_and_said(trained):
    ledger = observed(*trained, loop=lambda model, optimizer: window(model, optimizer, count=4), micro_batches=2)
    assert ledger.clean and any("beyond 2" in each for each in ledger.not_judged)


def test_bf16_and_fp16_gradients_are_judged():
    for dtype in (torch.bfloat16, torch.float16):
        model = network().to(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def loop(model, optimizer, lose=False):
            for i in range(MICRO_BATCHES):
                inputs, labels = batch()
                (CRITERION(model(inputs.to(dtype)).float(), labels) / MICRO_BATCHES).backward()
                if lose and i == 0:
                    optimizer.zero_grad()
            optimizer.step()
        optimizer.zero_grad()
        assert observed(model, optimizer, loop=loop).clean
        assert contributions(observed(model, optimizer, loop=lambda model, optimizer: loop(model, optimizer, lose=True))) == {(0, 0): (0.5, 0.0)}


# ---- what a loss is multiplied by ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "factor"), [
    (lambda out, labels: CRITERION(out, labels) / 3, Fraction(1, 3)),
    (lambda out, labels: 0.1 * CRITERION(out, labels), Fraction(1, 10)),
    (lambda out, labels: CRITERION(out, labels) * torch.tensor(6.0) / 4, Fraction(3, 2)),
    (lambda out, labels: torch.nn.functional.mse_loss(out, torch.zeros_like(out)).to(torch.float64) / 7, Fraction(1, 7)),
    (lambda out, labels: (out ** 2).mean().unsqueeze(0) / 5, Fraction(1, 5)),
    (lambda out, labels: CRITERION(out, labels) / 4 + 0.01 * (out ** 2).sum() / 4, Fraction(1, 4)),
    (lambda out, labels: torch.nn.functional.cross_entropy(out, torch.where(labels < 9, labels, -100), reduction="sum") / 8, Fraction(1, 2)),
])
def test_the_factor_of_a_loss_is_read(trained, loss, factor):
    model, optimizer = trained
    ledger = observed(*trained, loop=of_losses(model, optimizer, loss, loss))
    assert ledger.clean, ledger
    assert [(each.value, each.read) for each in ledger.factors] == [(factor, True)] * 2, ledger


def test_a_factor_that_cannot_be_read_is_said(trained):
    model, optimizer = trained

    def loop(model, optimizer):
        inputs, _ = batch()
        out = model(inputs)
        out.backward(torch.ones_like(out))
        optimizer.step()
        optimizer.zero_grad()
    ledger = observed(*trained, loop=loop)
    assert ledger.clean and not ledger.factors[0].read
    assert any("something else than one number" in each for each in ledger.not_judged)


def test_a_loss_that_is_divided_by_too_much_breaks_a_stated_contract_alone(trained):
    def loop(model, optimizer):
        for _ in range(MICRO_BATCHES):
            inputs, labels = batch()
            (CRITERION(model(inputs), labels) / 8).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert observed(*trained, loop=loop).clean
    assert observed(*trained, loop=loop, contract=8).clean
    ledger = observed(*trained, loop=loop, contract="window")
    assert [finding.finding_class for finding in ledger.findings] == ["wrong-scale"] and set(contributions(ledger).values()) == {(0.5, 0.125)}


def test_tokens_are_read_where_the_criterion_counts_them(trained):
    def loop(total):
        def each(model, optimizer):
            for ignored in (0, 3):
                inputs, labels = batch()
                labels[:ignored] = -100
                (torch.nn.functional.cross_entropy(model(inputs), labels, reduction="sum") / total).backward()
            optimizer.step()
            optimizer.zero_grad()
        return each
    ledger = observed(*trained, loop=loop(5), contract="tokens")
    assert ledger.clean and [(each.tokens, each.value) for each in ledger.factors] == [(4, Fraction(4, 5)), (1, Fraction(1, 5))]
    wrong = observed(*trained, loop=loop(8), contract="tokens")
    assert [finding.finding_class for finding in wrong.findings] == ["wrong-scale"]
    assert "add up to 5/8" in observed(*trained, loop=loop(8)).contract


def test_a_loss_scale_is_taken_out_and_its_absence_is_found(trained):
    model, optimizer = trained
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 10)

    def loop(forgotten=()):
        for i in range(MICRO_BATCHES):
            inputs, labels = batch()
            loss = CRITERION(model(inputs), labels) / MICRO_BATCHES
            (loss if i in forgotten else scaler.scale(loss)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    loop()
    before = scaler.state_dict()
    ledger = observed(*trained, loop=lambda *_: loop())
    assert ledger.clean and ledger.factors[0].value == Fraction(1, 2) and scaler.state_dict() == before
    assert contributions(observed(*trained, loop=lambda *_: loop(forgotten=(1,)))) == {(0, 1): (0.5, 0.5 / 2 ** 10)}


# ---- what stays of it ---------------------------------------------------------------------------------------------------------------------


def test_nothing_of_the_training_differs_behind_it_and_it_goes_on_as_if_never_observed():
    def training(observe):
        model = network()
        optimizer, states = torch.optim.AdamW(model.parameters(), lr=1e-2), []
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        random.seed(7)
        numpy.random.seed(7)

        def update():
            window(model, optimizer)
            schedule.step()
            random.random(), numpy.random.rand()
        for step in range(4):
            if step in observe:
                before = state_of(model, optimizer, schedule)
                with gradledger.observe(model, optimizer) as ledger:
                    update()
                assert ledger.clean and state_of(model, optimizer, schedule) == before
            update()
            states.append(state_of(model, optimizer, schedule))
        return states
    assert training(observe=(0, 2)) == training(observe=())


def test_an_exception_in_the_window_puts_everything_back_and_goes_on(trained):
    model, optimizer = trained
    before, backward, hooks = state_of(model, optimizer), torch.autograd.backward, [len(p._backward_hooks or ()) for p in model.parameters()]
    with pytest.raises(ZeroDivisionError), gradledger.observe(model, optimizer) as ledger:
        window(model, optimizer, between=lambda i: 1 / i)
    assert state_of(model, optimizer) == before and torch.autograd.backward is backward and ledger.verdict == "nothing judged"
    assert [len(p._backward_hooks or ()) for p in model.parameters()] == hooks
    assert observed(model, optimizer).clean


def test_buffers_and_what_a_loop_names_are_put_back():
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 8))
    optimizer, counters = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), {"steps": 3, "losses": [1.0]}
    before = state_of(model, optimizer)
    with gradledger.observe(model, optimizer, counters) as ledger:
        window(model, optimizer)
        counters["steps"] += 1
        counters["losses"].append(0.5)
        model.eval()
    assert ledger.clean and state_of(model, optimizer) == before
    assert counters == {"steps": 3, "losses": [1.0]} and model.training and model[1].training


def test_the_trace_that_is_kept_is_judged_alike(trained, tmp_path):
    ledger = observed(*trained, trace=tmp_path / "window.jsonl", loop=lambda model, optimizer: window(model, optimizer, between=lambda i: i or optimizer.zero_grad()))
    run = gradledger.command.Run(["judge", "--json", str(tmp_path / "window.jsonl")], gradledger.command.environment())
    report = gradledger.Report.of(next(iter(run)))
    assert report.classes == ledger.report.classes == ("discarded-gradient",)


def test_what_cannot_be_looked_into_is_refused():
    model = network()
    with pytest.raises(gradledger.NotRun, match="no optimizer of PyTorch"):
        gradledger.observe(model, object())
    with pytest.raises(gradledger.BadInput, match="micro_batches"):
        gradledger.observe(model, torch.optim.SGD(model.parameters()), micro_batches=-1)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(gradledger.NotRun, match="no parameter that is trained"):
        gradledger.observe(model, torch.optim.SGD([torch.zeros(1, requires_grad=True)]))
    model = network()
    with pytest.raises(gradledger.BadInput, match="divide_by"):
        observed(model, torch.optim.SGD(model.parameters()), contract="nonsense")
