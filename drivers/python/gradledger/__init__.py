"""gradledger judges how frameworks accumulate gradients. This package holds the drivers that run scenarios on real ones."""
__version__ = "0.1.0"
