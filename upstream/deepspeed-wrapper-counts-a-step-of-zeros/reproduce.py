"""bf16 at stage 0: Adam's first step is corrected as a second one."""
import os, sys, torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


net = Net()
config = {"train_batch_size": 1, "gradient_clipping": 0.0, "bf16": {"enabled": True}, "zero_optimization": {"stage": 0}}
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.Adam(net.parameters(), lr=1.0), config=config)
engine.backward(engine(4.0, 4.0))
engine.step()
expected, observed = -1.0, round(net.a[0].item(), 3)  # Adam's first step is lr
count = [int(state["step"]) for state in engine.optimizer.optimizer.state.values()]
print("a: expected", expected, "observed", observed, "steps that Adam counts", count)
sys.exit(abs(observed - expected) > 0.01)
