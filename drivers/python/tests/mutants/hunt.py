"""Runs each mutant of real code before the gate, and the originals: usage: hunt.py GRADLEDGER PYTHON_OF_DEEPSPEED [NAME...]. Exit code 1 where one survives."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCENARIOS = HERE.parents[2] / "scenarios"
sys.path.insert(0, str(HERE))
from catalogue import MUTANTS  # noqa: E402


def gate(command: str, python: str, driver: str, mutant: str, scenario: Path, *more: str, deadline: int = 60) -> tuple[int, list[dict], str]:
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([command, "gate", str(scenario), "--json", "--producer", f"python:gradledger_mutants:{driver}", "--python", python, "--deadline", str(deadline), *more],
                          env=os.environ | {"GRADLEDGER_MUTANT": mutant, "PYTHONPATH": path, "DS_ACCELERATOR": "cpu"}, capture_output=True, text=True)
    return done.returncode, [row for row in map(json.loads, done.stdout.splitlines()) if row["record"] == "gate"], done.stderr


def main() -> int:
    command, python, *names = sys.argv[1:]
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    bad = 0
    for driver in dict.fromkeys(mutant.driver for mutant in chosen):
        code, rows, errors = gate(command, python, driver, "", SCENARIOS / driver)
        clean = code == 0 and rows and all(row["passed"] for row in rows)
        bad += not clean
        print(f"{'ok' if clean else 'WRONG':10} {driver} as it is: {len(rows)} scenarios {'as expected' if clean else errors or [row for row in rows if not row['passed']]}", flush=True)
    found = 0
    for mutant in chosen:
        code, rows, errors = gate(command, python, mutant.driver, mutant.name, SCENARIOS / mutant.scenario)
        caught = code == 1 and bool(rows) and not rows[0]["passed"] and rows[0]["reported"] not in ("", "clean", "nothing judged")
        found += caught
        print(f"{'found' if caught else 'SURVIVES':10} {mutant.name}: {rows[0]['reported'] if rows else errors.strip()[-300:]}", flush=True)
    print(f"{found} of {len(chosen)} mutants found")
    return 0 if found == len(chosen) and not bad else 1


if __name__ == "__main__":
    sys.exit(main())
