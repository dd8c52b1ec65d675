"""ZeRO 3: a parameter that no micro-batch of a window uses gets the last window's gradient again."""
import os, sys, torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


from deepspeed.utils import safe_get_full_fp32_param
net = Net()
config = {"train_batch_size": 1, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": 3}}
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
engine.backward(engine(4.0, 8.0))
engine.step()
engine.backward(engine(4.0))  # b is not used in this step
engine.step()
expected, observed = [-8.0, -8.0], safe_get_full_fp32_param(net.b).tolist()
print("b: expected", expected, "observed", observed)
sys.exit(observed != expected)
