"""Takes waits away from real code and looks for the races: usage: hunt_waits.py GRADLEDGER PYTHON_OF_DEEPSPEED [NAME...]. Exit code 1 where one is not found, or
the code as it is has one."""
from __future__ import annotations

import sys

from hunt import SCENARIOS, gate
from removed_waits import REMOVED_WAITS

STREAMS = ("--streams", "virtual")


def main() -> int:
    command, python, *names = sys.argv[1:]
    chosen = [mutant for mutant in REMOVED_WAITS if not names or mutant.name in names]
    found = bad = 0
    for driver, scenario in dict.fromkeys((mutant.driver, mutant.scenario) for mutant in chosen):
        code, rows, errors = gate(command, python, driver, "", SCENARIOS / scenario, *STREAMS, deadline=300)
        clean = code == 0 and bool(rows) and rows[0]["reported"] == "clean"
        bad += not clean
        print(f"{'clean' if clean else 'WRONG':10} {scenario} as it is{'' if clean else f': {errors or rows}'}", flush=True)
    for mutant in chosen:
        code, rows, errors = gate(command, python, mutant.driver, mutant.name, SCENARIOS / mutant.scenario, *STREAMS, deadline=300)
        caught = code == 1 and bool(rows) and "stream-race" in rows[0]["reported"]
        found += caught
        print(f"{'found' if caught else 'SURVIVES':10} {mutant.name}: {rows[0]['reported'] if rows else errors.strip()[-300:]}", flush=True)
    print(f"{found} of {len(chosen)} removed waits found")
    return 0 if found == len(chosen) and not bad else 1


if __name__ == "__main__":
    sys.exit(main())
