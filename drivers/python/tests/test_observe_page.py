"""docs/observe.md: its code is the example that is there, and the example prints what the page says."""
from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import gradledger
from gradledger.observation import Ledger, observe
from test_drivers_page import blocks, environment

PAGE = Path(__file__).resolve().parents[3] / "docs/observe.md"
EXAMPLE = Path(__file__).resolve().parents[1] / "examples/observing"


def test_code_of_the_page_is_that_of_the_files() -> None:
    files = {file.name: file.read_text() for file in EXAMPLE.iterdir() if file.is_file()}
    assert {name: text for name, text in blocks(PAGE.read_text()).items() if "." in name} == files


def test_the_example_prints_what_the_page_says() -> None:
    out = subprocess.run([sys.executable, "look.py"], cwd=EXAMPLE, env=environment(), capture_output=True, text=True)
    named = blocks(PAGE.read_text())
    assert out.returncode == 0 and out.stdout.startswith(named["right"]) and out.stdout.endswith(named["wrong"]), out.stdout + out.stderr


def test_arguments_and_fields_are_those_that_there_are() -> None:
    page = PAGE.read_text()
    names = list(inspect.signature(observe).parameters)
    assert names[:3] == ["model", "optimizer", "others"] and all(f"| `{name}` |" in page for name in names)
    assert list(inspect.signature(gradledger.observe).parameters)[:3] == names[:3]
    for line in page.splitlines():
        if line.startswith(("| `verdict`", "| `findings`", "| `weights`", "| `contract` | what the loop", "| `not_judged`", "| `report`")):
            for name in line.split("|")[1].replace("`", "").split(","):
                assert hasattr(Ledger, name.strip()) or name.strip() in Ledger.__dataclass_fields__, name
