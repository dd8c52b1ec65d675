"""ZeRO 2 with CPU offload: a parameter that the window's last micro-batch does not use loses what it accumulated."""
import os, sys, torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


net = Net()
config = {"train_batch_size": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
          "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
engine.backward(engine(4.0, 8.0))
engine.step()
engine.backward(engine(4.0))  # b is not used here
engine.step()
expected, observed = [-4.0, -4.0], net.b.tolist()  # (8 + 0) / 2
print("b: expected", expected, "observed", observed)
sys.exit(observed != expected)
