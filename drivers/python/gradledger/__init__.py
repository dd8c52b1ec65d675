"""gradledger judges how frameworks accumulate gradients. This package judges scenarios from Python, and holds the drivers that run them on real frameworks."""
from .api import BadInput, BrokenRun, Error, InternalError, NotRun, gate, replay
from .command import corpus
from .findings import Blame, Contribution, Coverage, Elements, Finding, Gate, KnownDefect, Report, Row

__all__ = ["BadInput", "Blame", "BrokenRun", "Contribution", "Coverage", "Elements", "Error", "Finding", "Gate", "InternalError", "KnownDefect", "NotRun", "Report", "Row",
           "corpus", "gate", "replay"]
__version__ = "0.1.0"
