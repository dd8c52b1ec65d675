"""Ulysses, ZeRO 1 to 3 without reduce_scatter: a gradient_predivide_factor equal to the number of ranks is not multiplied back."""
import os, sys, torch
import torch.multiprocessing as mp
PORT = os.environ.get("MASTER_PORT", "29544")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))

    def forward(self, by):  # the gradient is the number that the weight is multiplied by
        return (self.weight * by).sum()


def run(rank, seen, stage):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(int(PORT) + stage))
    import deepspeed
    from deepspeed.runtime.sequence_parallel import parallel_state_sp as mpu
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
    mpu.initialize_sequence_parallel(2)
    net = Net()
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, "gradient_predivide_factor": 2.0, "zero_allow_untested_optimizer": True,
              "zero_optimization": {"stage": stage, "reduce_scatter": False}}
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config, mpu=mpu, dist_init_required=False)
    engine.backward(engine(float(2 + 2 * rank)))  # the parts of one sequence's gradient: 2 and 4
    engine.step()
    seen[stage, rank] = deepspeed.utils.safe_get_full_fp32_param(net.weight)[0]
    deepspeed.comm.barrier()  # nobody leaves while the other may still be at a collective
    deepspeed.comm.destroy_process_group()


if __name__ == "__main__":
    seen, right = torch.zeros(4, 2).share_memory_(), [-6.0] * 2
    for stage in (1, 2, 3):
        mp.spawn(run, (seen, stage), nprocs=2)
        print(f"stage {stage}: weights expected", right, "observed", seen[stage].tolist())
    sys.exit(any(of.tolist() != right for of in seen[1:]))
