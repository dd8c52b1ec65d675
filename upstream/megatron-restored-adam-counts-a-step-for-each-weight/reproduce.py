"""Megatron-Core's distributed optimizer, restored: where Adam is torch's, each weight counts a step for all, and updates become too large."""
import os, sys, tempfile, torch
import torch.distributed as dist


def make():
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer import TransformerConfig
    options = dict(num_layers=1, hidden_size=1, num_attention_heads=1)
    model = DistributedDataParallel(TransformerConfig(**options), DistributedDataParallelConfig(use_distributed_optimizer=True),
                                    torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(1)) for _ in range(4)))
    return model, get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1.0, use_distributed_optimizer=True, clip_grad=0.0, weight_decay=0.0), [model], use_gloo_process_groups=False)


def step(model, optimizer):
    for weight in model.module:
        weight.main_grad.fill_(1.0)
    optimizer.step()


if __name__ == "__main__":
    from megatron.core import parallel_state
    dist.init_process_group("gloo", init_method=f"file://{os.path.join(tempfile.mkdtemp(), 'meet')}", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    # Only for a CPU: devices have no names there.
    torch.cuda.current_device, torch.Tensor.cuda, of = (lambda: "cpu"), (lambda self, *_: self), torch.Tensor.type
    torch.Tensor.type = lambda self, *a, **k: of(self, *a, **k) if a or k else of(self).replace("torch.", "torch.cuda.", 1)
    for name in ("tensor", "zeros"):
        setattr(torch, name, lambda *a, device=None, given=getattr(torch, name), **k: given(*a, **k))
    model, optimizer = make()
    step(model, optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    step(model, optimizer)
    steps = [int(state["step"]) for state in optimizer.optimizer.state.values()]
    print("steps of four weights after one step, a restore and one step more: expected", [2] * 4, "observed", steps)
    sys.exit(steps != [2] * 4)
