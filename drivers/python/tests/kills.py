"""Ends a host or a rank of a real framework with SIGKILL at random moments of a gate, and looks at what the command makes of it.

usage: kills.py GRADLEDGER PYTHON [--producer deepspeed] [--kills 200] [--seed 1] [--deadline 60] [--batch 20] SCENARIO...

A campaign gates copies of the scenarios, and has --batch kills: each comes at a drawn moment behind the start of the processes, or behind a verdict after that, and
hits the host or one of the ranks that run by then. Expected of each: one scenario is reported as a broken run, within the deadline and by what ended; the scenarios before and behind it are
as they are without kills; exit code 5; and no process is left behind. Exit code 1 where any of that is not so.
"""
from __future__ import annotations

import argparse
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Iterator

MOMENT_SECONDS = 2.5  # a kill comes at most so long after that: several scenarios
WHILE_STARTING = 0.2  # so many of the kills may come before a first verdict
SCENARIOS_A_KILL = 5
BROKEN_RUN = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command")
    parser.add_argument("python")
    parser.add_argument("--producer", default="deepspeed")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--deadline", type=int, default=60)
    parser.add_argument("scenarios", nargs="+", type=Path)
    options = parser.parse_args()
    draw, tally = random.Random(options.seed), Tally()
    while tally.kills < options.kills and not tally.wrong:
        with tempfile.TemporaryDirectory() as folder:
            Campaign(options, draw, tally, Path(folder)).run(min(options.batch, options.kills - tally.kills))
        print(tally.text(), flush=True)
    return 1 if tally.wrong else 0


class Tally:
    def __init__(self) -> None:
        self.kills = self.of_hosts = self.passed = 0
        self.seconds: list[float] = []  # from a kill to its report
        self.wrong: list[str] = []

    def text(self) -> str:
        latest = f", reported after {sorted(self.seconds)[len(self.seconds) // 2]:.2f} s (median), {max(self.seconds):.2f} s at most" if self.seconds else ""
        said = f"{self.kills} kills, {self.of_hosts} of them of the host{latest}; {self.passed} other scenarios as expected; {len(self.wrong)} faults"
        return "\n".join([said, *self.wrong])


class Campaign:
    def __init__(self, options: argparse.Namespace, draw: random.Random, tally: Tally, folder: Path) -> None:
        self.options, self.draw, self.tally, self.folder = options, draw, tally, folder
        self.seen: set[int] = set()  # processes that this campaign started
        self.ended = False
        self.rows = self.copies = 0

    def run(self, kills: int) -> None:
        errors, before = self.folder / "errors", self.tally.kills
        self.copies = SCENARIOS_A_KILL * kills
        words = [self.options.command, "gate", str(self.corpus(self.copies)), "--json", "--producer", self.options.producer, "--python", self.options.python,
                 "--deadline", str(self.options.deadline)]
        with errors.open("w") as file, subprocess.Popen(words, stdout=subprocess.PIPE, stderr=file, text=True) as process:
            lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
            threading.Thread(target=read, args=(process, lines), daemon=True).start()
            for _ in range(kills):
                if not self.kill_once(process, lines):
                    break
            while not self.ended:
                self.next(lines)
        expected = BROKEN_RUN if self.tally.kills > before else 0
        if process.returncode != expected:
            self.tally.wrong.append(f"exit code {process.returncode}, expected {expected}: {errors.read_text()[-500:]}")
        for process_id in sorted(left(self.seen)):
            self.tally.wrong.append(f"process {process_id} is left")

    def corpus(self, copies: int) -> Path:
        out = self.folder / "corpus"
        out.mkdir()
        for number in range(copies):
            scenario = json.loads(self.options.scenarios[number % len(self.options.scenarios)].read_text())
            (out / f"{number:05}.json").write_text(json.dumps(scenario | {"name": f"{scenario['name']}-{number}"}))
        return out

    def kill_once(self, process: subprocess.Popen, lines: queue.Queue) -> bool:
        """Whether another one can follow."""
        moment, which, while_starting = self.draw.uniform(0, MOMENT_SECONDS), self.draw.random(), self.draw.random() < WHILE_STARTING
        if not while_starting and not self.next(lines):
            return False
        until = time.monotonic() + 10 * self.options.deadline
        while not (running := descendants(process.pid)):
            if process.poll() is not None:
                return False
            if time.monotonic() > until:
                return self.fault("no process of the driver is there")
            time.sleep(0.01)
        time.sleep(moment)
        while not lines.empty():
            if not self.next(lines):
                return False
        running = descendants(process.pid)
        if not running:
            return False  # the gate is about to end
        self.seen |= set(running)
        victim = running[int(which * len(running))]
        os.kill(victim, signal.SIGKILL)
        began = time.monotonic()
        self.tally.kills += 1
        self.tally.of_hosts += victim == running[0]
        return self.reported(lines, began)

    def reported(self, lines: queue.Queue, began: float) -> bool:
        while True:
            try:
                row = lines.get(timeout=self.options.deadline + 30)
            except queue.Empty:
                return self.fault("a kill was not reported within the deadline")
            if row is None:  # before the first scenario there is none to be reported broken
                self.ended = True
                if self.rows == self.copies:
                    self.tally.kills -= 1  # it came behind the last scenario
                    return False
                text = (self.folder / "errors").read_text()
                self.tally.seconds.append(time.monotonic() - began)
                return False if "signal 9" in text else self.fault(f"the gate ended without a report of a kill: {text[-300:]}")
            if row.get("error") == "broken run":
                self.rows += 1
                break
            self.take(row)
        self.tally.seconds.append(time.monotonic() - began)
        text = " ".join(row["unmet"])
        if self.tally.seconds[-1] > self.options.deadline:
            return self.fault(f"a kill was reported after {self.tally.seconds[-1]:.0f} s")
        return "signal 9" in text or self.fault(f"a kill was reported as: {text[:300]}")

    def next(self, lines: queue.Queue) -> bool:
        row = lines.get()
        self.ended = row is None
        return not self.ended and self.take(row)

    def take(self, row: dict[str, Any]) -> bool:
        """A scenario that nobody was killed in."""
        self.rows += 1
        if row["passed"]:
            self.tally.passed += 1
            return True
        return self.fault(f"{row['scenario']} without a kill: {' '.join(map(str, row['unmet']))[:300]}")

    def fault(self, what: str) -> bool:
        self.tally.wrong.append(what)
        return False


def read(process: subprocess.Popen, lines: queue.Queue) -> None:
    for line in process.stdout or ():
        row = json.loads(line)
        if "scenario" in row:
            lines.put(row)
    lines.put(None)


def descendants(of: int) -> list[int]:
    """The host, and then the ranks that it has forked."""
    hosts = [child for child in children(of)]
    return [*hosts, *(rank for host in hosts for rank in children(host))]


def children(of: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == of and fields[0] not in "ZX":
            yield int(stat.parent.name)


def left(processes: set[int]) -> set[int]:
    """Of these, those that run. What was killed needs a moment to be gone."""
    until = time.monotonic() + 5
    while (out := {process for process in processes if runs(process)}) and time.monotonic() < until:
        time.sleep(0.05)
    return out


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
