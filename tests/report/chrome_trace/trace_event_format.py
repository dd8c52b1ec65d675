#!/usr/bin/env python3
"""Files of --chrome-trace, field by field against the Trace Event Format as Perfetto documents that it reads it. Perfetto itself is not run.

usage: trace_event_format.py GRADLEDGER SOURCE_FOLDER"""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

gradledger, source = sys.argv[1:3] if len(sys.argv) > 2 else (None, None)

SCENARIOS = [
    "deepspeed-7985/boundary-leak-0.18.6.json",
    "deepspeed-7981/offload-keeps-only-the-last-0.18.9.json",
    "streams/ping-pong-7371.json",
    "ddp/synchronised-before-the-last.json",
    "fsdp2/unreduced-tail-then-zero-grad.json",
    "megatron/longer-window-than-the-first.json",
    "deepspeed-7981/ga-8-offload-first-and-last-only-0.18.9.json",
]

text = str
whole = int
number = (int, float)

# By "ph": the fields that an event must have, and those that it may. The document "Trace Event Format", sections Metadata, Complete, Flow and Instant Events.
COMMON = {"name": text, "ph": text, "pid": whole, "tid": whole}
TIMED = {**COMMON, "cat": text, "ts": number}
FIELDS = {
    "M": ({**COMMON, "args": dict}, {}),
    "X": ({**TIMED, "dur": number}, {"args": dict}),
    "s": ({**TIMED, "id": (int, str)}, {"args": dict}),
    "t": ({**TIMED, "id": (int, str)}, {"args": dict}),
    "f": ({**TIMED, "id": (int, str)}, {"args": dict, "bp": text}),
    "i": ({**TIMED, "s": text}, {"args": dict}),
}


def wrong_fields(event):
    """Of one event: sentences."""
    must, may = FIELDS.get(event.get("ph"), (None, None))
    if must is None:
        return [f"ph is {event.get('ph')!r}"]
    known = {**must, **may}
    out = [f"{event['ph']} has no {field}" for field in must if field not in event]
    out += [f"{event['ph']} has {field}, which is not of its kind" for field in event if field not in known]
    out += [f"{field} is {event[field]!r}" for field in event if field in known and (not isinstance(event[field], known[field]) or isinstance(event[field], bool))]
    if not out:
        if min(event.get("ts", 0), event.get("dur", 0), event["pid"], event["tid"]) < 0:
            out.append(f"a number below 0 in {event}")
        if event["ph"] == "M" and (event["name"] not in ("process_name", "thread_name") or not isinstance(event["args"].get("name"), str)):
            out.append(f"metadata {event['name']} without args.name")
        if event.get("bp", "e") != "e":
            out.append(f"bp is {event['bp']!r}")
        if event["ph"] == "i" and event["s"] not in ("g", "p", "t"):
            out.append(f"the scope is {event['s']!r}")
    return out


def wrong_slices(events):
    """Slices of a thread lie one inside or behind another: Perfetto drops those that overlap."""
    out, open_ends = [], {}
    for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"])):
        stack = open_ends.setdefault((e["pid"], e["tid"]), [])
        while stack and stack[-1] <= e["ts"]:
            stack.pop()
        if stack and e["ts"] + e["dur"] > stack[-1]:
            out.append(f"{e['name']} overlaps a slice of its thread")
        stack.append(e["ts"] + e["dur"])
    return out


def wrong_flows(events):
    """A flow has one name and category, begins once, ends once, goes forward, and each of its events lies in a slice."""
    out, flows = [], {}
    slices = [e for e in events if e["ph"] == "X"]
    for e in events:
        if e["ph"] in "stf":
            flows.setdefault(e["id"], []).append(e)
            if not any((s["pid"], s["tid"]) == (e["pid"], e["tid"]) and s["ts"] <= e["ts"] <= s["ts"] + s["dur"] for s in slices):
                out.append(f"flow {e['id']} lies in no slice")
    for number_of_flow, parts in flows.items():
        phases = [e["ph"] for e in parts]
        if len({(e["name"], e["cat"]) for e in parts}) != 1:
            out.append(f"flow {number_of_flow} changes its name")
        if phases.count("s") != 1 or phases.count("f") != 1 or phases[0] != "s" or phases[-1] != "f":
            out.append(f"flow {number_of_flow} is {''.join(phases)}")
        if [e["ts"] for e in parts] != sorted(e["ts"] for e in parts):
            out.append(f"flow {number_of_flow} goes back in time")
    return out


def problems(trace):
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list) or not trace["traceEvents"]:
        return ["no traceEvents"]
    events = trace["traceEvents"]
    out = [] if trace.get("displayTimeUnit") in ("ms", "ns") else [f"displayTimeUnit is {trace.get('displayTimeUnit')!r}"]
    for event in events:
        out += wrong_fields(event)
    if out:
        return out
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["ph"] == "M"}
    out += [f"thread {e['pid']}, {e['tid']} has no name" for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) not in named]
    return out + wrong_slices(events) + wrong_flows(events)


class Traces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.files = {}
        for scenario in SCENARIOS:
            file = pathlib.Path(cls.folder.name) / (pathlib.Path(scenario).stem + ".json")
            ran = subprocess.run([gradledger, "replay", f"{source}/scenarios/{scenario}", "--chrome-trace", file], capture_output=True, text=True, timeout=60)
            assert ran.returncode in (0, 1), ran.stderr
            cls.files[scenario] = file

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_event_has_the_fields_of_its_kind(self):
        phases = set()
        for scenario, file in self.files.items():
            with self.subTest(scenario):
                trace = json.loads(file.read_text())
                self.assertEqual(problems(trace), [])
                phases |= {event["ph"] for event in trace["traceEvents"]}
        self.assertGreaterEqual(phases, set("MXstfi"), "these traces should have an event of each kind")

    def test_what_breaks_a_rule_is_told(self):
        trace = json.loads(self.files[SCENARIOS[0]].read_text())
        first = {phase: next(i for i, e in enumerate(trace["traceEvents"]) if e["ph"] == phase) for phase in "MXsf"}
        mutations = {
            "no thread": ("X", lambda e: e.pop("tid")),
            "a time as text": ("X", lambda e: e.update(ts="1")),
            "a length below 0": ("X", lambda e: e.update(dur=-1)),
            "a kind that there is not": ("X", lambda e: e.update(ph="x")),
            "a slice that overlaps": ("X", lambda e: e.update(ts=e["ts"] + 0.5)),
            "a field of another kind": ("X", lambda e: e.update(id=1)),
            "a flow without an end": ("f", lambda e: e.update(ph="t")),
            "a flow of another name": ("f", lambda e: e.update(name="other")),
            "a flow outside of slices": ("s", lambda e: e.update(tid=99)),
            "a binding that there is not": ("f", lambda e: e.update(bp="x")),
            "a name that is none": ("M", lambda e: e.update(args={})),
        }
        for what, (phase, change) in mutations.items():
            with self.subTest(what):
                other = copy.deepcopy(trace)
                change(other["traceEvents"][first[phase]])
                self.assertNotEqual(problems(other), [])
        self.assertNotEqual(problems({**trace, "displayTimeUnit": "us"}), [])
        self.assertNotEqual(problems({"traceEvents": []}), [])


if __name__ == "__main__":
    if gradledger is None:
        sys.exit(__doc__)
    unittest.main(argv=sys.argv[:1], verbosity=1)
