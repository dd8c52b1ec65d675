"""DDP: with fp16_compress_wrapper a rank that does not use a parameter gets a gradient of 16 bits, and clips by another norm."""
import os, sys, tempfile, torch
import torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_wrapper
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(5)), torch.nn.Parameter(torch.zeros(5))

    def forward(self, uses_b):
        return 0.3 * self.a.sum() + (0.7 * self.b.sum() if uses_b else 0)


def run(rank, meet, seen):
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    ddp = DDP(Net(), find_unused_parameters=True)
    ddp.register_comm_hook(dist.group.WORLD, fp16_compress_wrapper(allreduce_hook))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)
    ddp(rank == 0).backward()
    torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.01)
    optimizer.step()
    seen[rank] = ddp.module.b.detach()
    print(f"rank {rank}: gradient of b in {ddp.module.b.grad.dtype}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    seen = torch.zeros(2, 5).share_memory_()
    mp.spawn(run, (os.path.join(tempfile.mkdtemp(), "meet"), seen), nprocs=2)
    same = torch.equal(seen[0], seen[1])
    print("b the same on ranks 0 and 1: expected True observed", same, "at", seen[0, 0].item(), "and", seen[1, 0].item())
    sys.exit(not same)
