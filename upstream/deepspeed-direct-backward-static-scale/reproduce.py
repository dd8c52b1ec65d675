"""fp16 with a static loss scale: loss.backward() is not refused, and its step divides by a scale that was never applied."""
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
config = {"train_batch_size": 1, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "fp16": {"enabled": True, "loss_scale": 8}, "zero_optimization": {"stage": 2}}
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
try:
    engine(4.0, 8.0).backward()  # without engine.scale()
except RuntimeError as error:
    print("expected a RuntimeError, observed", error)
    sys.exit(0)
engine.step()
print("expected a RuntimeError, or a of", [-4.0, -4.0], "observed", net.a.float().tolist())
sys.exit(1)
