"""scale_wrt_gas=False at stage 0: a loss that the model returns is divided by gradient_accumulation_steps all the same."""
import os, sys, torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


net = Net()
config = {"train_batch_size": 4, "gradient_accumulation_steps": 4, "gradient_clipping": 0.0, "managed_gradient_accumulation": False, "zero_optimization": {"stage": 0}}
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
for _ in range(2):
    engine.backward(engine(2.0), scale_wrt_gas=False)
engine.step()
expected, observed = [-4.0, -4.0], net.a.tolist()
print("a: expected", expected, "observed", observed)
sys.exit(observed != expected)
