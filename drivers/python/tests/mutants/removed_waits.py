"""Waits that are taken away from real code, and memory that is let go of too early: each is a race that shows in no value of a run whose operations follow
each other. `--streams virtual` has to name it."""
from __future__ import annotations

from catalogue import COLLECTIVES, GROUP, ZERO3, ZERO12, Mutant

COORDINATOR = "deepspeed.runtime.zero.partitioned_param_coordinator"
PARTITION = "deepspeed.runtime.zero.partition_parameters"
STATE = "torch.distributed.fsdp._fully_shard._fsdp_state"


def zero(name: str, module: str, old: str, new: str, scenario: str) -> Mutant:
    return Mutant(name, "deepspeed", module, old, new, f"streams/{scenario}.json")


def shard(name: str, module: str, old: str, new: str) -> Mutant:
    return Mutant(name, "fsdp2", module, old, new, "streams/fsdp2.json")


REMOVED_WAITS = (
    zero("stage-2-reduces-before-the-bucket-is-filled", ZERO12, "                    stream.wait_stream(producer_stream)\n", "                    pass\n", "stage-2"),
    zero("stage-1-reduces-before-the-bucket-is-filled", ZERO12, "                    stream.wait_stream(producer_stream)\n", "                    pass\n", "stage-1"),
    zero("stage-2-fills-the-bucket-before-it-is-reduced", ZERO12, "                get_accelerator().current_stream().wait_stream(stream)\n        else:\n", "        else:\n", "stage-2"),
    zero("stage-1-steps-before-it-has-reduced", ZERO12, """                get_accelerator().synchronize()
            # It is safe to clear previously reduced grads of other partitions
            self._clear_previous_reduced_grads()

        if self.cpu_offload is False:""", """                pass
            # It is safe to clear previously reduced grads of other partitions
            self._clear_previous_reduced_grads()

        if self.cpu_offload is False:""", "stage-1"),
    zero("stage-2-refills-the-buffer-in-flight", ZERO12, """            if self.contiguous_gradients and self.overlap_comm:
                # Swap index between 0 and 1
                bucket.index = 1 - bucket.index
            self.report_ipg_memory_usage("In ipg_remove_grads after reduce_ipg_grads", param.numel())""",
         """            self.report_ipg_memory_usage("In ipg_remove_grads after reduce_ipg_grads", param.numel())""", "stage-2"),
    # DeepSpeed#7965 taken back.
    zero("stage-2-lets-go-of-gradients", ZERO12, """            allreduced.record_stream(self.reduction_stream)
        synced_tensors = self.unflatten(allreduced, small_bucket)
        if output_bucket is None:
            output_bucket = [None] * len(small_bucket)
        local_rank = dist.get_rank(group=process_group)
        for buf, synced, bucket_rank, output in zip(small_bucket, synced_tensors, bucket_ranks, output_bucket):
            copy_to_local_rank = local_rank in bucket_rank if isinstance(bucket_rank,
                                                                         frozenset) else local_rank == bucket_rank
            if copy_to_local_rank:
                self._add_to_grad_partition_buffer(output, synced)
                buf.copy_(synced)
                if self.overlap_comm and not get_accelerator().resolves_data_dependency():
                    buf.record_stream(self.reduction_stream)
""", """            pass
        synced_tensors = self.unflatten(allreduced, small_bucket)
        if output_bucket is None:
            output_bucket = [None] * len(small_bucket)
        local_rank = dist.get_rank(group=process_group)
        for buf, synced, bucket_rank, output in zip(small_bucket, synced_tensors, bucket_ranks, output_bucket):
            copy_to_local_rank = local_rank in bucket_rank if isinstance(bucket_rank,
                                                                         frozenset) else local_rank == bucket_rank
            if copy_to_local_rank:
                self._add_to_grad_partition_buffer(output, synced)
                buf.copy_(synced)
""", "stage-2"),
    zero("stage-3-reduces-before-gradients-are-there", ZERO3, "            self.reduce_and_partition_stream.wait_stream(get_accelerator().current_stream())\n", "            pass\n", "stage-3"),
    zero("stage-3-steps-before-it-has-reduced", ZERO3, """            self.reduce_and_partition_stream.synchronize()

        for param_id in self.params_already_reduced.keys():
            self.params_already_reduced[param_id] = False

        #in case""", """            pass

        for param_id in self.params_already_reduced.keys():
            self.params_already_reduced[param_id] = False

        #in case""", "stage-3"),
    zero("stage-3-lets-go-of-gradients", ZERO3, "                    param.grad.record_stream(get_accelerator().current_stream())\n                param.grad.data = new_grad_tensor",
         "                    pass\n                param.grad.data = new_grad_tensor", "stage-3"),
    zero("stage-3-computes-before-parameters-are-there", COORDINATOR, "            get_accelerator().current_stream().wait_stream(self.__allgather_stream)\n", "            pass\n", "stage-3"),
    zero("stage-3-lets-go-of-parameters", PARTITION, "            param.data.record_stream(get_accelerator().current_stream())\n", "            pass\n", "stage-3"),
    shard("fsdp2-gathers-before-it-has-copied-in", COLLECTIVES, "    all_gather_stream.wait_stream(all_gather_copy_in_stream)\n", ""),
    shard("fsdp2-copies-out-before-it-has-gathered", COLLECTIVES, "        device_handle.current_stream().wait_event(all_gather_event)\n", "        pass\n"),
    shard("fsdp2-reduces-before-it-has-copied-in", COLLECTIVES, "    reduce_scatter_stream.wait_stream(current_stream)\n", ""),
    shard("fsdp2-gathers-before-the-step-is-over", STATE, "                self._comm_ctx.all_gather_copy_in_stream.wait_stream(current_stream)\n                self._comm_ctx.all_gather_stream.wait_stream(current_stream)\n", ""),
    shard("fsdp2-steps-before-it-has-reduced", GROUP, "        for event in self.comm_ctx._last_post_reduce_events.values():\n            self.device_handle.current_stream().wait_event(event)\n        self.comm_ctx",
          "        self.comm_ctx"),
    shard("fsdp2-lets-go-of-what-it-gathers", GROUP, "                self._wait_all_gather_streams_on_event(prev_all_gather_state.event)\n", ""),
    shard("fsdp2-lets-go-of-what-it-reduces", GROUP, "                ReduceScatterState(reduce_scatter_input, reduce_scatter_event)\n", "                ReduceScatterState(None, None)\n"),
)
