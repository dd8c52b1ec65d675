"""engine.scale(loss).backward() on an engine that returns loss and logits: the gradient is divided by gradient_accumulation_steps twice."""
import os, sys, torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, a, b=None):
        return a * self.a.sum() if b is None else a * self.a.sum() + b * self.b.sum()


class WithLogits(Net):
    def forward(self, a):
        logits = super().forward(a)
        return {"loss": 3 * logits, "logits": logits}


net = WithLogits()
config = {"train_batch_size": 4, "gradient_accumulation_steps": 4, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": 2}}
engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config=config)
for _ in range(4):
    engine.scale(engine(4.0)["loss"]).backward()
    engine.step()
expected, observed = [-12.0, -12.0], net.a.tolist()  # the mean of four times 3 x 4
print("a: expected", expected, "observed", observed)
sys.exit(observed != expected)
