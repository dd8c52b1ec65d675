"""FP16_UnfusedOptimizer with an mpu: of a parameter that tensor-parallel ranks have cut, the first rank's part alone is in the norm."""
import os, sys, torch
import torch.distributed as dist, torch.multiprocessing as mp
PORT = os.environ.get("MASTER_PORT", "29541")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.column = torch.nn.Parameter(torch.zeros(1))
        self.column.tensor_model_parallel = True  # as Megatron marks what it cut

    def forward(self, by):  # the gradient is the number that the weight is multiplied by
        return (self.column * by).sum()


def run(rank, seen):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=PORT)
    import deepspeed
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
    tensor, data = rank % 2, rank // 2
    model_groups, data_groups = [dist.new_group(r) for r in ([0, 1], [2, 3])], [dist.new_group(r) for r in ([0, 2], [1, 3])]
    mpu = type("Mpu", (), {f"get_{kind}_parallel_{what}": staticmethod(lambda answer=answer: answer) for kind, answers in (
        ("model", {"rank": tensor, "world_size": 2, "group": model_groups[data]}), ("data", {"rank": data, "world_size": 2, "group": data_groups[tensor]}))
        for what, answer in answers.items()})
    net = Net().bfloat16()
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "gradient_clipping": 1.0, "zero_optimization": {"stage": 0}}
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config, mpu=mpu, dist_init_required=False)
    engine.backward(engine((3.0, 4.0)[tensor]))  # parts 3 and 4 of one gradient, whose norm is 5
    engine.step()
    seen[rank] = float(engine.get_global_grad_norm())

if __name__ == "__main__":
    seen = torch.zeros(4).share_memory_()
    mp.spawn(run, (seen,), nprocs=4)
    print("norm: expected", [5.0] * 4, "observed", seen.tolist())
    sys.exit(seen.tolist() != [5.0] * 4)
