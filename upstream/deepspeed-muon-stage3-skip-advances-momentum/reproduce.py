"""ZeRO 3 in bf16 with Muon: a step that is skipped, since a gradient is infinite, leaves the momentum of the other matrices advanced."""
import os, sys, torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2, 2)), torch.nn.Parameter(torch.zeros(2, 2))
        self.a.use_muon = self.b.use_muon = True

    def forward(self, a, b):
        return a * self.a.sum() + b * self.b.sum()


net = Net()
stage = int(os.environ.get("STAGE", "3"))
config = {"train_batch_size": 1, "gradient_clipping": 0.0, "zero_optimization": {"stage": stage, "reduce_scatter": False},
          "optimizer": {"type": "Muon", "params": {"lr": 0.02, "momentum": 0.5}}, "bf16": {"enabled": True}}
engine, *_ = deepspeed.initialize(model=net, model_parameters=list(net.parameters()), config=config)
observed = []
for a, b in ((4.0, 4.0), (4.0, float("inf"))):
    engine.backward(engine(a, b))
    engine.step()
    buffers = [state["momentum_buffer"] for state in engine.optimizer.optimizer.state.values() if "momentum_buffer" in state]
    observed.append(buffers[0].flatten()[0].item())
expected = [2.0, 2.0]
print("skipped steps", engine.skipped_steps)
print("momentum of a: expected", expected, "observed", observed)
sys.exit(observed != expected)
