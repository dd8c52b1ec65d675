"""What a campaign on a real framework makes of findings that were saved before."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gradledger import host

pytestmark = pytest.mark.skipif("GRADLEDGER_COMMAND" not in os.environ, reason="GRADLEDGER_COMMAND names no command: what fuzz does with saved findings is NOT tested")


def test_a_saved_finding_of_another_framework_is_not_taken_and_the_campaign_goes_on(tmp_path):
    there = tmp_path / "findings"
    there.mkdir()
    shutil.copy(Path(__file__).parents[3] / "scenarios" / "fsdp2" / "a-block-behind-a-switch.json", there)
    words = ["fuzz", "--engine", "ddp", "--producer", "ddp", "--python", sys.executable, "--cases", "2", "--json"]
    package = os.environ | {"GRADLEDGER_DRIVERS": str(Path(host.__file__).parents[1])}
    ended = subprocess.run([os.environ["GRADLEDGER_COMMAND"], *words], env=package, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert "internal error" not in ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["status"] for row in rows if "a-block-behind-a-switch" in str(row.get("file"))] == ["not taken"]
    assert rows[-1]["record"] == "summary"
