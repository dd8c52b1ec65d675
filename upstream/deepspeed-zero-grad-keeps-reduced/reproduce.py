"""ZeRO 2: engine.zero_grad() in a window keeps what was already reduced."""
import os, sys, torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


net = Net()
config = {"train_batch_size": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": 2}}
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
engine.backward(engine(100.0))
engine.step()
engine.zero_grad()
engine.backward(engine(4.0))
engine.step()
expected, observed = [-2.0, -2.0], net.a.tolist()
print("a: expected", expected, "observed", observed)
sys.exit(observed != expected)
