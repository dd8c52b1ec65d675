"""One rank: `python -m gradledger.rank DRIVER` holds the framework and does what the command says."""
from __future__ import annotations

import argparse
import functools
import inspect
import os
import select
import sys
import threading
import time
from datetime import timedelta
from typing import Any, Callable, NoReturn

import torch
import torch.distributed as dist

from . import loading, messages, streams
from .driver import METHODS, Driver, Refused
from .protocol import Closed, Connection, ProtocolError, connect, hello

WITH_FACTS = ("step", "clip_gradients")
OF_THE_GROUP = ("CollectiveMismatch", "CollectiveDeadlock")  # no rank goes on behind these
BACKENDS = ("gradledger", "gloo", "nccl")


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="python -m gradledger.rank", description=__doc__)
    parser.add_argument("driver", help=f"{', '.join(loading.BUILT_IN)}, or module:factory")
    parser.add_argument("--backend", choices=BACKENDS, default="gradledger")
    parser.add_argument("--store", default="env://", help="where the ranks meet, as init_method of torch.distributed; of a launcher by default")
    options = parser.parse_args()
    os.dup2(2, 1)
    try:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        parser.error("RANK and WORLD_SIZE are not set; a launcher sets them, as torchrun does")
    run(loading.load(options.driver), options.driver, rank, world_size, options.backend, options.store)


def run(factory: loading.Factory, name: str, rank: int, world_size: int, backend: str, store: str) -> NoReturn:
    """Serves the command until it says bye or is gone. The process ends here: whatever threads a framework has left are not waited for."""
    code = 1
    try:
        torch.set_num_threads(1)
        driver = loading.made(factory, rank, world_size)
        connection = connect(hello("driver", rank, world_size, driver=name, versions=loading.versions(driver), capabilities=driver.capabilities()))
        threading.Thread(target=end_with, args=(connection,), daemon=True).start()
        code = Rank(driver, connection, backend, store).serve()
    except Closed:
        code = 0
    except (ProtocolError, OSError, loading.NoSuchDriver) as error:
        print(f"gradledger rank {rank}: {error}", file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def end_with(connection: Connection) -> None:
    """Ends the process when the command is gone, also while the framework waits for another rank."""
    poll = select.poll()
    poll.register(connection.socket, getattr(select, "POLLRDHUP", 0))  # POLLHUP and POLLERR are always told
    poll.poll()
    os._exit(0)


class Rank:
    def __init__(self, driver: Driver, connection: Connection, backend: str, store: str) -> None:
        self.driver, self.connection, self.backend, self.store = driver, connection, backend, store
        self.configuration: Any = None
        self.stops_at_error = self.stopped = False  # behind an error, up to the next configuration
        self.at_event = lambda number: None
        self.recorder: streams.Recorder | None = None

    def serve(self) -> int:
        try:
            if self.driver.needs_group:
                self.initialise_group()
            while (message := self.connection.receive())["type"] != "bye":
                if self.stopped and message["type"] == "event":  # it was sent before the command knew of the error
                    continue
                answer = self.answer(message)
                if self.recorder is not None and message["type"] in ("configure", "event"):
                    self.connection.send(self.recorder.message(answer.get("number", -1)))
                self.connection.send(answer)
        except Closed:
            pass
        except ProtocolError as error:
            self.fail(error)
            raise
        except Exception as error:
            self.fail(error)
            return 1
        return 0

    def fail(self, error: Exception) -> None:
        try:
            told = messages.error(error)
            by_us = isinstance(error, Refused)  # whose text says all
            self.connection.send({"type": "failure", "text": told["text"] if by_us else f"{told['type']}: {told['text']}", "traceback": "" if by_us else told["traceback"]})
        except Closed:
            pass  # nobody is there to be told

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["type"] == "configure":
            return self.configure(message)
        if message["type"] == "finish":
            return {"type": "finished"}
        if message["type"] != "event":
            raise ProtocolError(f"{message['type']!r} is no message for a driver")
        if self.configuration is None:
            raise ProtocolError("an event came before a configuration that was accepted")
        return self.event(message)

    def configure(self, message: dict[str, Any]) -> dict[str, Any]:
        self.configuration = None
        self.stopped, self.stops_at_error = False, message["engine"].get("after_error") == "stop"
        self.at_event(-1)
        configuration = messages.configuration(message)
        torch.manual_seed(configuration.seed)
        self.recorder = streams.recorder_for(message)
        try:
            with streams.watched(self.recorder):
                notes = self.driver.configure(configuration)
        except Refused as error:
            return {"type": "refused", "error": messages.error(error), "by_driver": True}
        except Exception as error:
            return {"type": "refused", "error": messages.error(error), "by_driver": False}
        self.configuration = configuration
        return {"type": "configured", "notes": list(notes)}

    def event(self, message: dict[str, Any]) -> dict[str, Any]:
        name, error = message["name"], None
        if name not in METHODS and name not in self.driver.own_events:
            raise ProtocolError(f"{name!r} is no event; expected one of {', '.join((*METHODS, *self.driver.own_events))}")
        given = messages.event(message, self.configuration)
        method = getattr(self.driver, METHODS.get(name, name))
        call = bound(method, name, given)
        self.at_event(message["number"])
        began = time.perf_counter()
        try:
            with streams.watched(self.recorder):
                call()
        except Exception as raised:  # what the framework raises is what is asked for
            error = messages.error(raised)
            self.stopped = self.stops_at_error or error["type"] in OF_THE_GROUP
        seconds = time.perf_counter() - began
        with streams.paused():
            if self.configuration.observe and self.driver.device.type == "cuda":
                torch.cuda.synchronize()  # what an event leaves, though a framework waits for it later
            steps = name == "step" or (name == "backward" and self.driver.steps_inside)
            shown = list(self.driver.buffers(name)) if self.configuration.observe or steps else []
            if self.recorder is not None:
                self.recorder.name_buffers(shown)
            buffers = [encoded for buffer in shown if (encoded := buffer.encoded())["pieces"]]  # a shard may have no elements
        return {"type": "done", "number": message["number"], "error": error, "buffers": buffers,
                "facts": self.driver.facts() if steps or name in WITH_FACTS else {}, "metrics": {"seconds": seconds}}

    def initialise_group(self) -> None:
        """Once for each process: what an engine leaves in torch.distributed is found by the next one."""
        if self.backend == "nccl":
            self.driver.device = take_gpu(self.driver.rank, self.driver.world_size)
            torch.cuda.set_device(self.driver.device)
        if self.backend == "gradledger":
            from . import process_group
            process_group.register()
            self.at_event = lambda number: setattr(process_group, "current_event", number)
        backend = {"nccl": "cpu:gloo,cuda:nccl"}.get(self.backend, self.backend)
        dist.init_process_group(backend, init_method=self.store, rank=self.driver.rank, world_size=self.driver.world_size, timeout=timedelta(days=1))


def take_gpu(rank: int, world_size: int) -> torch.device:
    """Ranks share the GPUs where a machine has fewer of them. NCCL takes two ranks of one host on one GPU for a mistake, so each says that it is a host of its own."""
    gpus = torch.cuda.device_count()
    if gpus == 0:
        raise Refused(f"--backend nccl wants a GPU, and PyTorch {torch.__version__} finds none; gradledger and gloo run on a CPU")
    if int(os.environ.get("LOCAL_WORLD_SIZE", world_size)) > gpus:
        os.environ.setdefault("NCCL_HOSTID", f"gradledger-rank-{rank}")
    gpu = int(os.environ.get("LOCAL_RANK", rank)) % gpus
    os.environ["LOCAL_RANK"] = str(gpu)  # which frameworks take for the number of a GPU
    return torch.device("cuda", gpu)


def bound(method: Callable, name: str, given: Any) -> Callable[[], None]:
    """Arguments that a method lacks are the command's mistake, and must not look like an exception of the framework."""
    if not isinstance(given, dict):
        return functools.partial(method, given)
    try:
        signature_of(getattr(method, "__func__", method)).bind(*([None] if hasattr(method, "__func__") else []), **given)
    except TypeError as error:
        raise ProtocolError(f"event {name!r}: {error}") from None
    return functools.partial(method, **given)


signature_of = functools.cache(inspect.signature)


if __name__ == "__main__":
    main()
