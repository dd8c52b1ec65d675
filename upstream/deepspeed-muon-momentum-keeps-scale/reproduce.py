"""fp16, dynamic loss scale: the momentum of Muon adds up gradients that were multiplied by different scales."""
import os, sys, torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29541"))


class Net(torch.nn.Module):  # a weight's gradient is the number that it is multiplied by
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(2, 2))
        self.a.use_muon = True

    def forward(self, a):
        return a * self.a.sum()


type(deepspeed.get_accelerator()).is_fp16_supported = lambda self: True  # the CPU refuses fp16; the code in question is the same
type(deepspeed.get_accelerator()).supported_dtypes = lambda self: [torch.float, torch.half, torch.bfloat16]
stage = int(os.environ.get("STAGE", "2"))
config = {"train_batch_size": 1, "gradient_clipping": 0.0, "zero_optimization": {"stage": stage, "reduce_scatter": False},
          "optimizer": {"type": "Muon", "params": {"lr": 0.02, "momentum": 0.5}},
          "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 3, "loss_scale_window": 2}}
net = Net()
engine, *_ = deepspeed.initialize(model=net, model_parameters=list(net.parameters()), config=config)
gradients, scales, expected, observed, due = [4.0, 4.0, 4.0, 4.0], [], [], [], 0.0
for gradient in gradients:
    scales.append(engine.optimizer.loss_scale)
    engine.backward(engine(gradient))
    engine.step()
    due = 0.5 * due + 0.5 * gradient
    expected.append(due)
    buffers = [state["momentum_buffer"] for state in engine.optimizer.optimizer.state.values() if "momentum_buffer" in state]
    observed.append(buffers[0].flatten()[0].item() / scales[-1])
print("loss scales", scales)
print("momentum over the loss scale: expected", expected, "observed", observed)
sys.exit(observed != expected)
