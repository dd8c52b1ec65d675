"""One window of a running training loop, looked at from inside: `gradledger.observe`."""
from .window import Ledger, Observation, observe

__all__ = ["Ledger", "Observation", "observe"]
