"""ZeRO 3 without reduce_scatter: gradient_predivide_factor equal to the world size divides twice."""
import os, sys, torch, deepspeed
import torch.multiprocessing as mp


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


def run(rank, seen):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))
    net = Net()
    config = {"train_batch_size": 2, "gradient_clipping": 0.0, "gradient_predivide_factor": 2.0, "zero_allow_untested_optimizer": True,
              "zero_optimization": {"stage": 3, "reduce_scatter": False}}
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
    engine.backward(engine(4.0, 4.0))
    engine.step()
    seen[rank] = deepspeed.utils.safe_get_full_fp32_param(net.a)


if __name__ == "__main__":
    seen = torch.zeros(2, 2).share_memory_()
    mp.spawn(run, (seen,), nprocs=2)
    expected = torch.full((2,), -4.0)
    print("a: expected", expected.tolist(), "observed", seen[0].tolist())
    sys.exit(not torch.equal(seen[0], expected))
