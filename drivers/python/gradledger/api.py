"""Judging scenarios from Python: `replay` says what was found in one, `gate` holds many against what they expect."""
from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence, Union

from . import command
from .findings import Gate, Report, Row

Scenario = Union[Mapping[str, Any], str, "os.PathLike[str]"]
Driver = Union[str, Callable[[int, int], Any]]
BUILT_IN = ("deepspeed", "ddp", "fsdp2", "fsdp1", "megatron", "megatron-fsdp", "megatron-fsdp-v2", "torch")
SIMULATED = (None, "host", "gpu")


class Error(Exception):
    """The command came to no verdict; the text is its own. `report` and `rows` are what it had said before."""

    code: int | None = None

    def __init__(self, text: str, report: Report | None = None, rows: Sequence[Row] = ()) -> None:
        super().__init__(text)
        self.report, self.rows = report, tuple(rows)


class BadInput(Error):
    """An option, a file or a scenario is not right, or leaves nothing to judge."""
    code = 2


class InternalError(Error):
    """A bug in gradledger."""
    code = 3


class NotRun(Error):
    """It cannot be run here: the framework or the driver does not take it, or it needs what this machine lacks."""
    code = 4


class BrokenRun(Error):
    """A rank's process ended, was silent, or said what nobody understands."""
    code = 5


ERRORS: dict[int, type[Error]] = {kind.code: kind for kind in (BadInput, InternalError, NotRun, BrokenRun) if kind.code is not None}


def replay(scenario: Scenario, driver: Driver | None = None, python: str | os.PathLike[str] | None = None, *, backend: str = "gradledger", deliver: str = "eager",
           deadline: int = 120, seed: int = 0, log: str | os.PathLike[str] | None = None) -> Report:
    """Runs one scenario and judges it.

    `scenario` is a dict, a file, or a name of the corpus. `driver` is the real framework that runs it: a name (`deepspeed`, `ddp`, `fsdp2`, `fsdp1`, `torch`),
    `module:factory`, or a factory or class of one's own; without one the simulator does. `python` is the interpreter that has the framework, this one by default.
    Raises BadInput, NotRun or BrokenRun where there is no verdict.
    """
    with Material([scenario]) as material:
        run = Options(driver, python, backend, deliver, deadline, seed, log).run("replay", material.files)
        printed = list(run.records("replay"))
    text = material.without_folder(run.text)
    report = Report.of(material.without_folder(printed[0]), text) if printed else None
    if run.code not in (0, 1):
        raise failure(run.code, text, report)
    if report is None:
        raise InternalError(f"the command ended with {run.code} and no report: {text}")
    return report


def gate(paths: Scenario | Iterable[Scenario], driver: Driver | None = None, python: str | os.PathLike[str] | None = None, *, backend: str = "gradledger",
         deliver: str = "eager", deadline: int = 120, seed: int = 0, log: str | os.PathLike[str] | None = None, against: str | None = None) -> Gate:
    """Runs scenarios, or folders of them, and holds each against what it expects. A row that failed raises nothing: see `Gate.ok`.

    The arguments are those of `replay`; `against="sim"` holds the weights of a real framework against the model's as well. Raises BadInput, NotRun (of none is there a verdict) or BrokenRun; `rows` of the exception are those that there are.
    """
    with Material([paths] if isinstance(paths, (str, os.PathLike, Mapping)) else paths) as material:
        run = Options(driver, python, backend, deliver, deadline, seed, log, against).run("gate", material.files)
        rows = tuple(Row.of(material.without_folder(raw)) for raw in run.records("gate"))
    text = material.without_folder(run.text)
    if rows and all(row.not_run for row in rows):
        raise NotRun("\n".join(map(str, rows)), rows=rows)
    if run.code not in (0, 1):
        raise failure(run.code, "\n".join([text, *(str(row) for row in rows if row.error)]).strip(), rows=rows)
    return Gate(rows, text)


@dataclass(frozen=True)
class Options:
    """What a run of the command is asked for, whatever it runs."""
    driver: Driver | None = None
    python: str | os.PathLike[str] | None = None
    backend: str = "gradledger"
    deliver: str = "eager"
    deadline: int = 120
    seed: int = 0
    log: str | os.PathLike[str] | None = None
    against: str | None = None  # of a gate

    def run(self, verb: str, files: Sequence[str]) -> command.Run:
        words, modules = [verb, "--json", "--seed", str(self.seed)], []
        if self.driver in SIMULATED:
            if self.python is not None or self.log is not None or self.against is not None:
                raise BadInput("python, log and against go with a driver; expected driver=")
            words += ["--producer", str(self.driver)] if self.driver else []
        else:
            producer, modules = self.producer()
            words += ["--producer", producer, "--backend", self.backend, "--deliver", self.deliver, "--deadline", str(self.deadline)]
            words += ["--driver-log", os.fspath(self.log)] if self.log is not None else []
            words += ["--against", self.against] if self.against is not None and verb == "gate" else []
        python = None if self.python is None else os.fspath(self.python)
        try:
            return command.Run([*words, "--", *files], command.environment(python, modules))
        except command.NoCommand as error:
            raise BadInput(str(error)) from None

    def producer(self) -> tuple[str, list[Path]]:
        """As the command has it, and the folders that modules of the user's are found in."""
        driver = self.driver
        if isinstance(driver, str):
            if driver in BUILT_IN:
                return driver, []
            name = driver.removeprefix("python:")
            module, colon, factory = name.partition(":")
            if not (module and colon and factory) or ":" in factory:
                raise BadInput(f"{driver!r} is no driver; expected one of {', '.join(BUILT_IN)}, module:factory, or a class of your own")
            return f"python:{name}", folders_of(module)
        return place_of(driver)


def place_of(factory: Any) -> tuple[str, list[Path]]:
    """Where another process finds an object of this one: by the module that defines it."""
    name, module = getattr(factory, "__qualname__", None), getattr(factory, "__module__", None)
    if not callable(factory) or name is None or module is None:
        raise BadInput(f"{factory!r} is no driver; expected a name, module:factory, or a class or function that a module defines")
    if "<" in name:
        raise BadInput(f"{name} is defined inside of a function, where the processes of ranks do not find it; expected one that a module defines")
    if module == "__main__":
        module = main_module(name)
    loaded = getattr(sys.modules[factory.__module__], "__file__", None)
    if loaded is None:
        raise BadInput(f"{module}, which defines {name}, has no file; expected a driver of a module that other processes can import")
    return f"python:{module}:{name}", folder_of(module, Path(loaded))


def main_module(name: str) -> str:
    """What others import, to have what is defined in the script that runs."""
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:
        return str(main.__spec__.name)  # type: ignore[union-attr]
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).stem.isidentifier():
        raise BadInput(f"{name} is defined in {file or 'an interactive session'}, which the processes of ranks cannot import; expected a driver of a module")
    return Path(file).stem


def folder_of(module: str, file: Path) -> list[Path]:
    """The folder that the module's name counts from. None where the file is called otherwise, or lies where Python finds it by itself."""
    if any(part in ("site-packages", "dist-packages") for part in file.parts):
        return []
    parts = module.split(".")
    found = list(file.resolve().with_suffix("").parts)
    if found[-1] == "__init__" and parts[-1] != "__init__":
        found.pop()
    return [Path(*found[:-len(parts)])] if found[-len(parts):] == parts else []


def folders_of(module: str) -> list[Path]:
    """Of a module that this process would find. Another one is searched for by Python that runs the driver."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return []
    if spec is None or not spec.origin or spec.origin in ("built-in", "frozen"):
        return []
    return folder_of(spec.name, Path(spec.origin))


class Material:
    """Scenarios as files. Dicts are written to a folder of their own, which is gone afterwards."""

    def __init__(self, scenarios: Iterable[Scenario]) -> None:
        self.scenarios = list(scenarios)
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        self.files: list[str] = []

    def __enter__(self) -> Material:
        try:
            self.files = [self.file_of(scenario) for scenario in self.scenarios]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        if self.folder is not None:
            self.folder.cleanup()

    def file_of(self, scenario: Scenario) -> str:
        if not isinstance(scenario, Mapping):
            return str(find(scenario))
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="gradledger-")
        name = re.sub(r"[^\w.-]+", "-", str(scenario.get("name", "scenario")))[:100].lstrip(".-") or "scenario"
        taken = Path(self.folder.name, f"{name}.json")
        file = Path(self.folder.name, f"{len(self.files)}-{name}.json") if taken.exists() else taken
        try:
            file.write_text(json.dumps(dict(scenario), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise BadInput(f"{name}: is no JSON: {error}") from None
        return str(file)

    def without_folder(self, said: Any) -> Any:
        """Nobody can open the files of that folder any more."""
        if self.folder is None:
            return said
        if isinstance(said, str):
            return said.replace(self.folder.name + os.sep, "")
        if isinstance(said, dict):
            return {key: self.without_folder(value) for key, value in said.items()}
        return [self.without_folder(value) for value in said] if isinstance(said, list) else said


def find(scenario: str | os.PathLike[str], folders: Sequence[Path] = ()) -> Path:
    """A file or folder as given, or of the corpus: "deepspeed-7981", "scenarios/deepspeed-7981/offload-loses", "fsdp2/world-3", with or without .json."""
    given = Path(scenario)
    for folder in (*folders, Path()):
        if (folder / given).exists():
            return (folder / given).absolute()
    if given.is_absolute():
        raise BadInput(f"{given}: does not exist; expected a scenario file or a folder of them")
    inside = Path(*given.parts[1:]) if given.parts[:1] == ("scenarios",) else given
    try:
        corpora = command.corpora()
    except command.NoCommand as error:
        raise BadInput(f"{given}: does not exist, and {error}") from None
    for corpus in corpora:
        for place in (corpus / inside, corpus / f"{inside}.json"):
            if place.exists() and place.resolve().is_relative_to(corpus.resolve()):
                return place
    raise BadInput(f"{given}: does not exist; expected a scenario file, a folder of them, or a name of the corpus at {corpora[0]}")



def failure(code: int, text: str, report: Report | None = None, rows: Sequence[Row] = ()) -> Error:
    if code < 0:
        return InternalError(f"the command was ended by signal {-code}: {text}".rstrip(": "), report, rows)
    return ERRORS.get(code, InternalError)(text or f"the command ended with code {code}", report, rows)
