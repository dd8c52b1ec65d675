"""What upstream/ promises of itself. Needs no framework: `python3 upstream/test_upstream.py`."""
from __future__ import annotations

import ast
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "search"))
import campaign  # noqa: E402
import draw  # noqa: E402
import make_page  # noqa: E402
import run as runner  # noqa: E402

ITEMS, OBSERVED, SEARCHES = make_page.load()
SCHEMA = json.loads((HERE / "item.schema.json").read_text())
LINES_MAX = 40


def mistakes(value: Any, schema: dict[str, Any], where: str = "") -> list[str]:
    """Of the keywords that item.schema.json uses; another one would raise."""
    known = {"type", "required", "properties", "additionalProperties", "enum", "minLength", "items", "description", "title", "$schema"}
    assert set(schema) <= known, f"the schema has {set(schema) - known}, which nobody looks at"
    kind = {"object": dict, "string": str, "boolean": bool, "array": list}[schema["type"]]
    if not isinstance(value, kind):
        return [f"{where} is no {schema['type']}"]
    out = [f"{where} is {value!r}"] if "enum" in schema and value not in schema["enum"] else []
    out += [f"{where} is short"] if len(value if isinstance(value, str) else "x" * 99) < schema.get("minLength", 0) else []
    if kind is list:
        return out + [mistake for i, each in enumerate(value) for mistake in mistakes(each, schema["items"], f"{where}/{i}")]
    if kind is dict:
        out += [f"{where} lacks {key}" for key in schema["required"] if key not in value]
        out += [f"{where} has {key}" for key in value if key not in schema["properties"]]
        out += [mistake for key, each in value.items() if key in schema["properties"] for mistake in mistakes(each, schema["properties"][key], f"{where}/{key}")]
    return out


class Entries(unittest.TestCase):
    def test_have_what_the_schema_asks_for(self) -> None:
        for name, item in ITEMS.items():
            self.assertEqual(mistakes(item, SCHEMA), [], name)

    def test_that_lack_something_are_found(self) -> None:
        item = dict(next(iter(ITEMS.values())))
        del item["cause"]
        self.assertEqual(mistakes(item, SCHEMA), [" lacks cause"])
        self.assertEqual(mistakes(item | {"cause": {"where": "a/b.py: f", "why": "because of it"}, "silent": "yes"}, SCHEMA), ["/silent is no boolean"])

    def test_have_a_reproduction_that_stands_alone_in_forty_lines(self) -> None:
        for name in ITEMS:
            text = (HERE / name / "reproduce.py").read_text()
            self.assertLessEqual(text.count("\n"), LINES_MAX, name)
            names = {(node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Import, ast.ImportFrom))}
            self.assertFalse([each for each in names if each.startswith("gradledger")], name)
            self.assertIn("sys.exit(", text, name)

    def test_have_scenarios_that_are_there(self) -> None:
        for name, item in ITEMS.items():
            if "scenario" in item:
                path = HERE.parent / item["scenario"]["file"]
                self.assertTrue(path.is_file(), f"{name} names {path}")
                self.assertTrue(json.loads(path.read_text())["expect"]["findings"], f"{path} expects nothing")

    def test_of_folders_without_an_item_there_are_none(self) -> None:
        folders = {path.name for path in HERE.iterdir() if path.is_dir()} - {"observed", "search", "__pycache__"}
        self.assertEqual(folders, set(ITEMS))

    def test_name_the_project_beside_a_number(self) -> None:
        for name, item in ITEMS.items():
            self.assertIsNone(re.search(r"(^|[\s(])#\d", json.dumps(item)), name)


    def test_of_documented_use_name_a_page_and_what_it_says(self) -> None:
        for name, item in ITEMS.items():
            if item["use"]["grade"] == "documented":
                self.assertRegex(item["use"]["where"], r"^https://\S+\.\S+/", name)
                self.assertGreaterEqual(len(item["use"]["says"].split()), 8, name)

    def test_are_called_not_found_only_where_they_were_searched(self) -> None:
        for name, item in ITEMS.items():
            self.assertEqual(item["reported"].startswith("not found"), "searched" in item, name)


class Runner(unittest.TestCase):
    LINE = "a: expected [1.0] observed [2.0]"

    def test_counts_by_exit_code_where_the_last_line_says_what_was_observed(self) -> None:
        self.assertEqual(runner.verdict(1, f"starting\n{self.LINE}\n", "a warning\n"), {"shows": True, "printed": self.LINE})
        self.assertEqual(runner.verdict(0, self.LINE, ""), {"shows": False, "printed": self.LINE})

    def test_takes_an_exception_for_broken_whatever_was_printed_before_it(self) -> None:
        errors = "Traceback (most recent call last):\n  File ...\nRuntimeError: expected another shape\n"
        for out in ("", "expected a tensor\n", self.LINE):
            self.assertEqual(runner.verdict(1, out, errors), {"shows": None, "printed": "RuntimeError: expected another shape"})

    def test_takes_a_last_line_without_what_was_observed_for_broken(self) -> None:
        self.assertIsNone(runner.verdict(1, f"{self.LINE}\nexpected more\n", "")["shows"])
        self.assertEqual(runner.verdict(1, "", ""), {"shows": None, "printed": "exit code 1, last line ''"})

    def test_takes_another_exit_code_for_broken(self) -> None:
        self.assertIsNone(runner.verdict(2, self.LINE, "")["shows"])

    def test_runs_a_script_that_raises_as_broken(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "reproduce.py"
            script.write_text("print('expected 1')\nraise ValueError('of no use')\n")
            self.assertEqual(runner.run(sys.executable, script, folder), {"shows": None, "printed": "ValueError: of no use"})

    def test_gives_the_script_a_folder_of_its_own_for_compiled_modules(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "reproduce.py"
            script.write_text("import os, sys\nprint('observed', os.environ['TORCH_EXTENSIONS_DIR'])\nsys.exit(1)\n")
            self.assertEqual(runner.run(sys.executable, script, folder)["printed"], f"observed {folder}")


class Observed(unittest.TestCase):
    def test_every_entry_shows_in_the_newest_release_that_was_run(self) -> None:
        for name, item in ITEMS.items():
            run, result = make_page.newest(item, name, OBSERVED)
            self.assertIs(result["shows"], True, f"{name} at {item['package']} {run['release']}: {result['printed']}")

    def test_of_entries_that_are_gone_nothing_is_kept(self) -> None:
        for runs in OBSERVED.values():
            for run in runs:
                self.assertLessEqual(set(run["items"]), set(ITEMS), run["release"])


class Pages(unittest.TestCase):
    def test_are_what_the_generator_makes(self) -> None:
        for path, text in make_page.files().items():
            self.assertTrue(path.exists() and path.read_text() == text, f"{path}: run python3 upstream/make_page.py")

    def test_say_of_releases_what_the_runs_say(self) -> None:
        runs = [{"release": release, "items": {"x": {"shows": shows, "printed": printed}}} for release, shows, printed in
                (("1.0", None, "no module"), ("1.1", False, "as due"), ("1.2", True, "other"), ("1.3", True, "wrong"), ("1.10", True, "wrong"))]
        self.assertEqual(make_page.since({"package": "torch"}, "x", {"torch": runs}),
                         "shows at 1.3 and 1.10; at 1.2 it is wrong in another way; not at 1.1; at 1.0 the reproduction ends with an error")


class Search(unittest.TestCase):
    def test_draws_the_same_case_for_the_same_number(self) -> None:
        for producer in draw.PRODUCERS:
            drawn = [draw.draw(producer, 7, number) for number in range(50)]
            self.assertEqual(drawn, [draw.draw(producer, 7, number) for number in range(50)])
            self.assertGreater(len({json.dumps(case["script"]) for case in drawn}), 25, producer)

    def test_counts_a_finding_for_the_one_entry_that_it_fits(self) -> None:
        number = next(n for n in range(1000) if "graph twice" in campaign.facts(draw.draw("ddp", 0, n)))
        fits = {"producer": "ddp", "classes": ["missing-reduction"], "with": ["graph twice"]}
        searched = {"producer": "ddp", "seed": 0, "classes": {str(number): ["missing-reduction", "engine-error"]}}
        self.assertEqual(campaign.tally(searched, {"one": fits})["found"], {"one": {"first_case": number, "cases": 1}})
        self.assertEqual(campaign.tally(searched, {"one": fits, "other": fits})["ambiguous"], {"one or other": 1})
        self.assertEqual(campaign.tally(searched, {"none": fits | {"with": ["no such thing"]}})["unexplained"], {"missing-reduction": 1})

    def test_words_of_entries_are_those_of_drawn_loops(self) -> None:
        for producer in draw.PRODUCERS:
            words = set().union(*(campaign.facts(draw.draw(producer, 0, number)) for number in range(2000)))
            for name, search in campaign.entries(producer).items():
                self.assertLessEqual(set(search["with"]) | set(search.get("without", ())), words, name)


if __name__ == "__main__":
    unittest.main()
