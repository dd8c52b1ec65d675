"""pytest: a marker that makes a test of every scenario of a folder, and fixtures with what was found.

    @pytest.mark.gradledger("scenarios/deepspeed-7981", driver="deepspeed")
    def test_windows_keep_their_gradients():
        pass
"""
from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Iterator

import pytest

from . import api
from .findings import Gate, Report, Row
from .judgements import Judgements

CASE = "_gradledger_case"
NOT_SCENARIOS = (".schema.json", ".gradients.json", ".tokens.json")
OPTIONS = tuple(field.name for field in fields(api.Options) if field.name != "log")  # there is one command for many tests
JUDGEMENTS = pytest.StashKey[Judgements]()
MARKER = """gradledger(*paths, driver=None, expect=None, python=None, backend="gradledger", deliver="eager", deadline=120, seed=0, against=None): a test for each \
scenario of these files, folders, or names of gradledger's corpus. It fails where the scenario does not report what it expects, or `expect`: "clean", classes of \
findings, or "anything", which leaves it to the body. It is skipped where the framework or the driver does not take the scenario."""


@dataclass(frozen=True)
class Case:
    """One scenario of a marker."""
    file: Path
    options: api.Options
    expect: tuple[str, ...] | None  # None: what the scenario says
    anything: bool


class Session:
    """What the fixture `gradledger` gives: replay() and gate(), with the driver and the Python of the command line where there are."""

    def __init__(self, overrides: dict[str, Any]) -> None:
        self.overrides = overrides

    def replay(self, scenario: api.Scenario, **options: Any) -> Report:
        return api.replay(scenario, **options | self.overrides)

    def gate(self, paths: Any, **options: Any) -> Gate:
        return api.gate(paths, **options | self.overrides)


@pytest.fixture(scope="session")
def gradledger(pytestconfig: pytest.Config) -> Session:
    """Judges scenarios that a test makes itself."""
    return Session(overrides_of(pytestconfig))


@pytest.fixture
def gradledger_report(request: pytest.FixtureRequest) -> Report:
    """The verdict on the scenario that the marker gives the test."""
    case = case_of(request.node)
    if case is None:
        pytest.fail("gradledger_report goes with the marker gradledger, which says which scenarios", pytrace=False)
    try:
        return judgements_of(request.config).report(case.options, case.file)
    except api.Error as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(name=CASE)
def _case(request: pytest.FixtureRequest) -> Case:
    """What the marker parametrises a test by."""
    return request.param


# ---- hooks

def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gradledger")
    group.addoption("--gradledger-driver", metavar="DRIVER", help="runs the scenarios of every marker: deepspeed, ddp, fsdp2, fsdp1, megatron, "
                    "megatron-fsdp, megatron-fsdp-v2, torch, host or module:factory")
    group.addoption("--gradledger-python", metavar="PYTHON", help="interpreter that has the framework")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.stash[JUDGEMENTS] = Judgements()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    markers = list(metafunc.definition.iter_markers("gradledger"))
    if not markers:
        return
    cases, names = [], []
    for marker in reversed(markers):  # the one above all others first
        of_marker = list(cases_of(marker, metafunc))
        label = "" if len(markers) == 1 else f"{label_of(of_marker[0][1].options.driver)}: "
        cases += [case for _, case in of_marker]
        names += [label + name for name, _ in of_marker]
    metafunc.fixturenames.append(CASE)
    metafunc.parametrize(CASE, cases, indirect=True, ids=names)


def pytest_collection_finish(session: pytest.Session) -> None:
    judgements = judgements_of(session.config)
    for item in session.items:
        if case := case_of(item):
            judgements.want(case.options, case.file, report="gradledger_report" in getattr(item, "fixturenames", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what was not run, before anything of the test is set up."""
    case = case_of(item)
    if case is None:
        return
    judgements = judgements_of(item.config)
    try:
        why = why_not_run(judgements.row(case.options, case.file))
    except api.Error:
        return  # there is no verdict, which fails the test when it is called
    if why:
        judgements.not_run.append((case.file, why))
        pytest.skip(f"not run: {case.file.name}: {why}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Before the body: what the body asserts comes on top."""
    if item.get_closest_marker("gradledger") is None:
        return
    case = case_of(item)
    if case is None:
        pytest.fail("the marker gradledger makes tests of functions, and of methods of classes that are no unittest.TestCase; nothing was judged here", pytrace=False)
    try:
        wrong = what_is_wrong(case, judgements_of(item.config).row(case.options, case.file))
    except api.Error as error:
        wrong = str(error)
    if wrong:
        pytest.fail(f"{case.file}\n{wrong}", pytrace=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    judgements_of(session.config).close()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was not run is said whatever the verbosity: it has passed nothing."""
    judgements = judgements_of(config)
    if judgements.not_run:
        terminalreporter.section("gradledger", yellow=True)
        terminalreporter.line(f"{len(judgements.not_run)} of {judgements.wanted} scenarios were not run, which is not to pass:")
        for file, why in judgements.not_run:
            terminalreporter.line(f"  {file}: {why}")


# ---- markers

def cases_of(marker: pytest.Mark, metafunc: pytest.Metafunc) -> Iterator[tuple[str, Case]]:
    """Each with its name."""
    where = f"marker gradledger of {metafunc.definition.nodeid}"
    if not marker.args or not all(isinstance(path, (str, os.PathLike)) for path in marker.args):
        raise pytest.Collector.CollectError(f"{where}: expected a scenario file or a folder of scenarios, and others behind it")
    if unknown := sorted(marker.kwargs.keys() - {"expect", *OPTIONS}):
        raise pytest.Collector.CollectError(f"{where}: has {', '.join(unknown)}; expected expect, {', '.join(OPTIONS)}")
    options = replace(api.Options(**{key: value for key, value in marker.kwargs.items() if key != "expect"}), **overrides_of(metafunc.config))
    expect = marker.kwargs.get("expect")
    anything = expect == "anything"
    classes = None if expect is None or anything else tuple(sorted({expect} if isinstance(expect, str) else set(expect)))
    for path in marker.args:
        for name, file in scenarios_of(path, where, [metafunc.definition.path.parent, metafunc.config.rootpath]):
            yield name, Case(file, options, () if classes == ("clean",) else classes, anything)


def scenarios_of(path: str | os.PathLike[str], where: str, folders: list[Path]) -> list[tuple[str, Path]]:
    """As `gradledger gate` finds them."""
    try:
        place = Path(os.path.normpath(api.find(path, folders)))
    except api.BadInput as error:
        raise pytest.Collector.CollectError(f"{where}: {error}") from None
    if not place.is_dir():
        return [(place.stem, place)]
    files = sorted(Path(folder, file) for folder, _, names in os.walk(place) for file in names if file.endswith(".json") and not file.endswith(NOT_SCENARIOS))
    if not files:
        raise pytest.Collector.CollectError(f"{where}: {place} holds no scenario; a test of nothing does not pass")
    return [(file.relative_to(place).with_suffix("").as_posix(), file) for file in files]


def overrides_of(config: pytest.Config) -> dict[str, Any]:
    given = {"driver": config.getoption("--gradledger-driver"), "python": config.getoption("--gradledger-python")}
    return {key: value for key, value in given.items() if value is not None}


def label_of(driver: api.Driver | None) -> str:
    return driver if isinstance(driver, str) else getattr(driver, "__qualname__", "host")


# ---- verdicts


def judgements_of(config: pytest.Config) -> Judgements:
    return config.stash[JUDGEMENTS]


def case_of(item: pytest.Item) -> Case | None:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get(CASE) if callspec is not None else None


def why_not_run(row: Row) -> str | None:
    return row.not_run or ("; ".join(row.unmet) if row.error == "not available" else None)


def what_is_wrong(case: Case, row: Row) -> str | None:
    if row.error:
        return "\n".join([row.error, *row.unmet])
    if case.anything:
        return None
    if case.expect is None:
        return str(row) if row.failed else None
    if row.classes == case.expect and row.reported != "nothing judged":
        return None
    return "\n".join([f"reported {row.reported}, and the marker expects {', '.join(case.expect) or 'clean'}", *row.sentences])
