"""Where in a framework's source a collective was called: cheap enough to be asked of every call."""
from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

# Files between a framework's decision to communicate and the process group: they are the same for all calls and tell nothing.
PACKAGES = ("torch", "gradledger")
WRAPPERS = ("deepspeed/comm/", "deepspeed/utils/", "contextlib.py", "functools.py", "threading.py", "typing_extensions.py")
PLUMBING = ("torch/distributed/distributed_c10d.py", "torch/distributed/c10d_logger.py", "torch/distributed/_functional_collectives.py", "torch/utils/",
            "torch/_ops.py", "torch/_tensor.py", "torch/autograd/", "torch/nn/modules/", "torch/_library/", "torch/_compile.py", "torch/_dynamo/",
            "torch/_jit_internal.py")

_known: dict[CodeType, tuple[str, bool, bool]] = {}


def call_site() -> str:
    """The nearest frame outside of torch and of gradledger. Where there is none, as a driver runs torch's own DDP or FSDP: the nearest that is no plumbing."""
    of_torch = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path, outside, telling = _known.get(frame.f_code) or _look_at(frame.f_code)
        if outside:
            return f"{path}:{frame.f_lineno} {name_of(frame.f_code)}"
        if telling and not of_torch:
            of_torch = f"{path}:{frame.f_lineno} {name_of(frame.f_code)}"
        frame = frame.f_back
    return of_torch


def _look_at(code: CodeType) -> tuple[str, bool, bool]:
    path = short_path(code.co_filename)
    inside = path.split("/")[0] in PACKAGES or path.startswith("<") or path.startswith(WRAPPERS)
    telling = path.startswith("torch/") and not path.startswith(PLUMBING) and code.co_name != "wrapper"
    _known[code] = (path, not inside, telling)
    return _known[code]


def short_path(path: str) -> str:
    """From the folder on from which it was imported, so that it reads the same on every machine."""
    folders = [folder for folder in sys.path if folder and path.startswith(folder.rstrip(os.sep) + os.sep)]
    return path[len(max(folders, key=len).rstrip(os.sep)) + 1:] if folders else path


def name_of(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)  # Python 3.10 knows the bare name alone
