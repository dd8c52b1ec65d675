"""docs/drivers.md: its tutorial is the example that is there, and the example does what the page says of it."""
from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import gradledger
import pytest
from gradledger import api, command, loading
from gradledger.findings import Gate, Report
from gradledger.pytest_plugin import OPTIONS

PAGE = Path(__file__).resolve().parents[3] / "docs/drivers.md"
EXAMPLE = Path(__file__).resolve().parents[1] / "examples/averaging"
ELEMENTS = re.compile(r" \((\w+\[\d+:\d+\](, )?)+\)")
DEADLINE_SECONDS = 300


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text()


def blocks(page: str) -> dict[str, str]:
    """Those that have a name."""
    return dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))


def environment() -> dict[str, str]:
    try:
        return command.environment(sys.executable) | {"GRADLEDGER_COMMAND": str(command.path()), "PYTHONPATH": str(command.PACKAGE.parent)}
    except command.NoCommand as error:
        pytest.skip(f"not run: {error}")


def replayed(driver: str) -> subprocess.CompletedProcess[str]:
    variables = environment()
    words = [variables["GRADLEDGER_COMMAND"], "replay", "averaging.json", "--producer", f"python:{driver}", "--summary", "--deadline", str(DEADLINE_SECONDS)]
    return subprocess.run(words, cwd=EXAMPLE, env=variables, capture_output=True, text=True)


def test_code_of_the_page_is_that_of_the_files(page: str) -> None:
    files = {file.name: file.read_text() for file in EXAMPLE.iterdir() if file.is_file()}
    assert {name: text for name, text in blocks(page).items() if "." in name} == files


def test_the_right_wrapper_gives_the_ledger_of_the_page(page: str) -> None:
    out = replayed("averaging_driver:AveragingDriver")
    assert out.returncode == 0 and blocks(page)["right"] in out.stdout, out.stdout + out.stderr
    assert "\nclean: " in out.stdout


def test_the_wrong_wrapper_gives_the_finding_of_the_page(page: str) -> None:
    out = replayed("averaging_leaks:LeakingDriver")
    assert out.returncode == 1 and blocks(page)["wrong"] in ELEMENTS.sub("", out.stdout), out.stdout + out.stderr


def test_the_suite_of_the_example_passes() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(EXAMPLE), "test_averaging.py"]
    out = subprocess.run([*words[:3], "-p", "gradledger.pytest_plugin", *words[3:]], cwd=EXAMPLE, env=environment(), capture_output=True, text=True)
    assert out.returncode == 0 and re.search(r"^3 passed", out.stdout.splitlines()[-1]), out.stdout + out.stderr


def test_every_driver_has_its_row(page: str) -> None:
    assert set(re.findall(r"^\| `([\w-]+)` \| ", page, re.MULTILINE)) == set(loading.BUILT_IN) == set(api.BUILT_IN)


def test_functions_arguments_and_exceptions_are_those_that_there_are(page: str) -> None:
    arguments = ", ".join(inspect.signature(gradledger.replay).parameters)
    assert f"`replay({arguments})`" in page
    for name in gradledger.__all__:
        if isinstance(getattr(gradledger, name), type) and issubclass(getattr(gradledger, name), Exception) and name != "Error":
            assert f"`{name}`" in page, name
    for kind, row in ((Report, "| `replay("), (Gate, "| `gate(")):
        line = next(line for line in page.splitlines() if line.startswith(row))
        for name in re.findall(r"`(\w+)`", line.split("|")[2]):
            assert name in ("Report", "Gate", "Row") or hasattr(kind, name) or name in kind.__dataclass_fields__, name
    for option in OPTIONS:
        assert option == "driver" or f"`{option}`" in page, option
