#!/usr/bin/env python3
"""Pages of --html in a real browser: opened, filtered, clicked, walked through by keyboard. Exit code 77, which ctest shows as skipped, where there is no Chromium.

usage: html_in_chromium.py GRADLEDGER SOURCE_FOLDER"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import chromium  # noqa: E402

gradledger, source = sys.argv[1:3] if len(sys.argv) > 2 else (None, None)

big = {
    "name": "eight-by-64 </script><b>\" '",
    "world_size": 8,
    "parameters": [{"name": "w", "numel": 8}],
    "model_dtype": "bf16",
    "engine": {"framework": "deepspeed", "as_of": "0.18.9", "config": {"bf16": {"enabled": True}, "gradient_accumulation_steps": 64, "zero_optimization": {"stage": 1}}},
    "script": [{"repeat": {"times": 64, "of": [{"backward": {}}, {"step": {}}]}}],
}


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.browser = chromium.Chromium(chromium.find())

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def write(self, name, *words):
        path = pathlib.Path(self.folder.name) / name
        if not path.exists():
            result = subprocess.run([gradledger, *words, "--html", str(path)], capture_output=True, text=True)
            self.assertIn(result.returncode, (0, 1), result.stderr)
        return path

    def scenarios(self, *names):
        return [f"{source}/scenarios/{name}.json" for name in names]

    def open(self, path, **how):
        page = chromium.Page(self.browser, **how)
        self.seconds = page.open(path)
        return page

    def quiet(self, page):
        self.assertEqual(page.complaints(), [])
        self.assertEqual(page.requests(), [])

    def lossy(self):
        return self.write("lossy.html", "replay", *self.scenarios("deepspeed-7981/offload-keeps-only-the-last-0.18.9"))

    def test_a_replay_shows_its_findings_its_ledger_and_where_the_books_stop_balancing(self):
        page = self.open(self.lossy())
        headings = page.evaluate("[...document.querySelectorAll('h3')].map(e => e.textContent).join('|')")
        for heading in ("Findings", "Ledger", "Where the books stop balancing", "Time line", "Memory and traffic"):
            self.assertIn(heading, headings)
        self.assertIn("The books stop balancing at event 5", page.evaluate("document.body.innerText"))
        self.assertGreater(page.evaluate("document.querySelectorAll('.heat td.less[data-cell]').length"), 0)
        self.assertGreater(page.evaluate("document.querySelectorAll('.join').length"), 0)
        self.assertNotIn("[object", page.evaluate("document.body.innerText"))
        self.quiet(page)

    def test_a_heat_map_can_be_walked_through_by_keyboard(self):
        page = self.open(self.lossy())
        for _ in range(30):
            page.key("Tab")
            if page.evaluate("document.activeElement.matches('.heat [data-cell]')"):
                break
        self.assertTrue(page.evaluate("document.activeElement.matches('.heat td:focus-visible')"))
        detail = "document.querySelector('.heat').closest('section').querySelector('.detail').textContent"
        first = page.evaluate(detail)
        self.assertIn("missing", first)
        page.key("ArrowRight")
        self.assertIn("as due", page.evaluate(detail))
        page.key("ArrowDown")
        self.assertIn("Applied by rank 1", page.evaluate(detail))
        page.key("Home")
        self.assertIn("micro-batches 0-2 of rank 0", page.evaluate(detail))
        self.assertEqual(page.evaluate("document.querySelectorAll('.heat [tabindex=\"0\"]').length"), 1)
        self.quiet(page)

    def test_micro_batches_that_are_alike_come_apart_on_a_click(self):
        page = self.open(self.lossy())
        columns = "document.querySelectorAll('.heat[role=grid] tbody tr:first-child td').length"
        joined = page.evaluate(columns)
        page.click("section input[type=checkbox]")
        self.assertEqual((joined, page.evaluate(columns)), (4, 8))
        self.quiet(page)

    def test_both_operations_of_a_race_are_marked_and_joined(self):
        page = self.open(self.write("race.html", "replay", *self.scenarios("streams/released-in-flight-before-7965")))
        self.assertGreaterEqual(page.evaluate("document.querySelectorAll('.bar.racing').length"), 2)
        self.assertGreater(page.evaluate("document.querySelectorAll('.pair').length"), 0)
        page.click(".bar.racing")
        self.assertIn("RACE", page.evaluate("document.querySelector('.bar').closest('section').querySelector('.detail').textContent"))
        self.quiet(page)

    def test_a_model_of_true_size_has_one_row_for_ranks_that_hold_the_same(self):
        path = self.write("true_size.html", "replay", *self.scenarios("true-size/llama-7b-7981-keeps-only-the-last"))
        self.assertLess(path.stat().st_size, 1_000_000)
        page = self.open(path)
        rows = page.evaluate("[...document.querySelectorAll('.books tbody th')].map(e => e.textContent).join('|')")
        self.assertEqual(rows, "ranks 0-15")
        self.assertGreater(page.evaluate("document.querySelectorAll('.books td.wrong').length"), 0)
        self.assertIn("The books stop balancing at event", page.evaluate("document.body.innerText"))
        page.evaluate("document.querySelector('.books td.wrong').focus()")
        self.assertIn("OUT OF BALANCE: single_partition_of_fp32_groups[0].grad", page.evaluate("document.querySelector('.books').closest('section').querySelector('.detail').textContent"))
        self.quiet(page)

    def test_ranks_of_a_large_world_share_a_column_until_the_tick_is_taken_away(self):
        scenario = pathlib.Path(self.folder.name) / "wide.json"
        engine = big["engine"] | {"config": big["engine"]["config"] | {"gradient_accumulation_steps": 1}}
        scenario.write_text(json.dumps(big | {"name": "wide", "world_size": 80, "engine": engine, "script": [{"backward": {}}, {"step": {}}]}))
        page = self.open(self.write("wide.html", "replay", str(scenario)))
        head = "document.querySelector('.heat[role=grid] thead').textContent"
        self.assertIn("from ranks 0-79", page.evaluate(head))
        page.click("section input[type=checkbox]")
        self.assertIn("from rank 79", page.evaluate(head))
        self.assertNotIn("from ranks", page.evaluate(head))
        self.quiet(page)

    def test_two_replays_stand_side_by_side(self):
        page = self.open(self.write("two.html", "replay", *self.scenarios("deepspeed-7981/offload-keeps-only-the-last-0.18.9", "deepspeed-7981/offload-keeps-all-0.19.0")))
        self.assertEqual(page.evaluate("document.querySelectorAll('[role=tab]').length"), 3)
        page.click("[role=tab]:last-child")
        self.assertEqual(page.evaluate("document.querySelectorAll('.compare > div').length"), 2)
        text = page.evaluate("document.querySelector('[role=tabpanel]:not([hidden])').innerText")
        self.assertIn("differs", text)
        self.assertIn("6 findings", text)
        page.key("Home")
        self.assertEqual(page.evaluate("document.querySelector('[role=tab][aria-selected=true]').textContent"), "7981-offload-keeps-only-the-last-0.18.9")
        self.quiet(page)

    def test_a_gate_is_filtered_sorted_and_opened(self):
        page = self.open(self.write("gate.html", "gate", f"{source}/scenarios/streams"))
        rows = "document.querySelectorAll('tbody tr:not(.details)').length"
        all_rows = page.evaluate(rows)
        self.assertGreater(all_rows, 10)
        page.click("input[type=search]")
        page.type("7965")
        some = page.evaluate(rows)
        self.assertTrue(0 < some < all_rows, some)
        self.assertIn(f"{some} of {all_rows} rows", page.evaluate("document.querySelector('[role=status]').textContent"))
        page.click("thead th:nth-child(2) button")
        self.assertEqual(page.evaluate("document.querySelector('th[aria-sort=ascending]').textContent"), "scenario")
        page.evaluate("document.querySelector('tbody button').focus()")
        page.key("Enter")
        self.assertEqual(page.evaluate("document.querySelector('tbody button').getAttribute('aria-expanded')"), "true")
        self.assertTrue(page.evaluate("document.querySelector('tr.details').offsetHeight > 0"))
        self.quiet(page)

    def test_8_ranks_and_64_micro_batches_are_below_a_megabyte(self):
        scenario = pathlib.Path(self.folder.name) / "big.json"
        scenario.write_text(json.dumps(big))
        path = self.write("big.html", "replay", str(scenario))
        self.assertLess(path.stat().st_size, 1 << 20)
        page = self.open(path)
        # The browser's own time, from the start of the navigation to the end of the script: a loaded machine delays all else.
        drawn = page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
        print(f"8 ranks x 64 micro-batches: {path.stat().st_size} bytes, drawn after {drawn:.0f} ms", flush=True)
        self.assertEqual(page.evaluate("document.querySelector('h2').textContent"), big["name"])
        page.click("section input[type=checkbox]")
        self.assertEqual(page.evaluate("document.querySelectorAll('.heat[role=grid] tbody tr:first-child td').length"), 512)
        self.quiet(page)

    def test_nothing_spills_out_of_a_narrow_window_and_dark_is_dark(self):
        page = self.open(self.lossy(), width=390, dark=True)
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 390)
        self.assertEqual(page.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(20, 23, 27)")
        self.quiet(page)

    def test_every_control_has_a_name(self):
        page = self.open(self.lossy())
        nodes = page.send("Accessibility.getFullAXTree")["nodes"]
        roles = ("button", "checkbox", "combobox", "searchbox", "tab", "grid", "region")
        nameless = [n["role"]["value"] for n in nodes if n.get("role", {}).get("value") in roles and not n.get("name", {}).get("value")]
        self.assertEqual(nameless, [])
        self.assertGreater(len(nodes), 50)


if __name__ == "__main__":
    if not chromium.find():
        print("NOT RUN: there is no Chromium here, so nothing of the HTML page was tested in a browser; on Debian, apt-get install chromium", flush=True)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
