"""What `pip install` of the wheel puts into an environment. tools/test-wheel makes one; elsewhere nothing of this is run."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]


def installed() -> Path | None:
    """The package's folder; not that of a checkout that is installed as such."""
    try:
        found = Path(str(metadata.distribution("gradledger").locate_file("gradledger")))
    except metadata.PackageNotFoundError:
        return None
    return found if (found / "data/bin/gradledger").is_file() else None


PACKAGE = installed()
pytestmark = pytest.mark.skipif(PACKAGE is None, reason="not run: no wheel of gradledger is installed here; see tools/test-wheel")


def run(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GRADLEDGER_", "PYTHON"))}
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=clean | environment)


def python(code: str, folder: Path) -> str:
    out = run(sys.executable, "-I", "-c", code, folder=folder)
    assert out.returncode == 0, out.stderr
    return out.stdout.strip()


def console() -> str:
    return str(Path(sys.executable).parent / "gradledger")


def test_the_console_script_is_the_command_of_the_wheel(tmp_path: Path) -> None:
    version = run(console(), "--version", folder=tmp_path)
    assert re.fullmatch(rf"gradledger {re.escape(metadata.version('gradledger'))} \(commit .*Release\)\n", version.stdout)
    assert run(console(), "replay", folder=tmp_path).returncode == 2


def test_nothing_but_msgpack_is_asked_for(tmp_path: Path) -> None:
    assert [re.match(r"[\w-]+", each).group() for each in metadata.requires("gradledger") if "extra ==" not in each] == ["msgpack"]


def test_the_corpus_of_the_wheel_is_whole(tmp_path: Path) -> None:
    def names(folder: Path) -> set[str]:
        return {file.relative_to(folder).as_posix() for file in folder.rglob("*.json")}
    assert names(PACKAGE / "data/scenarios") == names(CHECKOUT / "scenarios")
    assert names(PACKAGE / "data/drivers/scenarios") == names(CHECKOUT / "drivers/scenarios")
    assert python("import gradledger; print(gradledger.corpus())", tmp_path) == str(PACKAGE / "data/scenarios")


def test_every_module_of_the_package_is_in_the_wheel(tmp_path: Path) -> None:
    def modules(folder: Path) -> set[str]:
        return {file.relative_to(folder).as_posix() for file in folder.rglob("*.py") if "data" not in file.relative_to(folder).parts}
    assert modules(PACKAGE) == modules(CHECKOUT / "drivers/python/gradledger")


def test_a_scenario_is_judged_by_its_name(tmp_path: Path) -> None:
    out = python("import gradledger; r = gradledger.replay('deepspeed-7981/offload-keeps-only-the-last-0.18.9'); print(r.classes, gradledger.__file__)", tmp_path)
    assert out == f"('offload-loss',) {PACKAGE / '__init__.py'}"


def test_pytest_knows_the_marker_by_itself(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import pytest\n@pytest.mark.gradledger('deepspeed-7985')\ndef test_it():\n    pass\n")
    out = run(sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider", folder=tmp_path)
    assert out.returncode == 0 and re.search(r"^\d+ passed", out.stdout.splitlines()[-1]), out.stdout


def test_another_python_finds_the_drivers_and_nothing_of_what_is_installed_beside_them(tmp_path: Path) -> None:
    code = "import gradledger, gradledger.host; print(gradledger.__version__)"
    other = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(PACKAGE / 'data/python')!r})\n" + code]
    out = run(*other, folder=tmp_path)
    assert "No module named 'torch'" in out.stderr or "No module named 'msgpack'" in out.stderr, out.stderr
    found = run(*other[:-1], other[-1].replace(", gradledger.host", ", gradledger.command"), folder=tmp_path)
    assert found.stdout.strip() == metadata.version("gradledger"), found.stderr


def test_a_driver_runs_in_the_python_that_the_wheel_is_installed_in(tmp_path: Path) -> None:
    """There is no PyTorch in it, which its Python says and not another one's."""
    scenario = {"name": "a", "world_size": 1, "parameters": [{"name": "w", "numel": 4}], "engine": {"framework": "external"}, "script": [{"backward": {}}, {"step": {}}]}
    (tmp_path / "a.json").write_text(json.dumps(scenario))
    out = run(console(), "replay", "a.json", "--producer", "python:nothing:Here", folder=tmp_path)
    if python("import importlib.util as u; print(u.find_spec('torch') is None)", tmp_path) == "True":
        assert out.returncode == 5 and "No module named 'torch'" in out.stderr, out.stderr
    else:
        assert out.returncode == 5 and "No module named 'nothing'" in out.stderr, out.stderr
