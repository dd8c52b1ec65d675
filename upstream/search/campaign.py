"""Runs drawn loops on a real framework, judges them with gradledger, and counts which entries of upstream/ they find.

usage: campaign.py --gradledger COMMAND --producer deepspeed --python PYTHON [--cases 500] [--seed 0] [--write FILE --release 0.19.8]

A finding is of an entry where its class and what the drawn loop holds are those that the entry's `search` names, and those of no other
entry: where several fit it is counted as ambiguous. The entries' own loops are not drawn from; the drawing knows nothing of them.
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Iterable, Iterator

from draw import PRODUCERS, draw

UPSTREAM = Path(__file__).resolve().parent.parent
CHUNK = 100  # cases that one command judges: what ends a command loses no more
SAID_ALOUD = {"engine-error", "deadlock", "collective-mismatch"}


def facts(scenario: dict[str, Any]) -> set[str]:
    """What a loop holds, in the words of an entry's `search`."""
    engine, script = scenario["engine"], json.dumps(scenario["script"])
    config, zero, out = engine["config"], engine["config"].get("zero_optimization", {}), set()
    out |= {word for word, text in (("unused", '"uses"'), ("direct", '"direct"'), ("forwards first", '"of": 1'), ("zero_grad in a window", '"zero_grad": "engine"'),
                                    ("set_gradient", "set_gradient"), ("coalesce", "coalesce"), ("overflow", "overflow"), ("unscaled", "scale_wrt_gas"),
                                    ("no_sync", "no_sync"), ("raise", '"raise"')) if text in script}
    out |= {key for key, value in config.items() if value is True or isinstance(value, (str, float)) and value} | {key for key, value in zero.items() if value is True}
    out |= {scenario["model_dtype"], engine["optimizer"]["type"], *(["stage " + str(zero["stage"])] if zero else [])}
    out |= {word for word, holds in (("offload", "offload_optimizer" in zero), ("fp32 accumulation", "data_types" in config), ("static scale", config.get("fp16", {}).get("loss_scale")),
                                     ("dynamic scale", "loss_scale_window" in config.get("fp16", {})), ("unmanaged", config.get("managed_gradient_accumulation") is False),
                                     ("sum", config.get("gradient_allreduce_op") == "sum"), ("predivide 2", config.get("gradient_predivide_factor") == 2.0),
                                     ("accumulates", config.get("gradient_accumulation_steps", 1) > 1)) if holds}
    return out | orders(scenario["script"])


def orders(script: list[dict[str, Any]]) -> set[str]:
    """Orders of events: of one graph's backwards, of backwards without a step between them, of a window's last event before its step."""
    out, ran, since_step, last = set(), Counter(), 0, ""
    for event in script:
        kind = next(iter(event))
        if kind == "forward":
            ran.clear()
        elif kind == "backward":
            of = event["backward"].get("of")
            ran[of] += of is not None
            since_step += 1
            out |= {"graph twice"} if ran[of] > 1 else set()
            out |= {"extra backward"} if since_step > 1 else set()
        elif kind == "step":
            out |= {"step behind no_sync"} if last == "no_sync" else set()
            since_step = 0
        elif kind == "zero_grad" and last == "no_sync":
            out.add("window dropped")
        last = kind
    return out


def entries(producer: str) -> dict[str, dict[str, Any]]:
    found = {path.parent.name: json.loads(path.read_text()) for path in sorted(UPSTREAM.glob("*/item.json"))}
    return {name: item["search"] for name, item in found.items() if item.get("search", {}).get("producer") == producer}


def explains(search: dict[str, Any], finding: str, held: set[str]) -> bool:
    return finding in search["classes"] and set(search["with"]) <= held and not set(search.get("without", ())) & held


def judged(arguments: argparse.Namespace, numbers: range, scenarios: dict[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            Path(folder, f"{number:06}.json").write_text(json.dumps(scenarios[number]))
        command = [arguments.gradledger, "gate", folder, "--producer", arguments.producer, "--python", arguments.python, "--deadline", "300", "--json"]
        run = subprocess.run(command, capture_output=True, text=True)
        yield from (record for record in map(json.loads, run.stdout.splitlines()) if record["record"] == "gate")


def raw(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What was judged: numbers of cases, and the classes of those with findings."""
    out: dict[str, Any] = {"judged": 0, "not_judged": 0, "classes": {}}
    for record in records:
        classes = sorted({finding["class"] for finding in record["findings"]})
        out["judged" if classes or record["passed"] else "not_judged"] += 1
        if classes:
            out["classes"][str(int(Path(record["file"]).stem))] = classes
    return out


def tally(searched: dict[str, Any], known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Which entries the cases with findings are of. Counts what no entry explains, and what several do."""
    out: dict[str, Any] = {"found": {}, "ambiguous": Counter(), "unexplained": Counter(), "examples": {}}
    for number, classes in searched["classes"].items():
        held = facts(draw(searched["producer"], searched["seed"], int(number)))
        for finding in sorted(set(classes) - SAID_ALOUD):
            names = [name for name, search in known.items() if explains(search, finding, held)]
            if len(names) == 1:
                found = out["found"].setdefault(names[0], {"first_case": int(number), "cases": 0})
                found["cases"] += 1
            elif names:
                out["ambiguous"][" or ".join(names)] += 1
            else:
                out["unexplained"][finding] += 1
                out["examples"].setdefault(finding, []).append(int(number))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gradledger", default="gradledger")
    parser.add_argument("--producer", choices=PRODUCERS, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="file that the judged cases are written to, as JSON")
    parser.add_argument("--release", default="", help="of the framework, for the file")
    arguments = parser.parse_args()
    scenarios = {number: draw(arguments.producer, arguments.seed, number) for number in range(arguments.cases)}
    records = (record for begin in range(0, arguments.cases, CHUNK) for record in judged(arguments, range(begin, min(begin + CHUNK, arguments.cases)), scenarios))
    out = {"producer": arguments.producer, "release": arguments.release, "seed": arguments.seed, "cases": arguments.cases} | raw(records)
    if arguments.write:
        arguments.write.write_text(json.dumps(out) + "\n")
    found = tally(out, entries(arguments.producer))
    found["examples"] = {finding: numbers[:5] for finding, numbers in found["examples"].items()}
    print(json.dumps({key: out[key] for key in ("producer", "seed", "cases", "judged", "not_judged")} | {"with_findings": len(out["classes"])} | found, indent=2))
    return 0 if out["judged"] else 1


if __name__ == "__main__":
    sys.exit(main())
