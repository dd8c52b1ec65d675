"""BF16_Optimizer: the gradient of a graph that is run backward twice is counted three times."""
import os, sys, torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


net = Net()
config = {"train_batch_size": 1, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "bf16": {"enabled": True}, "managed_gradient_accumulation": False,
          "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1}}
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
loss = engine(4.0, 4.0)
engine.backward(loss, retain_graph=True)
engine.backward(loss)
engine.step()
expected, observed = [-8.0, -8.0], net.a.float().tolist()
print("a: expected", expected, "observed", observed)
sys.exit(observed != expected)
