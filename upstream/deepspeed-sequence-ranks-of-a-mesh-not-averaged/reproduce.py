"""Ulysses by data_parallel_size and sequence_parallel_size of the configuration: gradients are averaged over data-parallel ranks alone, so that ranks of a sequence part."""
import os, sys, torch
import torch.distributed as dist, torch.multiprocessing as mp
PORT = os.environ.get("MASTER_PORT", "29543")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, by):  # the gradient is the number that the weight is multiplied by
        return (self.weight * by).sum()


def run(rank, seen, stage):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(int(PORT) + stage))
    import deepspeed
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
    net = Net().bfloat16()
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_allow_untested_optimizer": True, "gradient_clipping": 0.0, "zero_optimization": {"stage": stage},
              "data_parallel_size": 2, "sequence_parallel_size": 2}
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config, dist_init_required=False)
    engine.backward(engine(float(2 * rank)))  # parts of the gradients of two sequences: of ranks 0 and 1, of ranks 2 and 3
    engine.step()
    seen[stage, rank] = float(net.weight.detach())


if __name__ == "__main__":
    seen, right = torch.zeros(3, 4).share_memory_(), [-6.0] * 4  # sequences of 0 + 2 and of 4 + 6, averaged; on every rank
    for stage in (0, 1, 2):
        mp.spawn(run, (seen, stage), nprocs=4)
        print(f"stage {stage}: weights expected", right, "observed", seen[stage].tolist())
    sys.exit(any(of.tolist() != right for of in seen))
