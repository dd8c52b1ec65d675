"""Recorder of real DeepSpeed runs. `rank` and what it imports need PyTorch; the rest is the standard library."""
