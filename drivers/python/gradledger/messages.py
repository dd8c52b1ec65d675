"""Messages of the protocol as the values that drivers are given, and errors as messages."""
from __future__ import annotations

import traceback
from typing import Any, Mapping

import torch

from .driver import DTYPES, Backward, Configuration, Forward, Parameter, Part
from .protocol import ProtocolError

TEXT_MAX = 64 << 10
FLAGS = {"linear": False, "observe": True, "seed": 0}


def configuration(message: Mapping[str, Any]) -> Configuration:
    if message["model_dtype"] not in DTYPES:
        raise ProtocolError(f"model_dtype is {message['model_dtype']!r}; expected one of {', '.join(DTYPES)}")
    numbers = {given["name"]: p for p, given in enumerate(message["parameters"])}
    return Configuration(run=message["run"], engine=message["engine"], parameters=tuple(parameter(given, numbers) for given in message["parameters"]),
                         model_dtype=DTYPES[message["model_dtype"]], groups=message.get("groups") or {},
                         **{key: message.get(key, default) for key, default in FLAGS.items()})


def parameter(given: Mapping[str, Any], numbers: Mapping[str, int]) -> Parameter:
    tied_to = given.get("tied_to")
    if isinstance(tied_to, str):
        if tied_to not in numbers:
            raise ProtocolError(f"parameter {given['name']!r} is tied to {tied_to!r}, which is none")
        tied_to = numbers[tied_to]
    weights = torch.zeros(given["numel"]) if tied_to is not None else fp32(given["weights"], given["numel"], given["name"])
    part = Part(**given["part"]) if given.get("part") else None
    return Parameter(given["name"], given["numel"], given["trainable"], tied_to, weights, part, given.get("summed_over"), expert=given.get("expert"),
                     pipeline_stage=given.get("pipeline_stage", 0), hooked_outputs=given.get("hooked_outputs", 1), on_side_stream=given.get("produced_on") == "side")


def fp32(data: bytes, numel: int, what: object) -> torch.Tensor:
    if len(data) != 4 * numel:
        raise ProtocolError(f"{what!r} has {len(data)} bytes for {numel} elements of fp32")
    return torch.frombuffer(bytearray(data), dtype=torch.float32) if numel else torch.zeros(0)


def event(message: Mapping[str, Any], of: Configuration) -> Forward | Backward | dict[str, Any]:
    """What the method of the event is called with: a value, or arguments by name."""
    name, arguments = message["name"], dict(message.get("arguments") or {})
    if name not in ("forward", "backward"):
        if "as" in arguments:
            arguments["as_"] = arguments.pop("as")  # reserved in Python
        return arguments
    given = taking_part(message, message["number"], of)
    further = tuple(Forward(message["number"], one.get("micro_batch", 0), **taking_part(one, message["number"], of)) for one in message.get("further") or ())
    if name == "backward" and arguments.get("summed", 1) != 1 + len(further):
        raise ProtocolError(f"event {message['number']} sums {arguments['summed']} losses, and has {len(further)} behind the first")
    try:
        return Forward(number=message["number"], **arguments | given) if name == "forward" else Backward(number=message["number"], further=further, **arguments | given)
    except TypeError as error:
        raise ProtocolError(f"event {message['number']}, {name!r}: {error}") from None


def taking_part(message: Mapping[str, Any], number: int, of: Configuration) -> dict[str, Any]:
    """Which parameters a forward uses, and their gradients."""
    gradients = {}
    for text, data in (message.get("gradients") or {}).items():
        p = int(text)
        if not 0 <= p < len(of.parameters):
            raise ProtocolError(f"event {number} has a gradient of parameter {p}; there are {len(of.parameters)}")
        gradients[p] = fp32(data, of.parameters[p].numel, f"gradient {p}")
    uses = tuple(message["uses"] if "uses" in message else (message.get("arguments") or {}).get("uses", ()))
    if not all(0 <= p < len(of.parameters) for p in uses):
        raise ProtocolError(f"event {number} uses parameters that there are not")
    return {"uses": uses, "gradients": gradients}


def error(raised: BaseException) -> dict[str, str]:
    text = "".join(traceback.format_exception(raised))
    return {"type": type(raised).__name__, "text": str(raised)[:TEXT_MAX], "traceback": text[-TEXT_MAX:]}
