"""What the command reports, as objects. The fields are those of its JSON, which docs/schemas explains; `raw` has all of them."""
from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Mapping, TypeVar

Part = TypeVar("Part")


@dataclass(frozen=True)
class Contribution:
    """The gradient of one micro-batch of one rank, and the weight with which it was counted."""
    step: int
    rank: int
    micro_batch: int
    expected: float
    observed: float


@dataclass(frozen=True)
class Elements:
    """Elements `begin` to `end`, without `end`, of a parameter."""
    parameter: str
    begin: int
    end: int


@dataclass(frozen=True)
class Blame:
    """Whose a finding is: the script's use of the framework (`usage`), or the `framework`."""
    whose: str
    rule: str | None
    why: str


@dataclass(frozen=True)
class KnownDefect:
    """A defect of the framework that gradledger knows, with the release that repaired it and how to avoid it until then."""
    entry: str
    name: str
    title: str
    origin: str | None
    since: str | None
    fixed: str | None
    avoid: str | None
    ranks: int  # of the runs that showed it: the first so many, where runs of all would have been too large


@dataclass(frozen=True)
class Finding:
    """Something that is not as it is due. `sentence` says it for people."""
    finding_class: str
    step: int
    event: int
    pointer: str  # JSON pointer of the entry of the script
    line: int | None = field(compare=False)  # of it, in the file; from 1
    rank: int
    buffer: str
    role: str
    elements: tuple[Elements, ...]
    contributions: tuple[Contribution, ...]
    first_event: int | None
    lost_weight: float
    excess_weight: float
    as_if: str | None
    blame: Blame | None
    known: KnownDefect | None
    sentence: str
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.sentence

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Finding:
        return Finding(
            finding_class=raw["class"],
            step=raw["step"],
            event=raw["event"],
            pointer=raw["pointer"],
            line=raw.get("line"),
            rank=raw["rank"],
            buffer=raw["buffer"],
            role=raw["role"],
            elements=tuple(Elements(e["parameter"], e["begin"], e["end"]) for e in raw["elements"]),
            contributions=contributions_of(raw),
            first_event=raw.get("first_event"),
            lost_weight=float(raw["lost_weight"]),
            excess_weight=float(raw["excess_weight"]),
            as_if=raw.get("as_if"),
            blame=picked(Blame, raw.get("blame")),
            known=picked(KnownDefect, raw.get("known")),
            sentence=raw["sentence"],
            raw=raw,
        )


def contributions_of(raw: Mapping[str, Any]) -> tuple[Contribution, ...]:
    """All of a finding: those of a large run are in blocks alone."""
    if not raw.get("contributions_not_listed"):
        return tuple(Contribution(c["step"], c["rank"], c["micro_batch"], float(c["expected"]), float(c["observed"])) for c in raw["contributions"])
    return tuple(Contribution(block["step"], rank, micro_batch, float(block["expected"]), float(block["observed"])) for block in raw["contribution_blocks"]
                 for micro_batch in span(block["micro_batches"]) for rank in span(block["ranks"]))


def span(first_and_last: list[int]) -> range:
    return range(first_and_last[0], first_and_last[1] + 1)


@dataclass(frozen=True)
class Coverage:
    """What a verdict rests on."""
    snapshots: int
    judged: int
    not_judged: Mapping[str, int]  # by reason
    windows_closed: int
    windows_judged: int
    applied_gradients_not_shown: tuple[int, ...]  # events of steps
    nothing_judged: str | None  # why

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Coverage:
        return Coverage(raw["snapshots"], raw["judged"], raw["not_judged"], raw["windows_closed"], raw["windows_judged"], tuple(raw["applied_gradients_not_shown"]),
                        raw["nothing_judged"])


@dataclass(frozen=True)
class Report:
    """The verdict on one scenario."""
    scenario: str
    file: str
    engine: str
    as_of: str  # the release that ran
    world_size: int
    producer: str
    seed: int
    verdict: str  # "clean", "findings" or "nothing judged"
    findings: tuple[Finding, ...]
    coverage: Coverage
    replaced: tuple[str, ...]  # what of the scenario a driver replaced by something like it
    notes: str  # what the command said beside the report
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def clean(self) -> bool:
        """Something was judged, and nothing found. A run in which nothing was judged is not clean."""
        return self.verdict == "clean"

    @property
    def judged(self) -> bool:
        return self.verdict != "nothing judged"

    @property
    def classes(self) -> tuple[str, ...]:
        """Of the findings, each once, sorted."""
        return tuple(sorted({finding.finding_class for finding in self.findings}))

    def __str__(self) -> str:
        return "\n".join([f"{self.scenario} ({self.engine}, {self.producer}): {self.verdict}", *(f"  {finding}" for finding in self.findings)])

    @staticmethod
    def of(raw: Mapping[str, Any], notes: str = "") -> Report:
        return Report(raw["scenario"], raw["file"], raw["engine"], raw["as_of"], raw["world_size"], raw["producer"], raw["seed"], raw["verdict"],
                      tuple(map(Finding.of, raw["findings"])), Coverage.of(raw["coverage"]), tuple(raw.get("replaced", ())), notes, raw)


@dataclass(frozen=True)
class Row:
    """One scenario of a gate: what it reported, held against what was expected."""
    scenario: str
    file: str
    passed: bool
    expected: str  # classes, or "clean"
    reported: str
    unmet: tuple[str, ...]  # a line for each expectation
    findings: tuple[Finding, ...]  # expected or not
    not_run: str | None  # why the framework or the driver does not take it; it neither passed nor failed
    error: str | None  # "bad input", "not available" or "broken run"
    replaced: tuple[str, ...]
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def failed(self) -> bool:
        return bool(self.unmet)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Of all findings, expected or not."""
        return tuple(finding.sentence for finding in self.findings)

    @property
    def classes(self) -> tuple[str, ...]:
        """Of what was reported."""
        return () if self.reported in ("", "clean", "nothing judged") else tuple(self.reported.split(", "))

    def __str__(self) -> str:
        if self.not_run:
            return f"{self.scenario}: not run: {self.not_run}"
        lines = [f"{self.scenario}: {'passed' if self.passed else 'failed'}: reported {self.reported or 'nothing'}, expected {self.expected or 'nothing'}"]
        return "\n".join([*lines, *(f"  {line}" for line in self.unmet)])

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Row:
        return Row(raw["scenario"], raw.get("file", ""), raw["passed"], raw["expected"], raw["reported"], tuple(problem["text"] for problem in raw["problems"]),
                   tuple(map(Finding.of, raw["findings"])), raw["not_run"], raw["error"], tuple(raw["replaced"]), raw)


@dataclass(frozen=True)
class Gate:
    """Scenarios held against what is expected of them."""
    rows: tuple[Row, ...]
    notes: str = ""

    @property
    def ok(self) -> bool:
        """Every scenario that was run is as expected, and one was run."""
        return any(row.passed for row in self.rows) and not self.failed

    @property
    def passed(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.passed)

    @property
    def failed(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.failed)

    @property
    def not_run(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.passed and not row.failed)

    def __str__(self) -> str:
        counts = f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.not_run)} not run"
        return "\n".join([*map(str, self.failed), *map(str, self.not_run), counts])


def picked(part: type[Part], raw: Mapping[str, Any] | None) -> Part | None:
    """The fields that the class has: a command that is newer may print more."""
    return None if raw is None else part(**{one.name: raw[one.name] for one in fields(part)})  # type: ignore[arg-type]
