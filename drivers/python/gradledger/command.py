"""The command `gradledger`: where it and its corpus are, and how it is started so that it finds the drivers of this package."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator, Mapping, NoReturn, Sequence

PACKAGE = Path(__file__).resolve().parent
INSTALLED = PACKAGE / "data"  # what a wheel has beside the modules
CHECKOUT = PACKAGE.parents[2]


class NoCommand(Exception):
    """The command is not built, or not where it is looked for."""


def main() -> NoReturn:
    """The console script. It becomes the command, so that signals and exit codes are the command's own."""
    try:
        command = str(path())
        os.execve(command, [command, *sys.argv[1:]], environment())
    except (NoCommand, OSError) as error:
        print(f"gradledger: {error}", file=sys.stderr)
        sys.exit(2)


def path() -> Path:
    """GRADLEDGER_COMMAND where it is set, the wheel's, or that of the checkout's release build."""
    given = os.environ.get("GRADLEDGER_COMMAND")
    places = [Path(given)] if given else [INSTALLED / "bin" / "gradledger", CHECKOUT / "build" / "release" / "gradledger"]
    for place in places:
        if place.is_file():
            return place
    raise NoCommand(f"the command gradledger is not at {' or '.join(map(str, places))}; expected it to be built: pip install ., or tools/build release gradledger")


def corpus() -> Path:
    """The folder of the scenarios that come with gradledger."""
    return corpora()[0]


def corpora() -> list[Path]:
    """That one, and the folder of those that real frameworks alone run."""
    for place in (INSTALLED, CHECKOUT):
        if (place / "scenarios" / "scenario.schema.json").is_file():
            return [place / "scenarios", place / "drivers" / "scenarios"]
    raise NoCommand(f"the corpus of scenarios is neither at {INSTALLED / 'scenarios'} nor at {CHECKOUT / 'scenarios'}")


def environment(python: str | None = None, modules: Sequence[Path] = ()) -> dict[str, str]:
    """For the command: which Python runs drivers, where that finds this package, and where the modules of the caller's own drivers."""
    out = dict(os.environ)
    out["GRADLEDGER_PYTHON"] = python or out.get("GRADLEDGER_PYTHON") or sys.executable
    # Another Python than this one is to find this package, and none of what is installed beside it.
    alone = INSTALLED / "python"
    out.setdefault("GRADLEDGER_DRIVERS", str(alone if alone.is_dir() else PACKAGE.parent))
    if modules:
        out["PYTHONPATH"] = os.pathsep.join([*map(str, modules), *filter(None, [out.get("PYTHONPATH")])])
    return out


class Run:
    """One run of the command: iterate over the JSON objects that it prints, as they come; then there are `code` and `text`.

    The command ends where the iteration is left before its end, and its ranks with it.
    """

    def __init__(self, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        self.words = [str(path()), *arguments]
        self.variables = variables
        self.code = -1
        self.text = ""  # what it says on standard error, a line a message

    def records(self, kind: str) -> Iterator[dict[str, Any]]:
        """Those of one kind: errors are in `text` too, and the summary has nothing that `code` has not."""
        for record in self:
            if record["record"] == kind:
                yield record

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with tempfile.TemporaryFile() as errors:
            with subprocess.Popen(self.words, env=dict(self.variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process:
                try:
                    for line in process.stdout or ():
                        if line.strip():
                            yield json.loads(line)
                except BaseException:
                    process.kill()
                    raise
            self.code = process.returncode
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines()
        self.text = "\n".join(line.removeprefix("gradledger: ") for line in lines)
