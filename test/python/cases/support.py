"""A worker to talk to: a unix socket that answers the hook from a script, and real python processes under it."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

from script_server import ScriptServer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
PATH = os.pathsep.join([os.path.join(ROOT, "python", "inject"), os.path.join(ROOT, "python")])
FIXTURES = os.path.join(ROOT, "test", "fixtures", "python")

#: Seconds after which a script hangs: a machine may have others' work to do.
PATIENCE_S = 600

PROBE = {
    "t": "probe",
    "accumulation": 1,
    "amp": "off",
    "checkpointing": False,
    "offload": False,
    "chunked_loss": False,
    "steps": 3,
}


def probe(micro_batch, **more):
    return dict(PROBE, micro_batch=micro_batch, **more)


class Worker:
    """Listens; answers `loop` and `measured` in turn from `answers`, each life's anew, and `end` when they are used up. A life's
    death is answered from `orders`, in the same way. Before that `end` each of `to_all` is told to every process, as the real worker tells of another life."""

    def __init__(self, answers=(), answers_loop=True, orders=(), to_all=()):
        self._folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self._folder.name, "s")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen(16)
        self._answers = list(answers)
        self._answers_loop = answers_loop
        self._orders = list(orders)
        self._to_all = list(to_all)
        self._lines = []
        #: Deaths that were answered before they came.
        self._ahead = 0
        self._lock = threading.Lock()
        self.messages = []
        self.connections = 0
        self._threads = []
        self._start(self._accept)

    def _start(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._lines.append(line)
            self._start(self._serve, line, list(self._answers))

    def _serve(self, line, answers):
        with line, line.makefile("rb") as texts, contextlib.suppress(ConnectionResetError):  # its process ended
            self._answer(line, texts, answers)

    def _answer(self, line, texts, answers):
        for text in texts:
            message = json.loads(text)
            with self._lock:
                self.messages.append(message)
            if message["t"] == "measured" or (message["t"] == "loop" and self._answers_loop):
                if answers or not self._to_all:
                    line.sendall(json.dumps(answers.pop(0) if answers else {"t": "end"}).encode() + b"\n")
                else:
                    self._broadcast(self._to_all.pop(0))
            elif message["t"] == "died" and self._ahead:
                self._ahead -= 1
            elif message["t"] == "died":
                order = self._orders.pop(0) if self._orders else {"t": "end"}
                if order is None:
                    return  # the line is lost
                line.sendall(json.dumps(order).encode() + b"\n")

    def _broadcast(self, order):
        self._ahead += 1
        for line in self._lines:
            with contextlib.suppress(OSError):  # its process ended
                line.sendall(json.dumps(order).encode() + b"\n")

    def of(self, kind):
        return [message for message in self.messages if message["t"] == kind]

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(5)
        self._folder.cleanup()


class Result:
    def __init__(self, done, worker):
        self.status = done.returncode
        self.output = done.stdout
        self.errors = done.stderr
        self.messages = list(worker.messages)
        self.connections = worker.connections

    def of(self, kind):
        return [message for message in self.messages if message["t"] == kind]

    def one(self, kind):
        found = self.of(kind)
        if len(found) != 1:
            raise AssertionError("expected one %r, got %r; stderr: %s" % (kind, self.messages, self.errors))
        return found[0]


def environment(worker=None, mode=None, **more):
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    kept.update(PYTHONPATH=PATH, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    if mode is not None:
        kept["OOMTUNE_HOOK"] = mode
    if worker is not None:
        kept["OOMTUNE_HOOK_SOCKET"] = worker.path
    kept.update({name: str(value) for name, value in more.items()})
    return kept


_servers = {}


def _server(imported=()):
    if imported not in _servers:
        _servers[imported] = ScriptServer(None if imported else os.environ.get("OOMTUNE_TEST_SCRIPT_SERVER"), imported)
    return _servers[imported]


def start(path, arguments=(), cwd=None, env=None, timeout=PATIENCE_S, imported=()):
    """Runs a script to its end, in a fork of a process that has imported torch, and the modules `imported`."""
    return _server(imported).run(path, arguments, env, cwd or os.path.dirname(path), timeout)


#: The end of a rank, all that it has to do at its exit done. Threads of gloo's outlive destroy_process_group(): one that lets
#: go of its last tensor while the interpreter takes itself apart aborts the process (torch 2.15, now and then, under load).
RANK_ENDS = "\nimport atexit, os, sys\natexit._run_exitfuncs()\nsys.stdout.flush()\nos._exit(0)\n"


def start_ranks(count, path, arguments, cwd, env):
    """The same as ranks of one job: all of their output, and the worst of their ends. With BY_SLURM they are told so by Slurm's variables alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        shared = dict(env, WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    _server()  # not by several threads at once
    with ThreadPoolExecutor(count) as pool:
        ranks = [dict(shared, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(count)]
        if env.get("BY_SLURM"):
            for each in ranks:
                each.update(SLURM_PROCID=each.pop("RANK"), SLURM_NTASKS=each.pop("WORLD_SIZE"))
        done = list(pool.map(lambda own: start(path, arguments, cwd, own), ranks))
    ends = [each.returncode for each in done]
    return subprocess.CompletedProcess(
        path, next(filter(None, ends), 0), "".join(each.stdout for each in done), "".join(each.stderr for each in done)
    )


def run(
    script,
    mode,
    answers=(),
    arguments=(),
    cwd=None,
    command=None,
    ranks=None,
    orders=(),
    to_all=(),
    imported=(),
    beside=(),
    **env,
):
    """Runs a fixture (or source text) under the hook with a worker that gives `answers`, `ranks`: as so many ranks of one job;
    `command` (an interpreter, or a launcher) starts it for real, as does another PYTHONPATH: what lies there may want to see
    torch being imported. `beside`: folders whose sitecustomize runs after the hook's, and need see nothing of the kind."""
    if "PYTHONPATH" in env:
        command = command or [sys.executable]
    if beside:
        env["PYTHONPATH"] = os.pathsep.join([PATH, *beside])
    worker = Worker(answers, answers_loop=mode != "measure" and mode != "apply", orders=orders, to_all=to_all)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(FIXTURES, script)
        if "\n" in script:
            path = os.path.join(folder, "script.py")
            with open(path, "w") as file:
                file.write(script if ranks is None else script + RANK_ENDS)
        whole, where = environment(worker, mode, **env), cwd or folder
        if ranks is not None:
            done = start_ranks(ranks, path, arguments, where, whole)
        elif command is None:
            done = start(path, arguments, where, whole, imported=imported)
        else:
            done = subprocess.run(
                [*command, path, *arguments],
                env=whole,
                cwd=where,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                universal_newlines=True,
                timeout=PATIENCE_S,
            )
    worker.close()
    return Result(done, worker)
