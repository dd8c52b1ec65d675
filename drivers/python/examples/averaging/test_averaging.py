import pytest
from averaging_driver import AveragingDriver
from averaging_leaks import LeakingDriver


@pytest.mark.gradledger("averaging.json", driver=AveragingDriver)
def test_every_micro_batch_is_applied():
    pass


@pytest.mark.gradledger("averaging.json", driver=LeakingDriver, expect="missing-reduction")
def test_the_leak_is_found(gradledger_report):
    leaked = {(contribution.rank, contribution.micro_batch) for finding in gradledger_report.findings for contribution in finding.contributions}
    assert leaked == {(rank, 3) for rank in (0, 1)}


def test_a_longer_window_is_applied_too(gradledger):
    report = gradledger.replay({
        "name": "longer-window",
        "world_size": 4,
        "parameters": [{"name": "w", "numel": 8}],
        "engine": {"framework": "external", "config": {"micro_batches": 8}},
        "contract": {"divide_by": 8},
        "script": [{"backward": {"micro_batches": 8}}, {"step": {}}],
    }, driver=AveragingDriver)
    assert report.clean, report
