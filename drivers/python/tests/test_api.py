"""Judging scenarios from Python: what comes back as objects, and what is raised."""
from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import drivers_of_a_test
import gradledger
import pytest
from gradledger import api, command
from stand_in import StandIn, finding, report, row

ROOT = Path(__file__).resolve().parents[3]
LOSES = "deepspeed-7981/offload-keeps-only-the-last-0.18.9"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn.made(tmp_path, monkeypatch)


@pytest.fixture
def built() -> None:
    try:
        command.path()
    except command.NoCommand as error:
        pytest.skip(f"not run: {error}")


def loses() -> dict:
    return json.loads((ROOT / f"scenarios/{LOSES}.json").read_text())


# ---- the simulator

def test_a_scenario_of_the_corpus_is_judged_by_its_name(built: None) -> None:
    report = gradledger.replay(LOSES)
    assert (report.verdict, report.clean, report.judged, report.classes) == ("findings", False, True, ("offload-loss",))
    assert report.engine == "DeepSpeedZeroOptimizer" and report.as_of == "0.18.9" and report.producer == "host"
    first = report.findings[0]
    assert (first.finding_class, first.step, first.rank, first.lost_weight) == ("offload-loss", 0, 0, 0.75)
    assert {(c.rank, c.micro_batch): (c.expected, c.observed) for c in first.contributions} == {(r, m): (0.5, 0.0) for r in (0, 1) for m in (0, 1, 2)}
    assert first.blame and first.blame.whose == "framework" and first.known and first.known.origin == "DeepSpeed#7981"
    assert "3/4 of the window's weight is missing" in str(first) and str(first) in str(report)
    assert report.coverage.windows_judged == 3


def test_a_dict_is_judged_like_its_file_and_leaves_none_behind(built: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    of_dict, of_file = gradledger.replay(loses()), gradledger.replay(ROOT / f"scenarios/{LOSES}.json")
    assert of_dict.findings == of_file.findings and of_dict.raw["trace_hash"] == of_file.raw["trace_hash"]
    assert of_dict.file == "7981-offload-keeps-only-the-last-0.18.9.json"
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_a_dict_is_named_by_its_place_in_it(built: None) -> None:
    scenario = loses()
    scenario["script"][0]["repeat"]["of"][0] = {"set_bundary": False}
    with pytest.raises(gradledger.BadInput, match=r'^7981-offload-keeps-only-the-last-0\.18\.9\.json:1:\d+: /script/0/repeat/of/0/set_bundary: .*did you mean "set_boundary"'):
        gradledger.replay(scenario)


def test_a_run_in_which_nothing_is_judged_is_bad_input_and_keeps_its_report(built: None) -> None:
    scenario = loses() | {"script": [{"backward": {}}, {"step": {}}], "expect": {}}
    scenario["engine"]["config"]["gradient_accumulation_steps"] = 2
    with pytest.raises(gradledger.BadInput, match="nothing was judged") as raised:
        gradledger.replay(scenario)
    assert raised.value.report is not None and not raised.value.report.judged and not raised.value.report.clean


def test_a_gate_has_a_row_for_each_file_of_a_folder(built: None) -> None:
    gate = gradledger.gate("scenarios/deepspeed-7985")
    files = sorted((ROOT / "scenarios/deepspeed-7985").glob("*.json"))
    assert [Path(row.file) for row in gate.rows] == files and gate.ok
    assert any(row.classes == ("boundary-leak",) for row in gate.passed) and any(row.classes == () for row in gate.passed)


def test_a_scenario_that_reports_something_else_fails_its_gate_and_raises_nothing(built: None) -> None:
    gate = gradledger.gate([loses() | {"name": "expects-nothing", "expect": {"findings": []}}, LOSES])
    assert not gate.ok and [row.passed for row in sorted(gate.rows, key=lambda row: row.passed)] == [False, True]
    assert gate.failed[0].reported == "offload-loss" and gate.failed[0].expected == "clean" and gate.failed[0].unmet and gate.failed[0].sentences


# ---- exit codes

@pytest.mark.parametrize("code, kind", [(2, gradledger.BadInput), (3, gradledger.InternalError), (4, gradledger.NotRun), (5, gradledger.BrokenRun)])
def test_each_exit_code_without_a_verdict_is_an_exception_with_the_commands_text(stand_in: StandIn, code: int, kind: type[Exception]) -> None:
    stand_in.says("replay", code=code, text="gradledger: first line\ngradledger: second line\n")
    with pytest.raises(kind, match="^first line\nsecond line$"):
        gradledger.replay(loses())
    assert kind.code == code


def test_what_was_found_before_a_run_broke_off_is_kept(stand_in: StandIn) -> None:
    stand_in.says("replay", [report("findings", [finding()])], code=5, text="gradledger: rank 1 was ended by signal 9\n")
    with pytest.raises(gradledger.BrokenRun, match="rank 1 was ended by signal 9") as raised:
        gradledger.replay(loses())
    assert raised.value.report is not None and raised.value.report.classes == ("lost-micro-batch",)
    stand_in.says("gate", {"a": [row("a")], "b": [row("b", unmet=["rank 1 was silent"], error="broken run")]}, code=5)
    with pytest.raises(gradledger.BrokenRun, match="rank 1 was silent") as raised:
        gradledger.gate([{"name": "a"}, {"name": "b"}])
    assert [row.passed for row in raised.value.rows] == [True, False]


def test_a_command_that_is_killed_is_no_verdict(stand_in: StandIn) -> None:
    stand_in.says("replay", [report()], signal=True, code=0)
    with pytest.raises(gradledger.InternalError, match="ended by signal 9"):
        gradledger.replay(loses())


def test_a_success_without_a_report_is_no_verdict(stand_in: StandIn) -> None:
    stand_in.says("replay", code=0)
    with pytest.raises(gradledger.InternalError, match="no report"):
        gradledger.replay(loses())


def test_a_gate_of_which_nothing_was_run_is_not_ok_and_says_why(stand_in: StandIn) -> None:
    stand_in.says("gate", [row(not_run="the driver has no no_sync", reported="")], code=2)
    with pytest.raises(gradledger.NotRun, match="the driver has no no_sync"):
        gradledger.gate([{"name": "a"}, {"name": "b"}])


def test_scenarios_that_were_not_run_have_neither_passed_nor_failed(stand_in: StandIn) -> None:
    stand_in.says("gate", {"a": [row("a")], "b": [row("b", not_run="no such option", reported="")]})
    gate = gradledger.gate([{"name": "a"}, {"name": "b"}])
    assert (len(gate.passed), len(gate.failed), len(gate.not_run)) == (1, 0, 1) and gate.ok
    assert "no such option" in str(gate)


def test_numbers_that_json_has_no_form_for_and_fields_of_newer_commands_are_read(stand_in: StandIn) -> None:
    stand_in.says("replay", [report("findings", [finding()]) | {"a_newer_field": 1}], code=1, text="gradledger: taken as 0.19.8\n")
    read = gradledger.replay(loses())
    assert math.isnan(read.findings[0].contributions[0].observed) and read.findings[0].blame is not None
    assert read.raw["a_newer_field"] == 1 and read.notes == "taken as 0.19.8"


def test_a_finding_has_the_contributions_that_the_command_tells_in_blocks_alone(stand_in: StandIn) -> None:
    blocks = [{"step": 0, "ranks": [0, 1], "micro_batches": [2, 3], "expected": 0.5, "observed": 0.0}, {"step": 1, "ranks": [1, 1], "micro_batches": [0, 0], "expected": 0.5, "observed": "inf"}]
    stand_in.says("replay", [report("findings", [finding(contributions_not_listed=4, contribution_blocks=blocks)])], code=1)
    contributions = gradledger.replay(loses()).findings[0].contributions
    assert [(c.step, c.rank, c.micro_batch, c.observed) for c in contributions] == [(0, 0, 2, 0.0), (0, 1, 2, 0.0), (0, 0, 3, 0.0), (0, 1, 3, 0.0), (1, 1, 0, math.inf)]


def test_leaving_a_run_before_its_end_ends_the_command(stand_in: StandIn) -> None:
    stand_in.says("gate", [row()], waits=True)
    rows = iter(api.Options().run("gate", ["a.json"]))
    next(rows)
    process = stand_in.asked[0]["process"]
    os.kill(process, 0)
    rows.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


# ---- drivers

def test_options_of_a_driver_are_those_of_the_command(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.says("replay", [report()])
    gradledger.replay(loses(), "ddp", backend="gloo", deliver="late", deadline=7, seed=3, log=tmp_path / "log")
    words = stand_in.words()
    for option, value in {"--producer": "ddp", "--backend": "gloo", "--deliver": "late", "--deadline": "7", "--seed": "3", "--driver-log": str(tmp_path / "log")}.items():
        assert words[words.index(option) + 1] == value
    gradledger.replay(loses())
    assert "--producer" not in stand_in.words() and "--backend" not in stand_in.words()
    stand_in.says("gate", [row()])
    gradledger.gate(loses(), "deepspeed", against="sim")
    assert stand_in.words()[stand_in.words().index("--against") + 1] == "sim"


def test_the_python_of_a_driver_is_the_one_asked_for_or_that_of_the_environment_or_this_one(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.says("replay", [report()])
    gradledger.replay(loses(), "ddp")
    monkeypatch.setenv("GRADLEDGER_PYTHON", "/of/the/environment")
    gradledger.replay(loses(), "ddp")
    gradledger.replay(loses(), "ddp", "/asked/for")
    assert [asked["environment"]["GRADLEDGER_PYTHON"] for asked in stand_in.asked] == [sys.executable, "/of/the/environment", "/asked/for"]
    assert all(Path(asked["environment"]["GRADLEDGER_DRIVERS"], "gradledger/__init__.py").is_file() for asked in stand_in.asked)


@pytest.mark.parametrize("driver, producer", [
    (drivers_of_a_test.Own, "python:drivers_of_a_test:Own"),
    (drivers_of_a_test.Own.Inner, "python:drivers_of_a_test:Own.Inner"),
    (drivers_of_a_test.factory, "python:drivers_of_a_test:factory"),
    ("drivers_of_a_test:factory", "python:drivers_of_a_test:factory"),
    ("python:drivers_of_a_test:factory", "python:drivers_of_a_test:factory"),
])
def test_a_driver_of_ones_own_is_named_by_its_module_and_the_modules_folder_is_searched(stand_in: StandIn, driver: api.Driver, producer: str) -> None:
    stand_in.says("replay", [report()])
    gradledger.replay(loses(), driver)
    words = stand_in.words()
    assert words[words.index("--producer") + 1] == producer
    assert stand_in.asked[-1]["environment"]["PYTHONPATH"].split(os.pathsep)[0] == str(Path(__file__).parent)


def test_a_driver_of_the_script_that_runs_is_named_by_the_script(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.says("replay", [report()])
    (tmp_path / "my_script.py").write_text("import gradledger\nclass Own:\n    pass\nif __name__ == '__main__':\n    gradledger.replay({'name': 'a'}, Own)\n")
    subprocess.run([sys.executable, str(tmp_path / "my_script.py")], check=True, env=os.environ | {"PYTHONPATH": str(command.PACKAGE.parent)})
    words = stand_in.words()
    assert words[words.index("--producer") + 1] == "python:my_script:Own"
    assert stand_in.asked[-1]["environment"]["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)


@pytest.mark.parametrize("driver", [lambda rank, world_size: None, "deepspeeed", "module:", "a:b:c", 7])
def test_what_leads_to_no_driver_is_refused_before_anything_runs(stand_in: StandIn, driver: object) -> None:
    def inner(rank: int, world_size: int) -> None:
        pass
    for each in (driver, inner):
        with pytest.raises(gradledger.BadInput, match="expected"):
            gradledger.replay(loses(), each)  # type: ignore[arg-type]
    assert stand_in.asked == []


def test_a_python_or_a_log_without_a_driver_is_refused(stand_in: StandIn) -> None:
    for more in ({"python": "python3"}, {"log": "log"}):
        with pytest.raises(gradledger.BadInput, match="driver"):
            gradledger.replay(loses(), **more)


# ---- where things are

def test_a_file_that_is_there_goes_before_one_of_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert api.find(LOSES) == ROOT / f"scenarios/{LOSES}.json" == api.find(f"scenarios/{LOSES}.json")
    assert api.find("scenarios/deepspeed-7981") == ROOT / "scenarios/deepspeed-7981"
    assert api.find("fsdp2/world-3") == ROOT / "drivers/scenarios/fsdp2/world-3.json"
    (tmp_path / "scenarios/deepspeed-7981").mkdir(parents=True)
    assert api.find("scenarios/deepspeed-7981") == tmp_path / "scenarios/deepspeed-7981"


@pytest.mark.parametrize("name", ["nothing-of-this-name", "/nothing/of/this/name", "../README.md"])
def test_a_name_that_leads_nowhere_or_out_of_the_corpus_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(gradledger.BadInput, match="does not exist; expected"):
        gradledger.replay(name)


def test_a_command_that_is_not_there_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADLEDGER_COMMAND", "/nowhere/gradledger")
    with pytest.raises(gradledger.BadInput, match="/nowhere/gradledger.*pip install"):
        gradledger.replay(loses())
    console = subprocess.run([sys.executable, "-c", "from gradledger.command import main; main()", "list"], capture_output=True, text=True,
                             env=os.environ | {"PYTHONPATH": str(command.PACKAGE.parent)})
    assert console.returncode == 2 and "/nowhere/gradledger" in console.stderr and "Traceback" not in console.stderr


def test_the_console_script_is_the_command_with_a_python_for_drivers(stand_in: StandIn) -> None:
    (stand_in.folder / "answers").write_text(json.dumps({"gate": {"records": {}, "code": 4, "text": "gradledger: no GPU\n"}}))
    console = subprocess.run([sys.executable, "-c", "from gradledger.command import main; main()", "gate", "--", "x"], capture_output=True, text=True,
                             env=os.environ | {"PYTHONPATH": str(command.PACKAGE.parent)})
    assert (console.returncode, console.stderr) == (4, "gradledger: no GPU\n")
    assert stand_in.words() == ["gate", "--", "x"] and stand_in.asked[0]["environment"]["GRADLEDGER_PYTHON"] == sys.executable


def test_the_package_is_of_the_version_of_the_command_and_imports_no_framework() -> None:
    assert re.search(r"project\(gradledger VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1) == gradledger.__version__
    assert [name.split(">")[0] for name in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]] == ["msgpack"]
    imported = subprocess.run([sys.executable, "-c", "import gradledger, gradledger.judgements, sys; print({'torch', 'numpy', 'msgpack'} & set(sys.modules))"],
                              capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(command.PACKAGE.parent)})
    assert imported.stdout.strip() == "set()"
