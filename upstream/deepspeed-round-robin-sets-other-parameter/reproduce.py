"""round_robin_gradients: safe_set_full_fp32_param of one parameter writes another."""
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
    config = {"train_batch_size": 2, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "bf16": {"enabled": True},
              "zero_optimization": {"stage": 2, "round_robin_gradients": True, "offload_optimizer": {"device": "cpu"}}}
    net.c = torch.nn.Parameter(torch.zeros(2))
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.0), config=config)
    deepspeed.utils.safe_set_full_fp32_param(net.b, torch.full((2,), 5.0))
    engine.backward(engine(1.0, 1.0))
    engine.step()  # lr 0: the weights become what the fp32 masters hold
    seen[rank] = torch.cat([net.a, net.b, net.c]).detach().float()


if __name__ == "__main__":
    seen = torch.zeros(2, 6).share_memory_()
    mp.spawn(run, (seen,), nprocs=2)
    expected = [0.0, 0.0, 5.0, 5.0, 0.0, 0.0]
    print("a, b, c: expected", expected, "observed", seen[0].tolist(), seen[1].tolist())
    sys.exit(seen[0].tolist() != expected)
