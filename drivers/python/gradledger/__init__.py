"""gradledger judges how frameworks accumulate gradients. This package judges scenarios from Python, and holds the drivers that run them on real frameworks."""
from typing import Any

from .api import BadInput, BrokenRun, Error, InternalError, NotRun, gate, replay
from .command import corpus
from .findings import Blame, Contribution, Coverage, Elements, Finding, Gate, KnownDefect, Report, Row

__all__ = ["BadInput", "Blame", "BrokenRun", "Contribution", "Coverage", "Elements", "Error", "Finding", "Gate", "InternalError", "KnownDefect", "NotRun", "Report", "Row",
           "corpus", "gate", "observe", "replay"]
__version__ = "0.1.0"


def observe(model: Any, optimizer: Any, *others: Any, **options: Any) -> Any:
    """A context that judges one window of a running training loop and puts everything back: `gradledger.observation.observe`, which needs PyTorch."""
    from .observation import observe as of_a_loop

    return of_a_loop(model, optimizer, *others, **options)
