"""PyTorch's FullyShardedDataParallel (FSDP1): parameters of a module are joined to a flat one, which is cut in equal parts."""
from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, Iterable, Mapping, Sequence

import torch
from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from ..driver import Buffer, Configuration, Piece, Refused
from ..meshes import meshes_of
from ..model import Graph, Layer
from ..optimizers import Applied
from ..torch_loop import TorchLoop
from .fsdp2 import WRAPS, mixed_precision
from .fsdp2_model import OfTheRoot, ShardedModel, Unit

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
PREFETCHES = ("BACKWARD_PRE", "BACKWARD_POST", "none")
KEEP = "keep_low_precision_grads"


class FlatModel(ShardedModel):
    """What the wrapper replaces stands where it was: modules are called as they are found there."""

    def forward(self, graph: Graph, start: torch.Tensor | None = None) -> torch.Tensor:
        """Where no module is used nothing of the wrapper's is in the backward."""
        if graph.phases > 1:
            raise Refused("phases of a backward; expected 1")
        return self.run(graph, start)

    def wrapped(self) -> FlatModel:
        self.called = list(self.units if self.config.get("units") is not None else self.layers)
        return self


def stand_in_for_a_bus() -> None:
    """Without a device nothing can be pinned, and no stream of one is waited for."""
    torch.Tensor.pin_memory = lambda tensor, *_, **__: tensor
    torch.cpu.Stream.synchronize = lambda stream: None


class Fsdp1(TorchLoop):
    """Whether a backward is reduced is decided while it runs. A flat gradient is the rank's own while it is whole, and reduced where it is a shard."""

    name = "fsdp1"
    frameworks = ("fsdp1",)
    preload = ("torch._dynamo", "torch.distributed.fsdp._flat_param")
    config_keys = frozenset({"sharding_strategy", "use_orig_params", "mixed_precision", "wrap", "backward_prefetch", "forward_prefetch", "limit_all_gathers", "plain_grad_scaler",
                             "units", "mesh", "offload", "computes_on_cpu", "calls_unused_units"})
    scaler_class = ShardedGradScaler

    def check(self, configuration: Configuration) -> None:
        super().check(configuration)
        for key, known in (("wrap", WRAPS), ("sharding_strategy", STRATEGIES), ("backward_prefetch", PREFETCHES)):
            if configuration.config.get(key, known[0]) not in known:
                raise Refused(f"engine.config.{key} is {configuration.config[key]!r}; expected one of {', '.join(known)}")
        if any(parameter.tied_to is not None for parameter in configuration.parameters) and configuration.config.get("wrap", "layers") != "root":
            raise Refused("tied parameters have to be in one flat parameter; expected wrap to be 'root'")
        if configuration.config.get("units") is not None and "wrap" in configuration.config:
            raise Refused("engine.config.units beside wrap; expected one of the two")
        if configuration.config.get("offload") and (self.device.type == "cpu") != bool(configuration.config.get("computes_on_cpu")):
            where = "goes over the bus of a device; expected computes_on_cpu beside it" if self.device.type == "cpu" else "with computes_on_cpu; expected ranks on a CPU"
            raise Refused(f"engine.config.offload {where}")
        self.precision(configuration)

    def make_model(self) -> FlatModel:
        mesh = self.configuration.config.get("mesh")
        self.mesh = meshes_of(self.groups, self.device.type, mesh).data if mesh else None
        return FlatModel(self.configuration, self.device)

    def loss(self, graph: Graph) -> torch.Tensor:
        loss = self.module(graph)
        return loss if loss.requires_grad else graph.begin

    def precision(self, configuration: Configuration) -> dict[str, Any]:
        """What of MixedPrecision differs from its defaults."""
        given = dict(configuration.config.get("mixed_precision") or {})
        kept = {KEEP: True} if given.pop(KEEP, False) else {}
        known = {**configuration.engine, "config": {**configuration.config, "mixed_precision": given}}
        return mixed_precision(replace(configuration, engine=known)) | kept

    def make_scaler(self) -> torch.amp.GradScaler | None:
        self.scaler_class = torch.amp.GradScaler if self.configuration.config.get("plain_grad_scaler", False) else ShardedGradScaler
        return super().make_scaler()

    def wrap(self, model: FlatModel) -> FullyShardedDataParallel:
        config = self.configuration.config
        arguments: dict[str, Any] = {"sharding_strategy": ShardingStrategy[config.get("sharding_strategy", "FULL_SHARD")], "device_id": self.device,
                                     "use_orig_params": config.get("use_orig_params", False)}
        arguments |= {key: config[key] for key in ("forward_prefetch", "limit_all_gathers") if key in config}
        if "backward_prefetch" in config:
            arguments["backward_prefetch"] = None if config["backward_prefetch"] == "none" else BackwardPrefetch[config["backward_prefetch"]]
        if precision := self.precision(self.configuration):
            arguments["mixed_precision"] = MixedPrecision(**precision, cast_forward_inputs=False, cast_root_forward_inputs=False)
        if config.get("wrap", "layers") == "layers":
            arguments["auto_wrap_policy"] = ModuleWrapPolicy({Layer if config.get("units") is None else Unit})
        if config.get("offload"):
            if self.device.type == "cpu":
                stand_in_for_a_bus()
            arguments["cpu_offload"] = CPUOffload(offload_params=True)
        self.layers = list(model.layers)
        self.original = {(id(model), layer.name) if isinstance(layer, OfTheRoot) else (id(layer), "weight"): p for p, layer in enumerate(self.layers)}
        out = FullyShardedDataParallel(model, device_mesh=self.mesh, **arguments)
        model.wrapped()
        self.reduced: dict[Any, torch.Tensor] = {}  # the gradients that a backward left at its end, where they cannot be told by their size
        self.flat = {handle: self.layout(handle) for module in FullyShardedDataParallel.fsdp_modules(out) if (handle := module._handle) is not None}
        for handle in self.flat:
            self.note_reductions(handle)
        return out

    def note_reductions(self, handle: Any) -> None:
        """At the end of a backward a shard becomes the gradient of its flat parameter. One of one element is as large as the flat one."""
        prepare, flat = handle.prepare_gradient_for_optim, handle.flat_param

        def prepare_and_note() -> None:
            put_aside = [getattr(flat, name, None) for name in ("_saved_grad_shard", "_cpu_grad")]
            prepare()
            if flat.grad is not None and any(flat.grad is each for each in put_aside):
                self.reduced[handle] = flat.grad
        handle.prepare_gradient_for_optim = prepare_and_note

    def layout(self, handle: Any) -> list[Piece]:
        """Pieces of the whole flat parameter, with what fills it up to equal shards."""
        flat, out = handle.flat_param, []
        own = iter(zip(flat._param_infos, flat._numels))
        for numel, padding in zip(flat._numels_with_padding, flat._is_padding_mask):
            if padding:
                out.append((-1, 0, numel))
            else:
                info, numel = next(own)
                out.append((self.original[id(info.module), info.param_name], 0, numel))
        rest = flat._sharded_size.numel() * self.shards(handle) - sum(piece[2] for piece in out)
        return out + ([(-1, 0, rest)] if rest else [])

    def shards(self, handle: Any) -> int:
        return handle.world_size if handle.uses_sharded_strategy else 1

    def shard(self, handle: Any) -> list[Piece]:
        numel = handle.flat_param._sharded_size.numel()
        return cut(self.flat[handle], handle.rank * numel if self.shards(handle) > 1 else 0, numel)

    def trained(self) -> Mapping[int, torch.Tensor]:
        if self.configuration.config.get("use_orig_params", False):
            of = {p: self.layers[p].weight for p in self.configuration.trainable}
        else:
            of = {p: handle.flat_param for handle, pieces in self.flat.items() for p, _, _ in pieces if p in self.configuration.trainable}
        place = {parameter: number for number, parameter in enumerate(self.module.parameters())}  # as a loop gives them to its optimizer
        return dict(sorted(of.items(), key=lambda item: place[item[1]]))

    def name_trained(self, trained: Mapping[int, torch.Tensor]) -> None:
        for number, handle in enumerate(self.flat):
            shard = self.shard(handle)
            self.pieces_of[handle.flat_param], self.names[handle.flat_param] = shard, f"flat{number}"
            if self.configuration.config.get("use_orig_params", False):
                self.names.pop(handle.flat_param)
                for p, offset, numel in self.flat[handle]:
                    if p in trained:
                        self.names[trained[p]] = self.configuration.parameters[p].name
                        self.pieces_of[trained[p]] = [piece for piece in shard if piece[0] == p]

    def make_applied(self) -> Applied:
        return Applied(self.optimizer, self.stepped, lambda: self.gradient_scale)

    def stepped(self, weights: torch.Tensor) -> Sequence[Piece]:
        """What a step changes: all of a flat parameter that a backward has gathered and, as it raised, not let go of."""
        pieces, handle = self.pieces(weights), self.gathered(weights)
        return pieces if handle is None or weights is not handle.flat_param else cut(self.flat[handle], 0, weights.numel())

    def gathered(self, weights: torch.Tensor) -> Any | None:
        """The handle of a parameter that is no part of the rank's own shard. One that a module has replaced is nobody's."""
        for handle in self.flat:
            if weights is handle.flat_param or any(weights is of for of in handle.flat_param._params or ()):
                shard = getattr(handle.flat_param, "_local_shard", weights)
                return handle if self.shards(handle) > 1 and weights.untyped_storage().data_ptr() != shard.untyped_storage().data_ptr() else None
        return None

    def held(self, weights: torch.Tensor) -> torch.Tensor:
        """A backward that raised has not let go of the weights that were gathered for it. The next forward gathers the shards anew, and frees what it gathered: that
        has to stay the wrapper's own, even where it is as large as a shard."""
        handle = self.gathered(weights)
        if handle is None:
            return weights
        pieces = list(self.pieces(weights))
        in_front = itertools.takewhile(lambda piece: piece not in pieces, self.shard(handle))  # of what the shard has before these
        begin = sum(size for _, _, size in in_front) if pieces else 0
        return handle.flat_param._local_shard.detach()[begin:begin + sum(size for _, _, size in pieces)]

    def enter_no_sync(self) -> None:
        self.enter_block(self.module.no_sync())

    def exit_no_sync(self, raising: bool = False) -> None:
        self.exit_block(raising)

    def model_state(self) -> list[torch.Tensor]:
        """The shards themselves, which every form of its state_dict is made of."""
        return [getattr(handle.flat_param, "_local_shard", handle.flat_param).detach() for handle in self.flat]

    def load_model_state(self, state: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for handle, shard in zip(self.flat, state):
                handle.flat_param.copy_(shard)

    def clip(self, max_norm: float, group: str) -> torch.Tensor:
        """The wrapper's own takes the norm over all ranks, torch's function that of the shards of one."""
        if self.groups.size(group) == self.world_size:
            return self.module.clip_grad_norm_(max_norm)
        return super().clip(max_norm, group)

    def accumulated(self) -> Iterable[Buffer]:
        for number, handle in enumerate(self.flat):
            flat = handle.flat_param
            for name, gradient in (("grad", self.flat_gradient(handle)), ("_saved_grad_shard", getattr(flat, "_saved_grad_shard", None))):
                if gradient is None:
                    continue
                if self.shards(handle) == 1:
                    role, pieces = "replicated", self.flat[handle]
                elif name == "grad" and self.is_whole(handle, gradient):
                    role, pieces = "local", self.flat[handle]
                else:
                    role, pieces = "reduced", self.shard(handle)
                scale = self.backward_scale if role == "local" else self.gradient_scale
                space = "host" if gradient.device != self.device else "device"
                yield Buffer(f"flat{number}.{name}", role, gradient, cut(pieces, 0, gradient.numel()), space, scale=scale)

    def is_whole(self, handle: Any, gradient: torch.Tensor) -> bool:
        flat = handle.flat_param
        if flat._unpadded_unsharded_size == flat._sharded_size:
            return gradient is not self.reduced.get(handle)
        return gradient.numel() != flat._sharded_size.numel()

    def flat_gradient(self, handle: Any) -> torch.Tensor | None:
        """With use_orig_params a zero_grad takes the views alone; what they were views of is dropped at the next forward."""
        if self.configuration.config.get("use_orig_params", False) and all(original.grad is None for original in handle.flat_param._params):
            return None
        return handle.flat_param.grad


def cut(pieces: Iterable[Piece], begin: int, numel: int) -> list[Piece]:
    """The part of a buffer from `begin` on."""
    out, at, end = [], 0, begin + numel
    for p, offset, size in pieces:
        first, last = max(at, begin), min(at + size, end)
        if first < last:
            out.append((p, offset + first - at if p >= 0 else 0, last - first))
        at += size
    return out
