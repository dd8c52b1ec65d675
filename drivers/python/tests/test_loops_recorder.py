"""tools/recorder/record-loops without the packages that it is for: what it takes out of a file, and what it notes of a loop."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "recorder"))

from loops_recorder import plans, ranks, sources  # noqa: E402

FILE = '''
import kernels_of_a_gpu


class Worker(kernels_of_a_gpu.Base):
    @kernels_of_a_gpu.profiled
    def step(self, loss):
        log(loss)
        with Timer:
            loss = loss.to("cuda") * scale(self)
        loss.backward()


def scale(worker):
    return worker.ranks


def main():
    counted = 0
    for batch in batches:
        counted += batch
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "loop.py").write_text(FILE)
    return tmp_path


def test_a_method_runs_on_a_cpu_with_the_functions_of_its_file_and_without_its_imports(folder):
    import contextlib
    from types import SimpleNamespace

    space = sources.run(sources.trees(folder, {"loop.py": ["step", "scale"]}), {"Timer": contextlib.nullcontext()})
    weight = torch.zeros(1, requires_grad=True)
    space["step"](SimpleNamespace(ranks=2), weight.sum())
    assert weight.grad == 2
    space["log"].assert_called_once()


def test_statements_of_a_function_run_by_themselves(folder):
    space = sources.run(sources.statements(folder, "loop.py", "main", ["for batch in"]), {"batches": [1, 2], "counted": 0})
    assert space["counted"] == 3


def test_what_a_file_does_not_have_is_named(folder):
    with pytest.raises(SystemExit, match="loop.py has no train"):
        sources.trees(folder, {"loop.py": ["train"]})


def test_a_sample_weighs_what_a_step_takes_off_its_weight():
    run = plans.run("a", "nemo-rl", {}, tokens=[4, 2], world=1)
    notes, model = ranks.Notes(run, 0), ranks.Samples(2)
    optimizer = ranks.Noted(notes, model.parameters())
    for sample in notes.samples():
        notes.backward()
        logits = model(torch.tensor([[sample] + [0] * run["tok"][sample]])).logits[:, :-1]
        (-logits.log_softmax(-1)[..., 0].mean() / 2).backward()
    optimizer.step()
    assert notes.told() == {"steps": [[0.5, 0.5]], "sync": [[False, 0, None], [True, 1, None]], "weights_per_token": [[0.125, 0.25]]}
