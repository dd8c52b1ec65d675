"""Functions and classes of a package, out of its files, without what these import: loaders, ray, kernels of GPUs."""
from __future__ import annotations

import __future__
import ast
import builtins
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock


class OnCpu(ast.NodeTransformer):
    """Names of devices are those of a CPU. Nothing else of a file is altered."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.copy_location(ast.Constant("cpu"), node) if node.value == "cuda" else node


def trees(folder: Path, files: dict[str, list[str]]) -> list[ast.stmt]:
    """By file: functions, methods and classes by their names. Functions lose their decorators, which are those of profilers and of ray."""
    out: list[ast.stmt] = []
    for file, names in files.items():
        found = {node.name: node for node in ast.walk(ast.parse((folder / file).read_text())) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in names}
        if missing := set(names) - set(found):
            raise SystemExit(f"{folder / file} has no {', '.join(sorted(missing))}")
        for name in names:
            node = found[name]
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = [each for each in node.decorator_list if ast.unparse(each) in ("contextlib.contextmanager", "contextmanager")]
            out.append(node)
    return out


def statements(folder: Path, file: str, function: str, begins: list[str]) -> list[ast.stmt]:
    """Statements of a function, each by how it begins, in the order in which it has them."""
    body = next(node for node in ast.walk(ast.parse((folder / file).read_text())) if isinstance(node, ast.FunctionDef) and node.name == function).body
    out = [node for node in body if any(ast.unparse(node).startswith(begin) for begin in begins)]
    if len(out) != len(begins):
        raise SystemExit(f"{function} of {folder / file} has {len(out)} statements that begin with one of {begins}")
    return out


def stand_in(name: str) -> Any:
    return type(name, (), {}) if name[0].isupper() and not name.isupper() else MagicMock(name=name)


def run(nodes: list[ast.stmt], known: dict[str, Any]) -> dict[str, Any]:
    """The names that the nodes define, beside `known`. What else they name stands still: a class that nothing is of, or a mock."""
    nodes = [ast.fix_missing_locations(OnCpu().visit(node)) for node in nodes]
    defined = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    named = {node.id for tree in nodes for node in ast.walk(tree) if isinstance(node, ast.Name)}
    space = {name: stand_in(name) for name in named - defined if name not in known and not hasattr(builtins, name)} | known
    exec(compile(ast.Module(nodes, []), "<package>", "exec", flags=__future__.annotations.compiler_flag), space)
    return space


class Module:
    """A module of the package, where its functions stand in one space with all others."""

    def __init__(self, space: dict[str, Any]) -> None:
        self.__dict__["space"] = space

    def __getattr__(self, name: str) -> Any:
        return self.space.setdefault(name, MagicMock(name=name))
