"""fp16, dynamic loss scale: the step at which the scale doubles divides its gradients by the new scale."""
import os, sys, torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


type(deepspeed.get_accelerator()).is_fp16_supported = lambda self: True  # the CPU refuses fp16; the code in question is the same
type(deepspeed.get_accelerator()).supported_dtypes = lambda self: [torch.float, torch.half, torch.bfloat16]
net = Net()
config = {"train_batch_size": 1, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": 2},
          "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 3, "loss_scale_window": 2}}
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
observed = []
for _ in range(4):
    before = net.a[0].item()
    engine.backward(engine(4.0, 8.0))
    engine.step()
    observed.append(before - net.a[0].item())
expected = [4.0] * 4
print("update of a: expected", expected, "observed", observed)
sys.exit(observed != expected)
