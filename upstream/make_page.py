"""Makes docs/upstream.md, and each entry's draft of a report, from the entries and from what was observed.

usage: make_page.py [--check]
--check: writes nothing, and ends with 1 where a file is not what would be written.
"""
from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "search"))
import campaign  # noqa: E402

NAMES = {"deepspeed": "DeepSpeed", "torch": "PyTorch", "accelerate": "accelerate", "transformers": "transformers", "megatron-core": "Megatron-Core", "megatron-fsdp": "Megatron-FSDP"}
GRADES = {"documented": "documented", "allowed": "not spoken of", "excluded": "against the documentation"}
INTRO = """\
# Wrong upstream

What DeepSpeed, PyTorch, accelerate, transformers, Megatron-Core and Megatron-FSDP do to gradients, most of it without a word, shown by runs of the newest releases of the package index. Each entry has a reproduction
of at most 40 lines that needs no gradledger, and a draft of a report. Made by `python3 upstream/make_page.py` from the files of [upstream](../upstream); with `--check`
the command fails where this page is out of date.

Whether a use is documented is said in three words:

* **documented**: the documentation describes this very use.
* **not spoken of**: documented calls, in an order or a configuration of which the documentation says nothing.
* **against the documentation**: it says not to do this. What is wrong is that nothing tells the user who does.

*Reported: not found* is written only where public threads were searched, and with the words that were searched; *not searched* where nobody looked. The searches of
November 2026 went through stored copies of threads; the newest that was met is of September 2026. The copies are not complete, so *not found* does not say that there is no report. A thread that is
named behind *not found* is of something near it: another case of it, a change that repaired another case, or the change that brought it.

Run them on an environment of yours; an entry that no longer shows fails the run, and so does one that is broken there:

```sh
python3 upstream/run.py --python .venv/bin/python                    # all whose package is there
python3 upstream/run.py --python .venv/bin/python --package deepspeed
```

The runs are on a CPU, with gloo or one process. Where a framework refuses something on a CPU alone, the reproduction says so in a comment and takes the refusal away.
"""


def version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdigit())


def load() -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    """Entries by name; observed results of each package, the newest release last; searches."""
    items = {path.parent.name: json.loads(path.read_text()) for path in sorted(HERE.glob("*/item.json"))}
    observed: dict[str, list[dict[str, Any]]] = {package: [] for package in NAMES}
    searches = []
    for file in sorted((HERE / "observed").glob("*.json")):
        data = json.loads(file.read_text())
        if "producer" in data:
            searches.append(data)
        else:
            observed[data["package"]].append(data)
    for runs in observed.values():
        runs.sort(key=lambda run: version(run["release"]))
    return items, observed, searches


def newest(item: dict[str, Any], name: str, observed: dict[str, list[dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the releases that it was run with."""
    run = next(run for run in reversed(observed[item["package"]]) if name in run["items"])
    return run, run["items"][name]


def spoken(releases: list[str]) -> str:
    return releases[0] if len(releases) == 1 else ", ".join(releases[:-1]) + " and " + releases[-1]


def since(item: dict[str, Any], name: str, observed: dict[str, list[dict[str, Any]]]) -> str:
    """From the runs alone: in which releases it shows as in the newest, with other figures, or not at all."""
    runs = [run for run in observed[item["package"]] if name in run["items"]]
    last = runs[-1]["items"][name]["printed"]
    kinds: dict[str, list[str]] = {"alike": [], "otherwise": [], "not": [], "not run": []}
    for run in runs:
        result = run["items"][name]
        kind = "not run" if result["shows"] is None else "not" if not result["shows"] else "alike" if result["printed"] == last else "otherwise"
        kinds[kind].append(run["release"])
    text = f"shows at {spoken(kinds['alike'])}" if kinds["alike"] else "does not show"
    text += f"; at {spoken(kinds['otherwise'])} it is wrong in another way" if kinds["otherwise"] else ""
    text += f"; not at {spoken(kinds['not'])}" if kinds["not"] else ""
    return text + (f"; at {spoken(kinds['not run'])} the reproduction ends with an error" if kinds["not run"] else "")


def table(items: dict[str, Any], observed: dict[str, list[dict[str, Any]]]) -> list[str]:
    out = ["| entry | what | use | shown by |", "|---|---|---|---|"]
    for name, item in ordered(items):
        run, _ = newest(item, name, observed)
        out.append(f"| [{name}](#{name}) | {item['title']} | {GRADES[item['use']['grade']]} | {NAMES[item['package']]} {run['release']} |")
    return out


def ordered(items: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    grades = list(GRADES)
    return sorted(items.items(), key=lambda entry: (grades.index(entry[1]["use"]["grade"]), list(NAMES).index(entry[1]["package"]), entry[0]))


def section(name: str, item: dict[str, Any], observed: dict[str, list[dict[str, Any]]]) -> list[str]:
    run, result = newest(item, name, observed)
    scenario = item.get("scenario")
    replayed = f"[{scenario['file']}](../{scenario['file']}), {'by the model of the release' if scenario['producer'] == 'sim' else 'by the producer `' + scenario['producer'] + '`'}" \
        if scenario else "the reproduction itself; no model and no driver has this"
    return [f"### {name}", "", item["title"] + ".", "",
            f"* **Observed**, {NAMES[run['package']]} {run['release']}: `{result['printed']}`",
            *([f"* **Message**: {messages(item)}"] if "message" in item else []),
            f"* **Due**: {item['due']}",
            f"* **Use**: {GRADES[item['use']['grade']]}. {item['use']['says']} ({item['use']['where']})",
            f"* **Likely cause**: {item['cause']['why']} ({item['cause']['where']})",
            f"* **Releases** that were run: {since(item, name, observed)}.",
            f"* **Reported**: {item['reported']}" + (f" (searched: {item['searched']})." if "searched" in item else "."),
            f"* **Meanwhile**: {item['avoid']}",
            f"* **Replayed** in CI: {replayed}.",
            f"* **Files**: [reproduction](../upstream/{name}/reproduce.py), [draft of a report](../upstream/{name}/report.md).", ""]


def searched(items: dict[str, Any], searches: list[dict[str, Any]]) -> list[str]:
    out = ["## Found from nothing", "",
           "`upstream/search/campaign.py` draws loops without knowing the entries, runs them on the framework and has gradledger judge them. A finding is counted for an entry where its class and what",
           "the loop holds are those that the entry names, and those of no other: by resemblance, not by an experiment. A loop that holds two triggers counts for none. Three entries were first",
           "met by this search, and named behind it: `ddp-static-graph-set-changes`, `fsdp1-two-forwards-two-backwards`, `fsdp1-graph-run-twice`. Findings of no entry were not all looked into.", "",
           "| producer | release | cases | judged | with findings | entries that could be found | found | first at case | findings of several entries | of none |", "|---|---|---|---|---|---|---|---|---|---|"]
    for data in sorted(searches, key=lambda data: campaign.PRODUCERS.index(data["producer"])):
        known = campaign.entries(data["producer"])
        tally = campaign.tally(data, known)
        first = sorted((found["first_case"], name) for name, found in tally["found"].items())
        out.append(f"| {data['producer']} | {data['release']} | {data['cases']} | {data['judged']} | {len(data['classes'])} | {len(known)} | {len(first)} | "
                   f"{', '.join(f'{name.split(chr(45), 1)[1]} {case}' for case, name in first)} | {sum(tally['ambiguous'].values())} | {sum(tally['unexplained'].values())} |")
    findable = sum(1 for item in items.values() if "search" in item)
    return out + ["", f"{len(items) - findable} of the {len(items)} entries are outside of what is drawn: trainers, `join()`, hooks, pipelines, objects as outputs, outputs that are made of each other, "
                  "exceptions of PyTorch, modules of one element, norms of fp16, modules that are called and not used."]


def counted(items: dict[str, Any]) -> str:
    grades = Counter(item["use"]["grade"] for item in items.values())
    silent = sum(item["silent"] for item in items.values())
    not_searched = sum(item["reported"].startswith("not searched") for item in items.values())
    not_found = sum(item["reported"].startswith("not found") for item in items.values())
    unsearched = f", of {not_searched} none was searched for" if not_searched else ""
    return (f"{len(items)} entries: {grades['documented']} documented uses, {grades['allowed']} that the documentation does not speak of, {grades['excluded']} against it. "
            f"{silent} of them are silent. Of {len(items) - not_searched - not_found} a public thread is named, of {not_found} none was found{unsearched}.")


def page(items: dict[str, Any], observed: dict[str, list[dict[str, Any]]], searches: list[dict[str, Any]]) -> str:
    lines = [INTRO, counted(items), ""]
    lines += table(items, observed) + ["", "## Entries", ""]
    for name, item in ordered(items):
        lines += section(name, item, observed)
    return "\n".join(lines + searched(items, searches)) + "\n"


def messages(item: dict[str, Any]) -> str:
    """What the user is told beside the figures: a message that is quoted may be printed and yet not name what is wrong."""
    if "message" in item:
        return f"This is printed, {'and does not name what is wrong' if item['silent'] else 'and names it'}: `` {item['message']} ``"
    return "Nothing is raised, and no message names it."


def report(name: str, item: dict[str, Any], observed: dict[str, list[dict[str, Any]]]) -> str:
    """A draft: what one would write into the framework's own tracker."""
    run, result = newest(item, name, observed)
    beside = "".join(f", {package} {release}" for package, release in sorted(run["beside"].items()))
    asked = {"documented": "The documentation describes this use", "allowed": "The documentation has these calls and says nothing against this use",
             "excluded": "The documentation says not to do this. An error would help those who do"}[item["use"]["grade"]]
    return "\n".join([f"# {item['title']}", "", f"{NAMES[run['package']]} {run['release']}{beside}, CPU.", "", "## What I run", "",
                      "```python", (HERE / name / "reproduce.py").read_text().rstrip(), "```", "", "## What it prints", "", "```", result["printed"], "```", "",
                      messages(item), "", "## What I expected", "", f"{item['due']} {asked}: {item['use']['says']} ({item['use']['where']})", "",
                      "## Where it seems to come from", "", f"{item['cause']['where']}. {item['cause']['why']}", "", f"Runs of other releases: {since(item, name, observed)}.", "",
                      "## Meanwhile", "", item["avoid"], ""])


def files() -> dict[Path, str]:
    items, observed, searches = load()
    out = {HERE / name / "report.md": report(name, item, observed) for name, item in items.items()}
    return out | {HERE.parent / "docs" / "upstream.md": page(items, observed, searches)}


def main() -> int:
    if sys.argv[1:] not in ([], ["--check"]):
        print(f"make_page.py: {' '.join(sys.argv[1:])} is no option; expected --check or nothing", file=sys.stderr)
        return 2
    stale = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if sys.argv[1:]:
            print(f"{path.relative_to(HERE.parent)} is not what make_page.py makes; expected `python3 upstream/make_page.py` to have been run", file=sys.stderr)
        else:
            path.write_text(files()[path])
    return 1 if stale and sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
