"""Runs the reproductions of upstream/ in an environment and writes down what they showed.

usage: run.py --python PYTHON [--package deepspeed] [--only NAME] [--write observed] [--keep]

Each reproduction stands alone. Its last line says what is expected and what was observed, and it ends with 1 where the misbehaviour shows and
with 0 where it does not. One that ends otherwise, that leaves such a line out or that prints a Traceback is broken.
This ends with 1 where an entry of a package that is there did not show: it was repaired, or it is broken here.
--keep adds to a file that is there, in place of what it says of the same entries. Without --write nothing is written.
"""
from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGES = ("deepspeed", "torch", "accelerate", "transformers", "megatron-core", "megatron-fsdp")
SECONDS = 900  # DeepSpeed compiles a module when it first starts in an environment
VERSIONS = "import importlib.metadata as m, json, sys; have = {d.metadata['Name'].lower(): d.version for d in m.distributions() if d.metadata['Name']}; print(json.dumps(have))"


def releases(python: str) -> dict[str, str]:
    found = json.loads(subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=True).stdout)
    return {name: found[name].split("+")[0] for name in PACKAGES if name in found}


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def verdict(code: int, out: str, errors: str) -> dict[str, Any]:
    """What a reproduction showed. An uncaught exception ends with 1 too, so that the exit code alone says nothing. `shows` is null where it is broken, and `printed` then says why."""
    last = ([line for line in out.splitlines() if line.strip()] or [""])[-1]
    if code in (0, 1) and "observed" in last and "Traceback" not in errors:
        return {"shows": code == 1, "printed": last}
    said = [line for line in errors.splitlines() if "Error" in line] or errors.splitlines() or [f"exit code {code}, last line {last!r}"]
    return {"shows": None, "printed": said[-1].strip()[:300]}


def run(python: str, script: Path, modules: str) -> dict[str, Any]:
    """`modules`: where DeepSpeed keeps what it compiles, with locks that it leaves behind where it is killed; so it is not the user's own folder."""
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "MASTER_PORT": free_port(), "TORCH_EXTENSIONS_DIR": modules}
    try:
        done = subprocess.run([python, str(script)], capture_output=True, text=True, timeout=SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return {"shows": None, "printed": f"no end after {SECONDS} seconds"}
    return verdict(done.returncode, done.stdout, done.stderr)


def entries(package: str | None, only: str | None) -> dict[str, dict[str, Any]]:
    found = {path.parent.name: json.loads(path.read_text()) for path in sorted(HERE.glob("*/item.json"))}
    return {name: item for name, item in found.items() if package in (None, item["package"]) and only in (None, name)}


def write(folder: Path, package: str, have: dict[str, str], seen: dict[str, Any], keep: bool) -> None:
    file = folder / f"{package}-{have[package]}.json"
    before = json.loads(file.read_text())["items"] if keep and file.exists() else {}
    folder.mkdir(exist_ok=True)
    beside = {name: release for name, release in have.items() if name != package and (name == "torch" or package == "transformers")}
    file.write_text(json.dumps({"package": package, "release": have[package], "beside": beside, "items": dict(sorted((before | seen).items()))}, indent=2) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--package", choices=PACKAGES)
    parser.add_argument("--only", help="one entry, by its folder's name")
    parser.add_argument("--write", type=Path, help="folder of observed results")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    have, seen, gone = releases(arguments.python), defaultdict(dict), 0
    chosen = {name: item for name, item in entries(arguments.package, arguments.only).items() if item["package"] in have}
    with tempfile.TemporaryDirectory() as modules:
        for name, item in chosen.items():
            result = seen[item["package"]][name] = run(arguments.python, HERE / name / "reproduce.py", modules)
            print({True: "shows    ", False: "GONE     ", None: "BROKEN   "}[result["shows"]], name + ":", result["printed"], flush=True)
            gone += not result["shows"]
    if arguments.write:
        for package, results in seen.items():
            write(arguments.write, package, have, results, arguments.keep)
    print(f"{len(chosen)} reproductions on {', '.join(f'{name} {release}' for name, release in have.items())}: {len(chosen) - gone} show, {gone} do not")
    return 1 if gone or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
