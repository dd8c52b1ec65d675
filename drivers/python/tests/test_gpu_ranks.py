"""Which GPU a rank takes, and how its process begins where the host is not of one thread. No GPU is needed: what PyTorch says of them is replaced."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gradledger import host, rank
from gradledger.driver import Refused


@pytest.mark.parametrize(("gpus", "rank_", "taken", "host_id"), [(1, 0, 0, "gradledger-rank-0"), (1, 3, 0, "gradledger-rank-3"), (2, 3, 1, "gradledger-rank-3"), (4, 3, 3, None)])
def test_ranks_share_gpus_and_say_then_that_they_are_hosts_of_their_own(monkeypatch, gpus, rank_, taken, host_id):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("LOCAL_RANK", str(rank_))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setenv("NCCL_HOSTID", "to be restored")
    monkeypatch.delenv("NCCL_HOSTID")
    assert rank.take_gpu(rank_, 4) == torch.device("cuda", taken)
    assert os.environ["LOCAL_RANK"] == str(taken)
    assert os.environ.get("NCCL_HOSTID") == host_id


def test_without_a_gpu_nccl_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(Refused, match="--backend nccl wants a GPU"):
        rank.take_gpu(0, 2)


@pytest.mark.parametrize(("backend", "afresh"), [("nccl", True), ("gloo", False)])
def test_a_host_with_threads_starts_ranks_on_gpus_afresh(monkeypatch, tmp_path, backend, afresh):
    started, go_on = [], threading.Event()
    monkeypatch.setattr(host.Host, "fork", lambda self, *_: started.append("forked") or 7)
    monkeypatch.setattr(os, "posix_spawn", lambda path, words, environment, **_: started.append((words[1:], environment["RANK"], environment["WORLD_SIZE"])) or 7)
    of = host.Host(SimpleNamespace(send=lambda message: None), lambda *_: None, "ddp", backend)
    other = threading.Thread(target=go_on.wait)
    other.start()
    try:
        of.start(1, 2, str(tmp_path / "errors"))
    finally:
        go_on.set()
        other.join()
    words = ["-m", "gradledger.rank", "ddp", "--backend", backend, "--store", f"file://{of.folder}/store1"]
    assert started == ([(words, "1", "2")] if afresh else ["forked"])


@pytest.mark.skipif("GRADLEDGER_COMMAND" not in os.environ, reason="GRADLEDGER_COMMAND names no command: what it asks drivers for is NOT tested")
@pytest.mark.parametrize("against", [True, False])
def test_weights_are_compared_of_a_run_that_nobody_looks_into(tmp_path, against):
    """To read a buffer of a GPU is to wait for it, and then no race between its streams shows."""
    scenario, log = Path(__file__).parents[3] / "scenarios" / "ddp" / "no-sync-of-both-ranks.json", tmp_path / "log"
    words = ["gate", "--python", sys.executable, "--producer", "ddp", "--driver-log", str(log), *(["--against", "sim"] if against else []), str(scenario)]
    package = os.environ | {"GRADLEDGER_DRIVERS": str(Path(host.__file__).parents[1])}
    subprocess.run([os.environ["GRADLEDGER_COMMAND"], *words], env=package, check=True, capture_output=True)
    told = [json.loads(line)["message"] for line in log.read_text().splitlines()]
    looks = {message["observe"] for message in told if message["type"] == "configure"}
    assert looks == ({True, False} if against else {True})
