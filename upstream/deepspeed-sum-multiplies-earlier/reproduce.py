"""gradient_allreduce_op sum at stage 0: two backwards before a step multiply the first one's gradient by the world size."""
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
    config = {"train_batch_size": 2, "gradient_clipping": 0.0, "gradient_allreduce_op": "sum", "zero_optimization": {"stage": 0}}
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
    engine.backward(engine(1.0, 0.0))
    engine.backward(engine(10.0, 0.0))
    engine.step()
    seen[rank] = net.a.detach()


if __name__ == "__main__":
    seen = torch.zeros(2, 2).share_memory_()
    mp.spawn(run, (seen,), nprocs=2)
    expected = torch.full((2,), -22.0)
    print("a: expected", expected.tolist(), "observed", seen[0].tolist())
    sys.exit(not torch.equal(seen[0], expected))
