"""Faults of real code: each is a text of one module of DeepSpeed 0.19.8 or PyTorch 2.13, what stands in its place, and a scenario that is clean without it."""
from __future__ import annotations

from dataclasses import dataclass

ZERO12 = "deepspeed.runtime.zero.stage_1_and_2"
ZERO3 = "deepspeed.runtime.zero.stage3"
ENGINE = "deepspeed.runtime.engine"
COALESCED = "deepspeed.runtime.comm.coalesced_collectives"
GROUP = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
PARAM = "torch.distributed.fsdp._fully_shard._fsdp_param"
COLLECTIVES = "torch.distributed.fsdp._fully_shard._fsdp_collectives"


@dataclass(frozen=True)
class Mutant:
    name: str
    driver: str
    module: str
    old: str
    new: str
    scenario: str  # below drivers/scenarios


def zero(name: str, module: str, old: str, new: str, scenario: str) -> Mutant:
    return Mutant(name, "deepspeed", module, old, new, f"deepspeed/{scenario}.json")


def shard(name: str, module: str, old: str, new: str, scenario: str) -> Mutant:
    return Mutant(name, "fsdp2", module, old, new, f"fsdp2/{scenario}.json")


MUTANTS = (
    # DeepSpeed#7981 taken back: with one step of accumulation configured, the host's accumulator is not used.
    zero("offload-ignores-windows-by-hand", ZERO12, "if self.micro_step_id > 0 or not self.is_gradient_accumulation_boundary():\n                self.async_accumulate",
         "if self.gradient_accumulation_steps > 1:\n                self.async_accumulate", "stage-2-offload-by-hand"),
    zero("offload-never-adds", ZERO12, "        if self.micro_step_id > 0:\n            accumulate_gradients()\n", "        pass\n", "stage-2-offload-by-hand"),
    zero("offload-adds-to-the-last-window", ZERO12, "        if self.micro_step_id > 0:\n            accumulate_gradients()\n", "        accumulate_gradients()\n",
         "stage-2-offload-by-hand"),
    zero("step-counter-not-reset", ZERO12, "        self.micro_step_id = INITIAL_MICRO_STEP_ID\n        self._wait_for_offload_copies()\n", "        self._wait_for_offload_copies()\n",
         "stage-2-offload-by-hand"),
    zero("stages-1-and-2-sum-over-ranks", ZERO12, "                tensor.div_(dist.get_world_size(group=self.dp_process_group) / float(self.sequence_parallel_size))\n", "                pass\n", "stage-1-managed"),
    zero("stage-2-adds-no-backward-after-the-first", ZERO12, "                        accumulated_grad.add_(new_avg_grad)\n", "                        pass\n", "stage-2-managed"),
    zero("stage-3-sums-over-ranks", COALESCED, "    tensor_partition_flat_buffer.div_(world_sz)  # pre-divide\n", "", "stage-3-managed"),
    zero("stage-3-overwrites", ZERO3, "            if self.micro_step_id == 0:  # don't accumulate", "            if True:", "stage-3-managed"),
    zero("stage-3-never-clears", ZERO3, "            if self.micro_step_id == 0:  # don't accumulate", "            if False:", "stage-3-managed"),
    zero("stage-3-counts-no-backwards", ZERO3, "        if self._epilogue_ran_this_backward:\n            self.micro_step_id += 1\n", "        pass\n", "stage-3-managed"),
    zero("boundary-a-micro-batch-early", ENGINE, "return (self.micro_steps + 1) % self.gradient_accumulation_steps() == 0", "return (self.micro_steps + 2) % self.gradient_accumulation_steps() == 0",
         "stage-0-managed"),
    zero("boundary-inverted", ENGINE, "        else:\n            return self._is_gradient_accumulation_boundary\n", "        else:\n            return not self._is_gradient_accumulation_boundary\n",
         "stage-2-offload-by-hand"),
    zero("stage-0-private-to-its-rank", ENGINE, "            dist.all_reduce(tensor_to_allreduce, group=dp_group)\n            if self.gradient_predivide_factor() != dp_world_size:",
         "            if self.gradient_predivide_factor() != dp_world_size:", "stage-0-managed"),
    zero("stage-0-divisor-dropped", ENGINE, "                tensor_to_allreduce.mul_(self.gradient_predivide_factor() / dp_world_size)\n", "                pass\n", "stage-0-managed"),
    shard("fsdp2-loses-what-no-sync-kept", PARAM, "            self.unsharded_accumulated_grad += self.unsharded_param.grad\n", "            self.unsharded_accumulated_grad = self.unsharded_param.grad\n",
          "bf16-accumulates-in-no-sync"),
    shard("fsdp2-keeps-what-was-reduced", GROUP, "                    unsharded_grads.append(fsdp_param.unsharded_accumulated_grad_data)\n                    fsdp_param.unsharded_accumulated_grad = None\n",
          "                    unsharded_grads.append(fsdp_param.unsharded_accumulated_grad_data)\n", "bf16-accumulates-in-no-sync"),
    shard("fsdp2-counts-autograds-twice", GROUP, "                    unsharded_grads.append(fsdp_param.unsharded_grad_data)\n                    fsdp_param.unsharded_param.grad = None\n",
          "                    unsharded_grads.append(fsdp_param.unsharded_grad_data)\n", "reduces-every-backward"),
    shard("fsdp2-reduces-in-no-sync-alone", GROUP, "            if not self.reduce_grads:\n                if self.reshard_after_backward:", "            if self.reduce_grads:\n                if self.reshard_after_backward:",
          "accumulates-in-no-sync"),
    shard("fsdp2-no-mean", COLLECTIVES, "                op=reduce_scatter_op,\n            )\n        else:", "                op=dist.ReduceOp.SUM,\n            )\n        else:", "reduces-every-backward"),
    shard("fsdp2-reduces-nothing", COLLECTIVES, "            reduce_scatter_comm(\n                output_tensor=reduce_output,", "            (lambda **_: reduce_output.copy_(reduce_scatter_input[: reduce_output.numel()]))(\n                output_tensor=reduce_output,",
          "reduces-every-backward"),
)
