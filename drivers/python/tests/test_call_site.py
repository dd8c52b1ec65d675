"""Where a collective was called: the framework's frame, neither ours, nor torch's plumbing, nor wrappers that all calls pass."""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gradledger.call_site import call_site, short_path

PACKAGE = Path(sys.modules["gradledger"].__file__ or "").parents[1]


def nested(folder: Path, *frames: tuple[str, str]) -> str:
    """What is said of a call through functions of these files, the outermost first. The thread keeps frames of this test out."""
    said: list[str] = []
    names: dict[str, Any] = {"call_site": call_site, "said": said}
    exec(compile("def inner(): said.append(call_site())", str(PACKAGE / "gradledger/process_group.py"), "exec"), names)
    call: Callable[[], None] = names["inner"]
    for path, name in reversed(frames):
        names = {"call": call}
        exec(compile(f"\n\ndef {name}():\n    call()", str(folder / path), "exec"), names)
        call = names[name]
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return said[0]


@pytest.fixture()
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_nearest_frame_outside_of_torch_is_named(folder: Path) -> None:
    said = nested(folder, ("train.py", "main"), ("megatron/optimizer.py", "reduce"), ("torch/distributed/c10d_logger.py", "wrapper"),
                  ("torch/distributed/distributed_c10d.py", "all_reduce"))
    assert said == "megatron/optimizer.py:4 reduce"


def test_deepspeeds_layer_of_communication_is_passed_over(folder: Path) -> None:
    said = nested(folder, ("deepspeed/runtime/zero/stage_1_and_2.py", "average_tensor"), ("deepspeed/utils/nvtx.py", "wrapped"),
                  ("deepspeed/comm/comm.py", "all_reduce"), ("deepspeed/comm/torch.py", "all_reduce"), ("torch/distributed/distributed_c10d.py", "all_reduce"))
    assert said == "deepspeed/runtime/zero/stage_1_and_2.py:4 average_tensor"


def test_where_all_frames_are_torchs_and_ours_the_nearest_of_torch_that_tells_something_is_named(folder: Path) -> None:
    said = nested(folder, ("gradledger/rank.py", "main"), ("torch/nn/modules/module.py", "_call"),
                  ("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_reduce"),
                  ("torch/distributed/distributed_c10d.py", "reduce_scatter_tensor"))
    assert said == "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py:4 foreach_reduce"


def test_a_call_of_cpp_alone_has_no_site(folder: Path) -> None:
    assert nested(folder, ("gradledger/drivers/ddp.py", "backward"), ("torch/autograd/graph.py", "run")) == ""


def test_paths_begin_where_they_were_imported_from(folder: Path) -> None:
    assert short_path(str(folder / "a/b.py")) == "a/b.py"
    assert short_path("/nowhere/a/b.py") == "/nowhere/a/b.py"
