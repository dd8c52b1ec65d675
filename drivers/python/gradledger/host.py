"""`python -m gradledger.host DRIVER` imports a framework once, and forks a process for each rank that the command starts."""
from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib
import os
import select
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # to ask for a GPU must not start CUDA: it does not work in processes that are forked then

import torch  # noqa: E402

from . import loading, messages, rank  # noqa: E402
from .protocol import Closed, Connection, ProtocolError, connect, hello  # noqa: E402

PR_SET_PDEATHSIG = 1


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="python -m gradledger.host", description=__doc__)
    parser.add_argument("driver", help=f"{', '.join(loading.BUILT_IN)}, or module:factory")
    parser.add_argument("--backend", choices=rank.BACKENDS, default="gradledger")
    options = parser.parse_args()
    os.dup2(2, 1)  # what frameworks print is no output of anybody's
    torch.set_num_threads(1)
    code = 1
    try:
        factory = loading.load(options.driver)
        driver = loading.made(factory, 0, 1)
        for module in driver.preload + (("gradledger.process_group",) if options.backend == "gradledger" else ()):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        said = hello("host", driver=options.driver, versions=loading.versions(driver), capabilities=driver.capabilities())
        gc.collect()
        gc.freeze()  # what is imported by now is no garbage of the ranks', whose collections need not look at it
        code = Host(connect(said), factory, options.driver, options.backend).serve()
    except Closed:
        code = 0
    except (ProtocolError, OSError, ImportError, loading.NoSuchDriver) as error:
        print(f"gradledger host: {error}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(code)


class Host:
    """One thread: a process that is forked from one of several may find locks held for ever."""

    def __init__(self, connection: Connection, factory: loading.Factory, name: str, backend: str) -> None:
        self.connection, self.factory, self.name, self.backend = connection, factory, name, backend
        self.ranks: dict[int, int] = {}  # process to rank
        self.folder = Path(tempfile.mkdtemp(prefix="gradledger-"))
        self.world = 0  # counts the worlds that were started: each has a store of its own
        self.in_world: set[int] = set()
        self.world_size = 0
        self.children_ended, self.wake = os.pipe()
        os.set_blocking(self.wake, False)

    def serve(self) -> int:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        poll = select.poll()
        for file in (self.connection.socket.fileno(), self.children_ended):
            poll.register(file, select.POLLIN)
        try:
            while True:
                ready = dict(poll.poll())
                if self.children_ended in ready:
                    os.read(self.children_ended, 4096)
                    self.reap()
                if self.connection.socket.fileno() in ready:
                    message = self.connection.receive()
                    if message["type"] == "bye":
                        return 0
                    self.do(message)
        except Closed:
            return 0
        except ProtocolError as error:
            with contextlib.suppress(OSError):
                self.connection.send({"type": "failure", "text": str(error), "traceback": messages.error(error)["traceback"]})
            raise
        finally:
            self.end_all()
            shutil.rmtree(self.folder, ignore_errors=True)

    def do(self, message: dict[str, Any]) -> None:
        if message["type"] == "start":
            self.start(message["rank"], message["world_size"], message["errors"])
        elif message["type"] == "end":
            for process, rank_ in self.ranks.items():
                if rank_ == message["rank"]:
                    os.kill(process, signal.SIGKILL)
        else:
            raise ProtocolError(f"{message['type']!r} is no message for a host")

    def start(self, number: int, world_size: int, errors: str) -> None:
        if not 0 <= number < world_size or number in self.ranks.values():
            raise ProtocolError(f"rank {number} of {world_size} cannot be started; running are {sorted(self.ranks.values())}")
        if number in self.in_world or world_size != self.world_size:
            self.world, self.in_world, self.world_size = self.world + 1, set(), world_size
        self.in_world.add(number)
        process = self.start_fresh(number, world_size, errors) if self.has_threads() else self.fork(number, world_size, errors)
        self.ranks[process] = number
        self.connection.send({"type": "started", "rank": number, "process": process})

    def has_threads(self) -> bool:
        """What frameworks import for a GPU may start threads, whose locks a process that is forked would find held. A CPU's are known to be of BLAS alone, which sees to that."""
        return self.backend == "nccl" and len(os.listdir("/proc/self/task")) > 1

    def fork(self, number: int, world_size: int, errors: str) -> int:
        parent, process = os.getpid(), os.fork()
        if process == 0:
            try:
                become_rank(self, parent, number, world_size, errors)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(1)
        return process

    def start_fresh(self, number: int, world_size: int, errors: str) -> int:
        """A process of its own, which imports the framework again."""
        words = [sys.executable, "-m", "gradledger.rank", self.name, "--backend", self.backend, "--store", self.store()]
        to_errors = (os.POSIX_SPAWN_OPEN, 2, errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.posix_spawn(sys.executable, words, os.environ | as_launched(number, world_size), file_actions=[to_errors, (os.POSIX_SPAWN_DUP2, 2, 1)])

    def store(self) -> str:
        return f"file://{self.folder}/store{self.world}"

    def reap(self) -> None:
        for process in list(self.ranks):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                ending = {"code": code} if code >= 0 else {"signal": -code}
                self.connection.send({"type": "ended", "rank": self.ranks.pop(process), "process": process} | ending)

    def end_all(self) -> None:
        for process in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in self.ranks:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)


def become_rank(host: Host, parent: int, number: int, world_size: int, errors: str) -> None:
    """In the new process. What belongs to the host is let go of, and the process does not outlive it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    host.connection.close()
    file = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(file, 2)
    os.dup2(file, 1)
    os.environ |= as_launched(number, world_size)
    rank.run(host.factory, host.name, number, world_size, host.backend, host.store())


def as_launched(number: int, world_size: int) -> dict[str, str]:
    """DeepSpeed looks for an address and a port, and does not use them: the group is there."""
    return {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


if __name__ == "__main__":
    main()
