"""What an environment without a GPU needs so that DeepSpeed runs in it. Each mend says itself in the recording's `spec.patch`."""
from __future__ import annotations

import sys


def after_import() -> list[str]:
    """DeepSpeed's own gates of the CPU. Nothing that makes, moves or uses a gradient is touched."""
    import torch
    from deepspeed.accelerator import get_accelerator

    backend = sys.modules["deepspeed.comm.torch"]  # the package's attribute of that name is PyTorch itself

    accelerator = type(get_accelerator())
    accelerator.is_fp16_supported = lambda self: True
    accelerator.supported_dtypes = lambda self: [torch.float, torch.half, torch.bfloat16]
    backend.has_coalescing_manager = lambda: False
    backend.build_shm_op = lambda: None
    return ["fp16 is allowed on the CPU accelerator", "collectives are issued one by one, without a coalescing manager",
            "the shared-memory collectives of the CPU are not built",
            "16-bit reductions run in fp32 and round once; reduce and reduce_scatter_tensor add from the owner's neighbour on, as a ring does"]
