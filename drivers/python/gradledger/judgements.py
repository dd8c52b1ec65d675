"""Verdicts of one pytest session: the scenarios that tests have in common options for are run by one command, since it takes seconds to start a framework."""
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

from . import api, command
from .findings import Report, Row


@dataclass
class Wanted:
    """What tests ask of one set of options, and what has come of it."""
    files: dict[Path, None] = field(default_factory=dict)
    with_report: dict[Path, None] = field(default_factory=dict)
    rows: dict[Path, Row] = field(default_factory=dict)
    reports: dict[Path, Report | api.Error] = field(default_factory=dict)
    run: command.Run | None = None
    coming: Iterator[dict] | None = None


class Judgements:
    def __init__(self) -> None:
        self.by_options: dict[api.Options, Wanted] = {}
        self.not_run: list[tuple[Path, str]] = []

    @property
    def wanted(self) -> int:
        return sum(len(wanted.files) for wanted in self.by_options.values())

    def want(self, options: api.Options, file: Path, report: bool) -> None:
        wanted = self.by_options.setdefault(options, Wanted())
        wanted.files[file] = None
        if report:
            wanted.with_report[file] = None

    def row(self, options: api.Options, file: Path) -> Row:
        """Waits for this one alone: those behind it come while its test runs. Raises api.Error where there is none."""
        wanted = self.by_options[options]
        if wanted.coming is None:
            wanted.run = options.run("gate", [str(file) for file in wanted.files])
            wanted.coming = wanted.run.records("gate")
        while file not in wanted.rows and (raw := next(wanted.coming, None)) is not None:
            row = Row.of(raw)
            wanted.rows[Path(row.file)] = row
        if file not in wanted.rows:
            assert wanted.run is not None
            raise api.failure(wanted.run.code, wanted.run.text)
        return wanted.rows[file]

    def report(self, options: api.Options, file: Path) -> Report:
        row, wanted = self.row(options, file), self.by_options[options]
        if row.error:
            raise api.Error("\n".join([row.error, *row.unmet]))
        if not wanted.reports:
            left = [each for each in wanted.with_report if self.was_run(options, each)]
            while left:
                left = replayed(options, left, wanted.reports)
        out = wanted.reports[file]
        if isinstance(out, api.Error):
            raise out
        return out

    def was_run(self, options: api.Options, file: Path) -> bool:
        try:
            row = self.row(options, file)
        except api.Error:
            return False
        return not row.not_run and not row.error

    def close(self) -> None:
        """Ends commands whose rows nobody waits for any more."""
        for wanted in self.by_options.values():
            if wanted.coming is not None:
                wanted.coming.close()  # type: ignore[attr-defined]


def replayed(options: api.Options, files: list[Path], reports: dict[Path, Report | api.Error]) -> list[Path]:
    """What is left to do. One that has no report is run alone, to know why; a run that broke off has kept those behind it from being run."""
    for raw in options.run("replay", [str(file) for file in files]).records("replay"):
        report = Report.of(raw)
        reports[Path(report.file)] = report
    left = [file for file in files if file not in reports]
    if left:
        try:
            asked = {name: getattr(options, name) for name in api.Options.__dataclass_fields__ if name != "against"}
            reports[left[0]] = api.replay(left[0], **asked)
        except api.Error as error:
            reports[left[0]] = error
    return left[1:]
