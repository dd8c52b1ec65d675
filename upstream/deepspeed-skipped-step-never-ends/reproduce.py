"""ZeRO 2 with CPU offload, fp32 accumulation: after one overflow every later step is skipped."""
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
config = {"train_batch_size": 1, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "fp16": {"enabled": True, "loss_scale": 1},
          "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
for a in [float("inf"), 1.0, 1.0]:  # one micro-batch overflows, the next two are ordinary
    engine.backward(engine(a, 1.0))
    engine.step()
expected, observed = [-2.0, -2.0], net.a.float().tolist()
print("a: expected", expected, "observed", observed, "skipped steps", engine.skipped_steps)
sys.exit(observed != expected)
