"""What a scenario costs by the command, against the bare framework doing the same events of the same passes in processes that are as warm.

usage: cost.py GRADLEDGER PYTHON [--producer deepspeed|ddp] [--blocks N] [--copies N] SCENARIO...

Both sides run each scenario several times, one after the other, block by block: first the command, then the bare ranks, and so on. The bare ranks use gloo, and no
driver is there: nothing is shown, asked for or judged. They make as many engines as the driver did, and take them down. A figure is the median of its blocks' medians;
"time of processors" is that of all processes together, for one run of each scenario, and depends less on what else the machine does.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
UNTIMED = 2  # runs of a scenario before those that are timed: they warm its processes
Script = list[dict[str, Any]]  # what a rank is told, in order


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command")
    parser.add_argument("python")
    parser.add_argument("--producer", choices=("deepspeed", "ddp"), default="deepspeed")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--copies", type=int, default=5)
    parser.add_argument("scenarios", nargs="+", type=Path)
    with tempfile.TemporaryDirectory() as folder:
        return Measurement(parser.parse_args(), Path(folder)).run()


class Measurement:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        path = [str(ROOT / "drivers" / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.variables = os.environ | {"GRADLEDGER_DRIVERS": path[0], "DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0", "OMP_NUM_THREADS": "1",
                                       "PYTHONPATH": os.pathsep.join(path)}

    def run(self) -> int:
        scenarios, rounds = self.options.scenarios, self.options.copies + UNTIMED
        scripts = [self.script_of(scenario) for scenario in scenarios]
        worlds = {len(script) for script in scripts}
        if len(worlds) != 1:
            sys.exit(f"scenarios of {sorted(worlds)} ranks; expected one size of world, in which processes stay warm")
        (self.folder / "scripts.json").write_text(json.dumps(scripts))
        copies = [self.copy(scenario, round_) for scenario in scenarios for round_ in range(rounds)]
        driven, bare = Side(len(scenarios), rounds), Side(len(scenarios), rounds)
        for _ in range(self.options.blocks):
            driven.take(*self.driven(copies))
            bare.take(*self.bare(len(scripts[0]), rounds))
        self.report(scripts, driven, bare)
        return 0

    def report(self, scripts: list[dict[str, Script]], driven: Side, bare: Side) -> None:
        print("scenario | set-ups | events | bare, ms | by the command, ms | ratio | of the blocks")
        for scenario, script, with_us, without in zip(self.options.scenarios, scripts, driven.seconds, bare.seconds):
            setups = sum(message["type"] == "configure" for message in script["0"])
            print(row(scenario.stem, str(setups), str(len(script["0"]) - setups), with_us, without))
        print(row("all", "", "", *([sum(block) for block in zip(*side.seconds)] for side in (driven, bare))))
        print(row("all, time of processors", "", "", driven.processor, bare.processor))

    def gate(self, files: list[Path], *more: str) -> subprocess.Popen[str]:
        words = [self.options.command, "gate", *map(str, files), "--json", "--producer", self.options.producer, "--python", self.options.python, *more]
        return subprocess.Popen(words, env=self.variables, stdout=subprocess.PIPE, text=True)

    def script_of(self, scenario: Path) -> dict[str, Script]:
        """By rank."""
        log = self.folder / "log"
        self.gate([scenario], "--driver-log", str(log)).communicate()
        out: dict[str, Script] = {}
        for line in log.read_text().splitlines():
            frame = json.loads(line)
            if frame["from"] == "command" and frame["message"].get("type") in ("configure", "event"):
                out.setdefault(frame["to"].split()[1], []).append(frame["message"])
        if not out:
            sys.exit(f"{scenario} was not run")
        return out

    def copy(self, scenario: Path, number: int) -> Path:
        """Under a name of its own: the command refuses two scenarios of one name."""
        out = self.folder / f"{number}-{scenario.name}"
        content = json.loads(scenario.read_text())
        out.write_text(json.dumps(content | {"name": f"{content['name']}-{number}"}))
        return out

    def driven(self, copies: list[Path]) -> tuple[list[float], float]:
        """Seconds from one verdict to the next; the first, which has the start of everything in it, is of a round that is not timed."""
        at, processor = [time.perf_counter()], [0.0]
        with self.gate(copies) as process:
            for line in process.stdout or ():
                verdict = json.loads(line)
                if verdict.get("not_run"):
                    sys.exit(f"{verdict['scenario']} was not run: {verdict['not_run']}")
                if "scenario" in verdict:
                    at.append(time.perf_counter())
                    processor.append(processor_seconds(process.pid))
        if len(at) != len(copies) + 1:
            sys.exit(f"{len(at) - 1} verdicts on {len(copies)} scenarios")
        return [after - before for before, after in zip(at, at[1:])], processor[-1] - processor[UNTIMED]

    def bare(self, world_size: int, rounds: int) -> tuple[list[float], float]:
        words = [self.options.python, str(Path(__file__).with_name("bare_ranks.py")), self.options.producer, str(self.folder), str(rounds), str(world_size)]
        ranks = [subprocess.Popen([*words, str(rank)], env=self.variables, text=True, stdout=subprocess.PIPE, stderr=(self.folder / f"{rank}.txt").open("w"))
                 for rank in range(world_size)]
        said = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            sys.exit((self.folder / "0.txt").read_text()[-2000:])
        told = [json.loads(text.splitlines()[-1]) for text in said]
        return told[0]["seconds"], sum(rank["processor"] for rank in told)


class Side:
    """Of the command, or of the bare ranks."""

    def __init__(self, scenarios: int, rounds: int) -> None:
        self.rounds = rounds
        self.seconds: list[list[float]] = [[] for _ in range(scenarios)]  # by scenario and block
        self.processor: list[float] = []  # seconds by block, of all processes together

    def take(self, seconds: list[float], processor: float) -> None:
        for i, of_scenario in enumerate(self.seconds):
            of_scenario.append(statistics.median(seconds[i * self.rounds + UNTIMED:(i + 1) * self.rounds]))
        self.processor.append(processor / (len(seconds) - UNTIMED) * len(self.seconds))


def row(name: str, setups: str, events: str, driven: list[float], bare: list[float]) -> str:
    ratios = [a / b for a, b in zip(driven, bare)]
    return (f"{name} | {setups} | {events} | {statistics.median(bare) * 1e3:.0f} | {statistics.median(driven) * 1e3:.0f} | {statistics.median(ratios):.2f} | "
            f"{min(ratios):.2f} to {max(ratios):.2f}")


def processor_seconds(process: int) -> float:
    """Of a process and of those that it started and that run."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(processor_seconds(int(child)) for child in children)


if __name__ == "__main__":
    sys.exit(main())
