"""`observe`: the loop runs a window as it always does, the window is judged, and everything is put back."""
from __future__ import annotations

import gc
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any, Mapping, Sequence, Union

import torch
import torch.distributed as dist

from .. import api, command
from ..findings import Report
from .kept_state import KeptState
from .leaves import Model, NotObserved, base_optimizers
from .ledger import NEVER_JUDGED, Ledger, OfTheModel, Weight, not_judged
from .script import Script, taken_for
from .watch import Seen, Watch

Stated = Union[None, str, int, Mapping[str, Any]]
MICRO_BATCHES = 8  # of a window that can be told apart at least
MICRO_BATCHES_MAX = 1 << 12


def observe(model: torch.nn.Module, optimizer: Any, *others: Any, contract: Stated = None, micro_batches: int | None = None, trace: str | Path | None = None) -> Observation:
    """A context for one window of a training loop; with several ranks, each enters and leaves it.

    `optimizer` is that of the loop, several in a list, or an engine. What `others` name is put back too, beside what is found by itself. `contract` is what the
    window is meant to be: "window", "tokens", "tokens_of_rank", a number that it is divided by, or a dict with the keys of a scenario's contract; without one each
    micro-batch is meant to count what its loss is multiplied by. `micro_batches` is how many a window has at most. `trace` is a file that keeps what was seen.
    """
    return Observation(model, optimizer, *others, contract=contract, micro_batches=micro_batches, trace=trace)


class Observation:
    def __init__(self, model: torch.nn.Module, optimizer: Any, *others: Any, contract: Stated = None, micro_batches: int | None = None,
                 trace: str | Path | None = None) -> None:
        self.given = (model, optimizer, others)
        self.contract, self.trace = contract, trace
        engine = next((each for each in (model, optimizer, *others) if is_engine(each)), None)
        given = [each for each in (optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]) if each is not engine]
        try:
            self.model = Model(model, engine)
            self.optimizers = base_optimizers(given, engine)
        except NotObserved as error:
            raise api.NotRun(str(error)) from None
        expected = micro_batches or max(MICRO_BATCHES, engine.gradient_accumulation_steps() if engine is not None else 0)
        if not 1 <= expected <= MICRO_BATCHES_MAX:
            raise api.BadInput(f"micro_batches is {micro_batches!r}; expected 1 to {MICRO_BATCHES_MAX}")
        self.rank, self.world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)
        self.watch = Watch(self.rank, self.world_size, self.model, self.optimizers, expected)
        self.ledger = Ledger(framework=self.model.framework)
        self.state: KeptState | None = None

    def __enter__(self) -> Ledger:
        if self.state is not None:
            raise api.BadInput("an observation is over when its block ends; expected another call of observe")
        self.state = KeptState([*self.given, self.optimizers])
        self.watch.begin()
        return self.ledger

    def __exit__(self, kind: Any, error: Any, where: Any) -> None:
        """Puts everything back, whatever happened; judges where the loop has come through."""
        self.leave()
        if kind is None:
            self.judge()

    def leave(self) -> None:
        state, self.state = self.state, None
        try:
            self.watch.end()
        finally:
            if state is not None:
                state.put_back()

    # ---- the verdict --------------------------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        seen = self.watch.seen
        ranks = gathered((seen, self.watch.probes, self.watch.dtypes), self.world_size)
        out: Any = None
        if self.rank == 0:
            try:
                out = self.verdict([each[0] for each in ranks], [each[1] for each in ranks], [each[2] for each in ranks])
            except (NotObserved, command.NoCommand) as refused:
                out = api.NotRun(str(refused))
            except api.Error as failed:
                out = failed
        out = told_to_all(out, self.world_size)
        if isinstance(out, Exception):
            raise out
        vars(self.ledger).update(vars(out))

    def verdict(self, ranks: Sequence[Seen], probes: Sequence[Any], dtypes: Sequence[dict[int, torch.dtype]]) -> Ledger:
        known = [each for each in probes if each is not None]
        notes = tuple(dict.fromkeys(f"rank {seen.rank}: {note}" for seen in ranks for note in seen.notes))
        ledger = Ledger(framework=self.model.framework, notes=notes, windows=max(len({step.window for step in seen.steps}) for seen in ranks))
        ledger.contract = (contract := taken_for(ranks, self.contract)).words
        if not known:
            return without(ledger, "no backward came to a parameter of the model")
        if not any(step.given for seen in ranks for step in seen.steps):
            return without(ledger, "no optimizer stepped with a gradient of the model")
        if any(each != known[0] for each in known):
            raise NotObserved("ranks have probes of different kinds; expected the same model and loss scale on all of them")
        script = Script(self.model.parameters, ranks, known[0], {p: dtype for each in dtypes for p, dtype in each.items()}, contract)
        report = judged(script, self.trace)
        return told(ledger, script, report)


def without(ledger: Ledger, why: str) -> Ledger:
    ledger.notes = (*ledger.notes, f"nothing was judged: {why}")
    return ledger


def judged(script: Script, trace: str | Path | None) -> Report:
    with tempfile.TemporaryDirectory(prefix="gradledger-") as folder:
        file = Path(folder, "observed.jsonl")
        script.write(file, versions())
        if trace is not None:
            shutil.copyfile(file, trace)
        run = command.Run(["judge", "--json", str(file)], command.environment())
        printed = list(run)
    text = run.text.replace(str(file), "observed")
    reports = [raw for raw in printed if "verdict" in raw]
    if run.code not in (0, 1) or not reports:
        raise api.failure(run.code, text)
    return Report.of({**reports[0], "file": str(trace) if trace is not None else ""}, text)


def told(ledger: Ledger, script: Script, report: Report) -> Ledger:
    """The command's verdict in the words of the model."""
    factors = [micro_batch.factor for seen in script.ranks for micro_batch in seen.micro_batches]
    deposited = not script.contract.stated and script.contract.keys["divide_by"] == 1
    by_place = {(factor.window, factor.rank, factor.micro_batch): float(factor.value) if deposited else 1.0 for factor in factors}
    place = OfTheModel([script.parameters[p].name for p in script.numbers], script.stand_for, by_place)
    ledger.report, ledger.verdict = report, report.verdict
    ledger.findings = tuple(place.finding(finding) for finding in report.findings)
    ledger.weights = tuple(Weight(factor.window, factor.rank, factor.micro_batch, float(factor.value) / len(script.ranks), factor) for factor in factors)
    more = list(not_judged(dict(report.raw)))
    left = [script.parameters[p].name for p in range(len(script.parameters)) if p not in script.numbers]
    if left:
        more.append(f"{len(left)} parameters that no probe came to, such as {left[0]}")
    if cut := sum(piece.left_out for seen in script.ranks for step in seen.steps for given in step.given for piece in given):
        more.append(f"{cut} elements of gradients that repeat nothing, behind the first of their kind")
    if unread := [factor for factor in factors if not factor.read]:
        more.append(f"what the losses of {len(unread)} micro-batches are multiplied by: {unread[0].how}")
    if any(micro_batch.position >= script.probes.micro_batches for seen in script.ranks for micro_batch in seen.micro_batches):
        more.append(f"which of the micro-batches beyond {script.probes.micro_batches} a weight belongs to; expected micro_batches= of the window")
    if not script.contract.stated:
        more.append("whether what the losses are multiplied by is what is meant; state contract= for that")
    ledger.not_judged = (*NEVER_JUDGED, *more)
    return ledger


def versions() -> dict[str, str]:
    out = {"torch": str(torch.__version__)}
    for package in ("deepspeed", "accelerate", "transformers", "lightning"):
        if package in sys.modules:
            try:
                out[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                out[package] = str(getattr(sys.modules[package], "__version__", "unknown"))
    return out


def gathered(own: Any, world_size: int) -> list[Any]:
    if world_size == 1:
        return [own]
    out: list[Any] = [None] * world_size
    dist.all_gather_object(out, own)
    return out


def told_to_all(own: Any, world_size: int) -> Any:
    """What rank 0 has."""
    if world_size == 1:
        return own
    out = [own]
    dist.broadcast_object_list(out, src=0)
    return out[0]


def engine_of(model: torch.nn.Module) -> Any:
    """DeepSpeed's, of a model that it has wrapped. None: it has not."""
    if "deepspeed" not in sys.modules:
        return None
    return next((thing for thing in gc.get_objects() if is_engine(thing) and thing.module is model), None)


def is_engine(thing: Any) -> bool:
    return any(kind.__name__ == "DeepSpeedEngine" for kind in type(thing).__mro__)
