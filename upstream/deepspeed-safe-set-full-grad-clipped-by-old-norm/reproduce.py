"""safe_set_full_grad with CPU offload: clipping goes by the norm of the gradient that was replaced."""
import os, sys, torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


from deepspeed.utils import safe_set_full_grad
net = Net()
config = {"train_batch_size": 1, "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
          "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
engine.backward(engine(300.0, 300.0))
for parameter in net.parameters():
    safe_set_full_grad(parameter, torch.full((2,), 0.25))  # norm 0.5, below gradient_clipping
engine.step()
expected, observed = [-0.25, -0.25], net.a.tolist()
print("a: expected", expected, "observed", observed)
sys.exit(observed != expected)
