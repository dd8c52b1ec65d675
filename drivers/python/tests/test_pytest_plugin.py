"""The marker and the fixtures, in a pytest inside of this one, on a stand-in for the command."""
from __future__ import annotations

import os
import re
from importlib import metadata
from pathlib import Path

import pytest
from stand_in import StandIn, finding, report, row

pytest_plugins = ["pytester"]


class Project:
    """A folder with scenarios a, b and c, and a test module."""

    def __init__(self, pytester: pytest.Pytester, stand_in: StandIn) -> None:
        self.pytester, self.stand_in, self.folder = pytester, stand_in, pytester.path
        (self.folder / "some").mkdir()
        for name in ("a.json", "b.json", "c.json", "scenario.schema.json", "a.gradients.json"):
            (self.folder / "some" / name).write_text("{}")
        pytester.makeini("[pytest]")

    def run(self, tests: str, *options: str) -> str:
        self.pytester.makepyfile(test_it="import pytest, unittest\n" + tests)
        plugin = [] if metadata.entry_points(group="pytest11", name="gradledger") else ["-p", "gradledger.pytest_plugin"]
        return self.pytester.runpytest_inprocess(*plugin, "-p", "no:cacheprovider", "--strict-markers", "-rA", *options).stdout.str()


@pytest.fixture
def project(pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(pytester, StandIn.made(tmp_path, monkeypatch))


def outcomes(output: str) -> dict[str, int]:
    """Of the last line: how many tests passed, failed, ..."""
    return {what.rstrip("s"): int(count) for count, what in re.findall(r"(\d+) (passed|failed|skipped|errors?)", output.strip().splitlines()[-1])}


MARKED = "@pytest.mark.gradledger('some'{})\ndef test_marked({}):\n    {}\n"


def test_a_folder_is_a_test_for_each_scenario_and_one_command_judges_them_all(project: Project) -> None:
    project.stand_in.says("gate", [row()])
    output = project.run(MARKED.format(", driver='ddp', deliver='late'", "", "pass"))
    assert outcomes(output) == {"passed": 3}
    assert all(f"PASSED test_it.py::test_marked[{name}]" in output for name in "abc")
    assert len(project.stand_in.asked) == 1
    words = project.stand_in.words()
    assert [Path(file).name for file in words[words.index("--") + 1:]] == ["a.json", "b.json", "c.json"]
    assert words[words.index("--producer") + 1] == "ddp" and words[words.index("--deliver") + 1] == "late"


def test_only_what_is_selected_is_judged(project: Project) -> None:
    project.stand_in.says("gate", [row()])
    assert outcomes(project.run(MARKED.format("", "", "pass"), "-k", "b or c")) == {"passed": 2}
    words = project.stand_in.words()
    assert [Path(file).name for file in words[words.index("--") + 1:]] == ["b.json", "c.json"]


def test_markers_of_other_options_are_judged_by_commands_of_their_own(project: Project) -> None:
    project.stand_in.says("gate", [row()])
    output = project.run("@pytest.mark.gradledger('some', driver='ddp')\n@pytest.mark.gradledger('some/a.json', driver='fsdp2')\ndef test_both():\n    pass\n"
                         "@pytest.mark.gradledger('some/c.json', driver='ddp')\ndef test_another():\n    pass\n")
    assert outcomes(output) == {"passed": 5} and "test_both[fsdp2: a]" in output
    assert len(project.stand_in.asked) == 2


def test_a_scenario_that_is_not_as_expected_fails_before_its_body(project: Project) -> None:
    project.stand_in.says("gate", {"a": [row()], "b": [row("b", "lost-micro-batch", unmet=["not expected: micro-batch 2 got lost"])], "c": [row()]}, code=1)
    output = project.run(MARKED.format("", "", "print('the body')"))
    assert outcomes(output) == {"passed": 2, "failed": 1}
    assert "FAILED test_it.py::test_marked[b]" in output and "not expected: micro-batch 2 got lost" in output
    assert output.count("\nthe body\n") == 2


def test_the_marker_may_expect_other_classes_than_the_scenario(project: Project) -> None:
    project.stand_in.says("gate", {"a": [row("a", "boundary-leak", unmet=["not expected"], sentences=["what leaked"])], "b": [row("b", "boundary-leak, stale-gradient", "boundary-leak")],
                                   "c": [row("c", "clean")]}, code=1)
    for expect, passed in {"'boundary-leak'": "a", "['stale-gradient', 'boundary-leak']": "b", "'clean'": "c"}.items():
        output = project.run(MARKED.format(f", expect={expect}", "", "pass"))
        assert outcomes(output) == {"passed": 1, "failed": 2} and f"PASSED test_it.py::test_marked[{passed}]" in output, expect
    assert "reported boundary-leak, and the marker expects clean" in output and "what leaked" in output


def test_a_run_in_which_nothing_was_judged_is_not_what_expects_clean(project: Project) -> None:
    project.stand_in.says("gate", [row(reported="nothing judged")])
    assert outcomes(project.run(MARKED.format(", expect='clean'", "", "pass"))) == {"failed": 3}


def test_what_was_not_run_is_skipped_with_its_reason_and_said_at_the_end(project: Project) -> None:
    project.stand_in.says("gate", {"a": [row()], "b": [row(not_run="the driver has no no_sync", reported="")], "c": [row(unmet=["needs a GPU"], error="not available")]})
    output = project.run(MARKED.format("", "", "pass"), "-q")
    assert outcomes(output) == {"passed": 1, "skipped": 2}
    assert "2 of 3 scenarios were not run, which is not to pass" in output
    assert re.search(r"b\.json: the driver has no no_sync", output) and re.search(r"c\.json: needs a GPU", output)


def test_what_was_not_run_is_not_passed_where_the_body_judges_either(project: Project) -> None:
    project.stand_in.says("gate", [row(not_run="the driver has no no_sync", reported="")], code=2)
    assert outcomes(project.run(MARKED.format(", expect='anything'", "gradledger_report", "pass"))) == {"skipped": 3}


@pytest.mark.parametrize("error", ["broken run", "bad input"])
def test_a_scenario_without_a_verdict_fails_whatever_is_expected(project: Project, error: str) -> None:
    project.stand_in.says("gate", [row(reported="", unmet=["rank 1 was silent"], error=error)], code=5)
    for expect in ("", ", expect='anything'", ", expect='clean'"):
        output = project.run(MARKED.format(expect, "", "pass"))
        assert outcomes(output) == {"failed": 3} and "rank 1 was silent" in output and error in output
    output = project.run(MARKED.format("", "gradledger_report", "pass"))
    assert outcomes(output) == {"error": 3} and "rank 1 was silent" in output and "KeyError" not in output


def test_scenarios_behind_a_command_that_broke_off_have_not_passed(project: Project) -> None:
    project.stand_in.says("gate", {"a": [row()], "b": ["broken"], "c": [row()]}, text="gradledger: the device is gone\n")
    output = project.run(MARKED.format("", "", "pass"))
    assert outcomes(output) == {"passed": 1, "failed": 2} and "the device is gone" in output


def test_a_body_is_given_the_report_and_all_reports_come_from_one_command(project: Project) -> None:
    project.stand_in.says("gate", [row("a", "lost-micro-batch", "lost-micro-batch")])
    project.stand_in.says("replay", [report("findings", [finding()])], code=1)
    output = project.run(MARKED.format(", driver='ddp'", "gradledger_report", "assert gradledger_report.findings[0].rank == 1"))
    assert outcomes(output) == {"passed": 3}
    assert [asked["words"][0] for asked in project.stand_in.asked] == ["gate", "replay"]
    output = project.run(MARKED.format(", driver='ddp'", "gradledger_report", "assert gradledger_report.clean"))
    assert outcomes(output) == {"failed": 3}


def test_a_body_judges_alone_where_anything_is_expected(project: Project) -> None:
    project.stand_in.says("gate", [row("a", "lost-micro-batch", "clean", unmet=["not expected"])], code=1)
    project.stand_in.says("replay", [report("findings", [finding()])], code=1)
    assert outcomes(project.run(MARKED.format(", expect='anything'", "gradledger_report", "assert gradledger_report.classes == ('lost-micro-batch',)"))) == {"passed": 3}


def test_reports_behind_a_replay_that_broke_off_are_made_anew(project: Project) -> None:
    project.stand_in.says("gate", [row()])
    project.stand_in.says("replay", {"a": [report()], "b": ["broken"], "c": [report()]}, text="gradledger: rank 0 ended\n")
    output = project.run(MARKED.format("", "gradledger_report", "assert gradledger_report.clean"))
    assert outcomes(output) == {"passed": 2, "error": 1} and "rank 0 ended" in output and "ERROR test_it.py::test_marked[b]" in output


def test_the_command_line_goes_before_the_marker(project: Project) -> None:
    project.stand_in.says("gate", [row()])
    project.stand_in.says("replay", [report()])
    free = "def test_free(gradledger):\n    gradledger.replay({'name': 'x'}, driver='ddp', seed=5)\n"
    project.run(MARKED.format(", driver='ddp', python='/of/the/marker'", "", "pass") + free, "--gradledger-driver", "fsdp2", "--gradledger-python", "/of/the/line")
    assert [asked["words"][asked["words"].index("--producer") + 1] for asked in project.stand_in.asked] == ["fsdp2", "fsdp2"]
    assert {asked["environment"]["GRADLEDGER_PYTHON"] for asked in project.stand_in.asked} == {"/of/the/line"}


@pytest.mark.parametrize("marker, text", [
    ("'empty'", "holds no scenario"),
    ("'nowhere'", "does not exist"),
    ("", "expected a scenario file or a folder"),
    ("'some', driven='ddp'", "has driven; expected expect, driver"),
])
def test_a_marker_of_nothing_is_an_error_of_the_collection(project: Project, marker: str, text: str) -> None:
    (project.folder / "empty").mkdir()
    output = project.run(f"@pytest.mark.gradledger({marker})\ndef test_marked():\n    pass\n")
    assert outcomes(output) == {"error": 1} and text in output and "Traceback" not in output


def test_a_driver_that_there_is_not_fails_every_test(project: Project) -> None:
    output = project.run(MARKED.format(", driver='deepspeeed'", "", "pass"))
    assert outcomes(output) == {"failed": 3} and "'deepspeeed' is no driver" in output


def test_a_marker_where_it_has_no_effect_fails(project: Project) -> None:
    output = project.run("class Test(unittest.TestCase):\n    @pytest.mark.gradledger('some')\n    def test_marked(self):\n        pass\n")
    assert outcomes(output) == {"failed": 1} and "nothing was judged here" in output


def test_a_report_without_a_marker_is_an_error(project: Project) -> None:
    output = project.run("def test_marked(gradledger_report):\n    pass\n")
    assert outcomes(output) == {"error": 1} and "goes with the marker" in output


def test_a_class_may_be_marked_and_its_methods_be_parametrised_besides(project: Project) -> None:
    project.stand_in.says("gate", [row()])
    output = project.run("@pytest.mark.gradledger('some')\nclass Test:\n    @pytest.mark.parametrize('n', [1, 2])\n    def test_marked(self, n, tmp_path):\n        assert n\n")
    assert outcomes(output) == {"passed": 6} and len(project.stand_in.asked) == 1


def test_a_session_that_ends_early_leaves_no_command(project: Project) -> None:
    project.stand_in.says("gate", [row(unmet=["not expected"])], code=1, waits=True)
    assert outcomes(project.run(MARKED.format("", "", "pass"), "-x")) == {"failed": 1}
    with pytest.raises(ProcessLookupError):
        os.kill(project.stand_in.asked[0]["process"], 0)
