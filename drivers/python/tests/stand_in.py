"""A stand-in for the command: a program that prints what a test wants, and keeps what it was asked."""
from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """#!{python}
import json, os, signal, sys, time
from pathlib import Path
folder = Path({folder!r})
with (folder / "asked").open("a") as asked:
    asked.write(json.dumps({{"words": sys.argv[1:], "environment": dict(os.environ), "process": os.getpid()}}) + "\\n")
answer = json.loads((folder / "answers").read_text())[sys.argv[1]]
files = sys.argv[sys.argv.index("--") + 1:]
broken = False
for file in sorted(files):
    for record in answer["records"].get(Path(file).stem, answer["records"].get("*", [])):
        if record == "broken":
            broken = True
            break
        print(json.dumps(record | {{"file": file}}), flush=True)
    if broken:
        break
if answer.get("waits"):
    time.sleep(60)
sys.stderr.write(answer.get("text", ""))
sys.stderr.flush()
if answer.get("signal"):
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(5 if broken else answer["code"])
"""


@dataclass
class StandIn:
    folder: Path

    @staticmethod
    def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
        place = folder / "stand-in"
        place.mkdir()
        program = place / "gradledger"
        program.write_text(PROGRAM.format(python=sys.executable, folder=str(place)))
        program.chmod(0o755)
        monkeypatch.setenv("GRADLEDGER_COMMAND", str(program))
        monkeypatch.delenv("GRADLEDGER_PYTHON", raising=False)
        monkeypatch.delenv("PYTHONPATH", raising=False)
        (place / "answers").write_text("{}")
        return StandIn(place)

    def says(self, verb: str, records: list[Any] | dict[str, list[Any]] = (), code: int = 0, **more: Any) -> None:
        """`records` by the name of the file, or the same for each."""
        answers = json.loads((self.folder / "answers").read_text())
        answers[verb] = {"records": records if isinstance(records, dict) else {"*": list(records)}, "code": code} | more
        (self.folder / "answers").write_text(json.dumps(answers))

    @property
    def asked(self) -> list[dict[str, Any]]:
        file = self.folder / "asked"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def words(self, number: int = -1) -> list[str]:
        return self.asked[number]["words"]


def row(scenario: str = "a", reported: str = "clean", expected: str = "clean", unmet: list[str] = (), sentences: list[str] = (), **more: Any) -> dict[str, Any]:
    problems = [{"rule": "unmet-expectation", "text": text, "file": "", "pointer": "", "line": None, "column": None} for text in unmet]
    return {"schema_version": 2, "record": "gate", "tool": {}, "scenario": scenario, "passed": not unmet and "not_run" not in more, "expected": expected, "reported": reported,
            "problems": problems, "findings": [finding(sentence=sentence) for sentence in sentences], "not_run": None, "error": None, "replaced": []} | more


def report(verdict: str = "clean", findings: list[dict[str, Any]] = ()) -> dict[str, Any]:
    coverage = {"snapshots": 4, "judged": 4, "not_judged": {"scratch": 0}, "windows_closed": 1, "windows_judged": 1, "missing_facts": [], "applied_gradients_not_shown": [],
                "nothing_judged": None}
    return {"schema_version": 2, "record": "replay", "tool": {}, "command": "gradledger replay", "scenario": "a", "file": "", "engine": "E", "as_of": "head", "world_size": 2, "producer": "host",
            "seed": 0, "verdict": verdict, "coverage": coverage, "findings": list(findings)}


def finding(**more: Any) -> dict[str, Any]:
    return {"class": "lost-micro-batch", "step": 0, "event": 3, "pointer": "/script/1", "rank": 1, "buffer": "b", "role": "applied",
            "elements": [{"parameter": "w", "begin": 0, "end": 4}], "contributions": [{"step": 0, "rank": 1, "micro_batch": 2, "expected": 0.5, "observed": "nan"}],
            "blame": {"whose": "framework", "rule": None, "why": "", "newer": 1}, "known": None, "first_event": 2, "lost_weight": 0.5, "excess_weight": 0.0, "also_in": [],
            "sentence": "lost-micro-batch: micro-batch 2 of rank 1 got lost"} | more
