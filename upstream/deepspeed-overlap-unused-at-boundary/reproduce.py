"""ZeRO 1 with overlap_comm: a parameter that the window's last micro-batch does not use is never averaged over the ranks."""
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
    config = {"train_batch_size": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True,
              "zero_optimization": {"stage": 1, "overlap_comm": True}}
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
    engine.backward(engine(4.0, [4.0, 12.0][rank]))  # b: 4 on rank 0, 12 on rank 1
    engine.step()
    engine.backward(engine(4.0))  # b is not used here
    engine.step()
    seen[rank] = net.b.detach()


if __name__ == "__main__":
    seen = torch.zeros(2, 2).share_memory_()
    mp.spawn(run, (seen,), nprocs=2)
    expected = torch.full((2,), -4.0)  # the mean of 4 and 12 over ranks, over two micro-batches
    print("b on rank 0: expected", expected.tolist(), "observed", seen[0].tolist())
    sys.exit(not torch.equal(seen[0], expected))
