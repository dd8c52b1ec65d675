"""DDP and FSDP2 train on the backend as they do on gloo: numbers are integers or halves of them, so that no order of summation rounds, and have to be equal."""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo  # what DDP and FSDP2 import while they run, once for all ranks
import torch.distributed as dist
from gradledger.process_group import LedgerGroup
from ranks_of_a_test import Outcome, run
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

STEPS, MICRO_BATCHES = 2, 2


class Network(torch.nn.Module):
    """Two layers that multiply, and one that only some micro-batches use."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(5, 4, bias=False), torch.nn.Linear(4, 3)
        self.sometimes = torch.nn.Linear(3, 1)
        with torch.no_grad():
            for i, parameter in enumerate(self.parameters()):
                parameter.copy_(torch.arange(parameter.numel()).view(parameter.shape) % 3 + i % 2)

    def forward(self, given: torch.Tensor, with_all: bool) -> torch.Tensor:
        out = self.second(self.first(given))
        return self.sometimes(out).sum() if with_all else out.sum()


def inputs(rank: int, step: int, micro_batch: int) -> torch.Tensor:
    return torch.tensor([[float((rank + 2 * step + micro_batch + i) % 3) for i in range(5)]])


def trained(rank: int, model: torch.nn.Module, no_sync: Callable[[], Any], gradients: Callable[[torch.Tensor], torch.Tensor],
            with_all: bool = True) -> list[Any]:
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=1 / 64), []
    for step in range(STEPS):
        for micro_batch in range(MICRO_BATCHES):
            with no_sync() if micro_batch + 1 < MICRO_BATCHES else contextlib.nullcontext():
                loss = model(inputs(rank, step, micro_batch), with_all or step == 1)
                (loss * dist.get_world_size()).backward()  # so that a mean over ranks does not round
        seen.append([gradients(p.grad).clone() for p in model.parameters() if p.grad is not None])
        optimizer.step()
        optimizer.zero_grad()
        seen.append([gradients(p.detach()).clone() for p in model.parameters()])
    return seen


def ddp(rank: int, hook: Any = None, **options: Any) -> list[Any]:
    model = torch.nn.parallel.DistributedDataParallel(Network(), **options)
    if hook is not None:
        model.register_comm_hook(None, hook)
    return trained(rank, model, model.no_sync, lambda tensor: tensor, with_all=not options.get("find_unused_parameters"))


def fsdp(rank: int, reshard: bool = True, mixed: bool = False) -> list[Any]:
    torch.manual_seed(0)
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed else MixedPrecisionPolicy()
    model = Network()
    for layer in (model.first, model.second, model.sometimes, model):
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)

    @contextlib.contextmanager
    def no_sync() -> Any:
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)

    return trained(rank, model, no_sync if reshard else contextlib.nullcontext, lambda tensor: tensor.full_tensor())


def allreduce_hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP looks at annotations, and takes none that are texts
    """A hook in Python, whose work's future is continued."""
    tensor = bucket.buffer() / dist.get_world_size()
    return dist.all_reduce(tensor, async_op=True).get_future().then(lambda future: future.value()[0])


LOOPS: dict[str, Callable[[int], list[Any]]] = {
    "ddp": ddp,
    "ddp with small buckets": functools.partial(ddp, bucket_cap_mb=1e-5, gradient_as_bucket_view=True),
    "ddp with unused parameters": functools.partial(ddp, find_unused_parameters=True),
    "ddp with a hook": functools.partial(ddp, hook=allreduce_hook, bucket_cap_mb=1e-5),
    "fsdp2": fsdp,
    "fsdp2 that keeps its parameters": functools.partial(fsdp, reshard=False),
    "fsdp2 in bf16": functools.partial(fsdp, mixed=True),
}


@functools.cache
def outcome(world: int, backend: str, deliver: str) -> Outcome:
    """All loops in the same processes; the event of a request says of which loop it is."""
    def of(rank: int) -> dict[str, list[Any] | str]:
        import gradledger.process_group as process_group
        out: dict[str, list[Any] | str] = {}
        for process_group.current_event, (name, loop) in enumerate(LOOPS.items()):
            try:
                out[name] = loop(rank)
            except Exception as error:
                out[name] = f"{type(error).__name__}: {error}"
        return out

    return run(world, of, backend, deliver, seed=11)


def same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))


@pytest.mark.parametrize("deliver", ["eager", "late", "seeded"])
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", LOOPS)
def test_trains_as_on_gloo(name: str, world: int, deliver: str) -> None:
    for rank in range(world):
        expected, got = outcome(world, "gloo", "eager").returned[rank][name], outcome(world, "gradledger", deliver).returned[rank][name]
        assert isinstance(expected, list), expected
        assert isinstance(got, list), got
        assert same(expected, got), (rank, expected, got)
        assert all(tensor.abs().max() > 0 for tensor in got[0])


def test_the_collectives_of_ddp_and_fsdp2_are_seen_with_their_sites() -> None:
    coordinator = outcome(2, "gradledger", "eager").coordinator
    assert coordinator is not None
    seen = {name: {m["kind"] for _, m in coordinator.log if m.get("event") == number} for number, name in enumerate(LOOPS)}
    assert {"all_gather", "broadcast", "all_reduce"} <= seen["ddp with small buckets"]
    assert {"all_gather", "reduce_scatter"} <= seen["fsdp2"]
    sites = {m["site"].partition(":")[0] for _, m in coordinator.log if m["type"] == "collective"}
    assert sites == {"test_process_group_torch.py"}


def test_fsdp2_whose_waits_for_all_gathers_are_taken_away_computes_with_poison() -> None:
    def of(rank: int) -> bool:
        gather = LedgerGroup.all_gather_single

        def never_waited_for(self: LedgerGroup, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
            work = gather(self, output, given)  # without options it is asynchronous
            return SimpleNamespace(wait=lambda: True, of=work)

        LedgerGroup.all_gather_single = never_waited_for
        model = Network()
        fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
        return bool(model(inputs(rank, 0, 0), True).isnan())

    assert run(2, of, deliver="late").returned == [True] * 2
    assert run(2, of, deliver="eager").returned == [False] * 2
