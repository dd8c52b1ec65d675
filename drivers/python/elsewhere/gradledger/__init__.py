"""Stands for the package in a Python that it is not installed in, so that this one finds its modules and nothing else of what is installed beside them."""
from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[3])]
exec(compile((Path(__path__[0]) / "__init__.py").read_text(), str(Path(__path__[0]) / "__init__.py"), "exec"))
