#!/usr/bin/python3
"""Runs the steps of a composite action one after the other, as GitHub's runner does: expressions filled in, GITHUB_ENV handed on.

usage: run_action.py ACTION.YML TEMPORARY_FOLDER [NAME=VALUE...]   inputs; GITHUB_SHA stands for the head
It knows the expressions that the action has, and ends with 2 where it meets another one.
"""
import os
import re
import subprocess
import sys

import yaml


def value_of(expression, context):
    """Of a || b || ..., the first that is not empty; or whether a == 'text'."""
    compared = re.fullmatch(r"(\S+) == '([^']*)'", expression)
    if compared:
        return "true" if context[compared[1]] == compared[2] else ""
    for name in expression.split(" || "):
        if context[name]:
            return context[name]
    return ""


def filled(text, context):
    return re.sub(r"\$\{\{ (.*?) \}\}", lambda m: value_of(m[1], context), str(text))


def main(path, temporary, *given):
    with open(path, encoding="utf-8") as file:
        action = yaml.safe_load(file)
    context = {"github.sha": os.environ["GITHUB_SHA"], "github.event.pull_request.base.sha": "", "github.event.before": "", "runner.temp": temporary}
    for name, about in action["inputs"].items():
        context["inputs." + name] = filled(about.get("default", ""), context)
    for pair in given:
        name, value = pair.split("=", 1)
        if name not in action["inputs"]:
            sys.exit(f"{name} is no input")
        context["inputs." + name] = value
    for name, about in action["inputs"].items():
        if about.get("required") and not context["inputs." + name]:
            sys.exit(f"{name} is required")
    handed_on = os.path.join(temporary, "env")
    environment = {**os.environ, "GITHUB_ACTION_PATH": os.path.dirname(os.path.abspath(path)), "GITHUB_ENV": handed_on}
    for step in action["runs"]["steps"]:
        if "if" in step and not filled(step["if"], context):
            print("left out:", step["name"], flush=True)
            continue
        open(handed_on, "w", encoding="utf-8").close()
        own = {name: filled(text, context) for name, text in step.get("env", {}).items()}
        code = subprocess.run([step["shell"], "-e", "-c", step["run"]], env={**environment, **own}, check=False).returncode
        if code:
            return code
        with open(handed_on, encoding="utf-8") as file:
            environment.update(line.rstrip("\n").split("=", 1) for line in file)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyError as missing:
        print("run_action: does not know", missing, file=sys.stderr)
        sys.exit(2)
