"""Runs of the real megatron-fsdp on CPU."""
