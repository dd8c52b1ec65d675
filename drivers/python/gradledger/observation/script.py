"""What all ranks saw, as a trace that the command judges: a scenario with what happened in it, and the gradients that steps were given."""
from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from ..driver import NAMES, stored
from .leaves import NotObserved, Parameter
from .probes import Probes
from .stretches import Kept, Piece
from .watch import MicroBatch, Seen, Step, deposit

NUMBERS_MAX = 4_000_000  # in the tables of a scenario
FORMULA_MAX = (1 << 31) - 1
PARAMETERS_MAX = 4096


@dataclass(frozen=True)
class Contract:
    """What is meant, in words and as a scenario has it. `stated` is false where it is what the losses themselves say."""
    words: str
    keys: Mapping[str, Any]
    stated: bool


@dataclass
class Script:
    """Of all ranks together. Parameters are those that some backward reached, in their numbers of the model."""
    parameters: Sequence[Parameter]
    ranks: Sequence[Seen]
    probes: Probes
    dtypes: Mapping[int, torch.dtype]
    contract: Contract
    kept: dict[int, Kept] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # of the model, by number in the scenario
    events: list[dict[str, Any]] = field(default_factory=list)
    by_rank: list[list[tuple[int, Step | None]]] = field(default_factory=list)  # events that a rank runs, with what a step was given

    def __post_init__(self) -> None:
        used = {p for seen in self.ranks for micro_batch in seen.micro_batches for p in micro_batch.uses}
        self.numbers = sorted(used)
        if len(self.numbers) > PARAMETERS_MAX:
            raise NotObserved(f"{len(self.numbers)} parameters are more than the {PARAMETERS_MAX} of a scenario")
        self.positions = 1 + max((micro_batch.position for seen in self.ranks for micro_batch in seen.micro_batches), default=-1)
        for p in self.numbers:
            pieces = [piece for seen in self.ranks for step in seen.steps for given in step.given for piece in given if piece.parameter == p]
            self.kept[p] = Kept(pieces, self.dark(p))
        self.numbers = [p for p in self.numbers if len(self.kept[p])]
        count = sum(len(self.kept[p]) for p in self.numbers) * self.positions * len(self.ranks)
        if count > NUMBERS_MAX:
            raise NotObserved(f"{self.positions} micro-batches on {len(self.ranks)} ranks take {count} numbers to judge, of {NUMBERS_MAX} that there may be; "
                              "expected a window of fewer micro-batches or ranks")
        self.write_events()

    def dark(self, parameter: int) -> set[int]:
        """Places in a period on which no contribution lies."""
        alone = self.probes.alone(self.parameters[parameter].numel)
        if not alone:
            return set()
        return set(range(alone)) - {self.probes.number(rank, position) % alone for rank in range(len(self.ranks)) for position in range(self.positions)}

    # ---- events -------------------------------------------------------------------------------------------------------------------------

    def write_events(self) -> None:
        """Window by window. Ranks that use other parameters, or have more micro-batches, have events of their own."""
        self.by_rank = [[] for _ in self.ranks]
        world = list(range(len(self.ranks)))
        windows = 1 + max([each.window for seen in self.ranks for each in (*seen.micro_batches, *seen.steps)], default=-1)
        for window in range(windows):
            own = [[micro_batch for micro_batch in seen.micro_batches if micro_batch.window == window] for seen in self.ranks]
            for number in range(max(map(len, own))):
                alike: dict[tuple[int, tuple[int, ...]], list[int]] = {}
                for rank in world:
                    if number < len(own[rank]):
                        alike.setdefault((own[rank][number].position, tuple(sorted(own[rank][number].uses))), []).append(rank)
                for (position, uses), ranks in alike.items():
                    self.add("backward", ranks, self.backward(position, uses, ranks, [own[rank][number] if rank in ranks else None for rank in world]))
            steps = [next((step for step in seen.steps if step.window == window), None) for seen in self.ranks]
            if stepping := [rank for rank in world if steps[rank] is not None]:
                self.add("step", stepping, {} if stepping == world else {"ranks": stepping}, steps)

    def add(self, name: str, ranks: list[int], arguments: dict[str, Any], steps: Sequence[Step | None] | None = None) -> None:
        for rank in ranks:
            self.by_rank[rank].append((len(self.events), steps[rank] if steps else None))
        self.events.append({name: arguments})

    def backward(self, position: int, uses: tuple[int, ...], ranks: list[int], micro_batches: list[MicroBatch | None]) -> dict[str, Any]:
        out: dict[str, Any] = {"micro_batch": position}
        if len(ranks) < len(self.ranks):
            out["ranks"] = ranks
        used = [p for p in uses if p in self.numbers]
        if used != self.numbers:
            out["uses"] = [self.parameters[p].name for p in used]
        if self.contract.stated:
            out["weight"] = [[formula(micro_batch.factor.value if micro_batch else Fraction(1))] for micro_batch in micro_batches]
        return out

    # ---- the trace ----------------------------------------------------------------------------------------------------------------------

    def scenario(self) -> dict[str, Any]:
        dtypes = {self.dtypes[p] for p in self.numbers if p in self.dtypes}
        model_dtype = next((dtype for dtype in (torch.bfloat16, torch.float16, torch.float32) if dtype in dtypes), torch.float32)
        out = {"name": "observed", "world_size": len(self.ranks),
               "parameters": [{"name": self.parameters[p].name, "numel": len(self.kept[p])} for p in self.numbers],
               "model_dtype": NAMES[model_dtype], "engine": {"framework": "external", "config": {}},
               "gradients": {"kind": "values", "micro_batches": [[self.row(position, rank) for rank in range(len(self.ranks))] for position in range(self.positions)]},
               "contract": dict(self.contract.keys), "script": self.events, "allow_open": True}
        if "tokens" in str(self.contract.keys.get("divide_by")):
            out["tokens"] = {"table": self.token_table()}
        return out

    def row(self, position: int, rank: int) -> dict[str, list[float]]:
        """The gradients of one micro-batch: probes, or what was deposited where the contract does not say by what they are divided."""
        micro_batch = next((each for each in self.ranks[rank].micro_batches if each.position == position), None)
        number, out = self.probes.number(rank, position), {}
        for p in self.numbers:
            numel = self.parameters[p].numel
            period: list[float] = [float(value) for value in self.probes.values(number, p, numel)]
            if micro_batch and not self.contract.stated and self.contract.keys["divide_by"] == 1 and micro_batch.factor.value != 1:
                dtype = self.dtypes.get(p, torch.float32)
                period = (deposit(self.probes, number, p, numel, micro_batch.factor.value, 1.0, dtype).double() / self.probes.unit).tolist()
            out[self.parameters[p].name] = [period[element % len(period)] for element in self.kept[p].elements]
        return out

    def token_table(self) -> list[list[list[int]]]:
        windows: list[list[list[int]]] = []
        for rank, seen in enumerate(self.ranks):
            for micro_batch in seen.micro_batches:
                if micro_batch.factor.tokens is None:
                    raise NotObserved(f"the contract counts tokens, and those of micro-batch {micro_batch.number} of rank {rank} could not be read; "
                                      "expected a criterion of cross-entropy")
                while len(windows) <= micro_batch.window:
                    windows.append([[] for _ in self.ranks])
                windows[micro_batch.window][rank].append(micro_batch.factor.tokens)
        return windows

    def write(self, file: Path, versions: Mapping[str, str]) -> None:
        with file.open("w") as out:
            def line(record: Mapping[str, Any]) -> None:
                json.dump(record, out)
                out.write("\n")
            line({"gradledger_trace": 1, "scenario": self.scenario(), "driver": "observe", "versions": dict(versions),
                  "capabilities": {"applied_gradients": True, "accumulators": False, "wide": False, "one_pass": True, "few_runs": False}})
            line({"pass": 0, "key": "0" * 16})
            for rank, events in enumerate(self.by_rank):
                for event, step in events:
                    for record in self.given(rank, event, step):
                        line(record)
                    line({"done": {"rank": rank, "event": event}})
            line({"summary": {"completed": True}})
            line({"end": True, "passes": 1})

    def given(self, rank: int, event: int, step: Step | None) -> list[dict[str, Any]]:
        if step is None:
            return []
        out: list[dict[str, Any]] = []
        by_dtype: dict[str, tuple[list[list[Any]], list[bytes]]] = {}
        for piece in (piece for given in step.given for piece in given if piece.parameter in self.numbers):
            pieces, data = by_dtype.setdefault(NAMES[piece.dtype], ([], []))
            for first, values in self.runs(piece):
                pieces.append([self.numbers.index(piece.parameter), first, values.numel(), NAMES[piece.dtype]])
                data.append(stored(values))
        for dtype, (pieces, data) in by_dtype.items():
            out.append({"event": event, "rank": rank, "at_end": False, "buffer": "gradients of the step" if len(by_dtype) == 1 else f"gradients of the step ({dtype})",
                        "role": "applied", "scale": self.probes.unit, "pieces": pieces, "data": base64.b64encode(b"".join(data)).decode()})
        return [*out, {"fact": {"rank": rank, "event": event, "name": "updated", "value": 1}}]

    def runs(self, piece: Piece) -> list[tuple[int, torch.Tensor]]:
        """Kept elements of a piece as neighbours in the scenario's parameter."""
        kept = self.kept[piece.parameter]
        elements = kept.in_piece(piece)
        return [(kept.number[elements[0]], piece.at(elements))] if elements else []

    # ---- back from it -------------------------------------------------------------------------------------------------------------------

    def stand_for(self, name: str, begin: int, end: int) -> list[tuple[int, int]]:
        p = next(p for p in self.numbers if self.parameters[p].name == name)
        return list(self.kept[p].stand_for(begin, end))


def formula(value: Fraction) -> str:
    if value <= 0 or value.numerator > FORMULA_MAX or value.denominator > FORMULA_MAX:
        raise NotObserved(f"a loss is multiplied by {float(value):.9g}, which is no simple fraction; a contract that is stated cannot be judged with it")
    return f"{value.numerator}/{value.denominator}" if value.denominator > 1 else str(value.numerator)


def taken_for(ranks: Sequence[Seen], stated: Any) -> Contract:
    """The contract that was stated, or what the losses say: each micro-batch counts what its own loss is multiplied by."""
    if stated is not None:
        keys = dict(stated) if isinstance(stated, Mapping) else {"divide_by": stated}
        return Contract(f"as stated, {json.dumps(keys)}", keys, True)
    factors = [micro_batch.factor for seen in ranks for micro_batch in seen.micro_batches]
    values = {factor.value for factor in factors}
    most = [len([micro_batch for micro_batch in seen.micro_batches if micro_batch.window == 0]) for seen in ranks]
    if len(values) == 1 and (value := next(iter(values))).numerator == 1:
        sums = "the mean over the micro-batches of its rank" if set(most) == {value.denominator} else "the sum of the micro-batches of its rank" if value == 1 \
            else f"1/{value.denominator} of each micro-batch of its rank"
        return Contract(f"each window is {sums}, as the losses say, and the mean over ranks", {"divide_by": value.denominator}, False)
    sums = sorted({sum((each.factor.value for each in seen.micro_batches if each.window == 0), Fraction(0)) for seen in ranks})
    return Contract("each micro-batch counts what its own loss is multiplied by, and ranks are averaged; on a rank these add up to "
                    f"{' or '.join(str(each) for each in sums[:3])}{' and others' if len(sums) > 3 else ''}", {"divide_by": 1}, False)

