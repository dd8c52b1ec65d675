"""Drivers of frameworks, a module for each."""
