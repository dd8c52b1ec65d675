"""Megatron-Core 1F1B: with align_grad_reduce and several optimizer instances all stages but the first reduce their gradients twice."""
import contextlib, os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp


class Stage(torch.nn.Module):  # each micro-batch has a gradient of 1, and the schedule divides by how many there are
    share_embeddings_and_output_weights, pre_process, model_type = False, True, None
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1))
    def forward(self, _):
        return (self.w.sum() + (0 if self.before is None else self.before.sum())).view(1, 1, 1)

    def set_input_tensor(self, tensors):
        self.before = tensors[0] if isinstance(tensors, list) else tensors


def run(rank, meet, seen):
    from megatron.core import parallel_state, pipeline_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.transformer import TransformerConfig
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=8)
    parallel_state.initialize_model_parallel(pipeline_model_parallel_size=2, num_distributed_optimizer_instances=2)
    # Only for a CPU: devices and streams have no names there, and work is done in the order of its calls.
    torch.cuda.current_device, torch.cuda.stream, torch.cuda.Stream = lambda: "cpu", lambda _: contextlib.nullcontext(), lambda **_: type("Stream", (), {"wait_stream": lambda *_: None})()
    zeros, torch.cuda.default_stream, torch.cuda.current_stream, torch.Tensor.cuda = torch.zeros, torch.cuda.Stream, torch.cuda.Stream, lambda self, *_: self
    torch.zeros = lambda *shape, device=None, **options: zeros(*shape, **options)
    config = TransformerConfig(num_layers=2, hidden_size=1, num_attention_heads=1, pipeline_model_parallel_size=2, pipeline_dtype=torch.float32, batch_p2p_comm=False)
    ddp = DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=True, use_distributed_optimizer=True, num_distributed_optimizer_instances=2), Stage())
    config.no_sync_func, config.grad_sync_func, config.finalize_model_grads_func = ddp.no_sync, ddp.start_grad_sync, finalize_model_grads  # as Megatron-LM with align_grad_reduce
    pipeline_parallel.get_forward_backward_func()(forward_step_func=lambda data, model: (model(next(data)), lambda out: (out, {})), data_iterator=iter([0, 0]), model=ddp,
                                                  num_microbatches=2, seq_length=1, micro_batch_size=1, forward_only=False)
    seen[rank] = ddp.module.w.main_grad[0]

if __name__ == "__main__":
    seen = torch.zeros(8).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=8)
    owners = [0, 2, 4, 6]  # each of the two instances has the gradient of a stage on its first rank
    print("gradient on ranks 0 and 2 of the first stage, 4 and 6 of the second: expected", [1.0] * 4, "observed", seen[owners].tolist())
    sys.exit(seen[owners].tolist() != [1.0] * 4)
