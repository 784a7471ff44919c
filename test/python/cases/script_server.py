"""A process that has imported torch, and what is named besides, and forks itself for each script: what a start costs is paid once.

The hook comes into each fork as it does behind a launcher that forks: torch is there already. What depends on how torch comes
to be imported is started for real (test_inject.py, test_training_frameworks.py).
"""

import array
import atexit
import gc
import importlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

MOST = 1 << 20


class ScriptServer:
    """`run()` is subprocess.run() for a script, with output and errors captured. `path`: where one listens that is there already."""

    def __init__(self, path=None, imported=()):
        self.path = path or self._start(imported)

    def _start(self, imported):
        self._folder = tempfile.TemporaryDirectory()
        path = os.path.join(self._folder.name, "server")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen(16)
        env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
        env.pop("PYTHONPATH", None)
        self._process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), str(listening.fileno()), *imported],
            env=env,
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
        )
        listening.close()
        atexit.register(self.close)
        return path

    def run(self, path, arguments, env, cwd, timeout):
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors, socket.socket(
            socket.AF_UNIX
        ) as line:
            line.connect(self.path)
            asked = {"path": path, "arguments": list(arguments), "env": env, "cwd": cwd}
            files = array.array("i", [out.fileno(), errors.fileno()])
            line.sendmsg([json.dumps(asked).encode() + b"\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
            line.settimeout(timeout)
            with line.makefile() as answers:
                pid = int(answers.readline())
                try:
                    status = int(answers.readline())
                except socket.timeout:
                    os.kill(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(path, timeout) from None
            for file in (out, errors):
                file.seek(0)
            return subprocess.CompletedProcess([path, *arguments], status, out.read(), errors.read())

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


def serve(listening):
    """Returns in a fork that is to run a script: what was asked, with the files of its output."""
    import select

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks that wait for the scripts are waited for by nobody
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:
            os._exit(0)
        line, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            text, rights, _, _ = line.recvmsg(MOST, socket.CMSG_SPACE(2 * array.array("i").itemsize))
            while not text.endswith(b"\n"):
                text += line.recv(MOST)
            files = array.array("i", rights[0][2])
            pid = os.fork()
            if pid == 0:
                line.close()
                return json.loads(text), files
            line.sendall(b"%d\n" % pid)
            _, status = os.waitpid(pid, 0)
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            line.sendall(b"%d\n" % code)
            os._exit(0)
        line.close()


def become(asked, files):
    """Makes this process what a start of the script would be, up to its first line."""
    devnull = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, devnull), (1, files[0]), (2, files[1])):
        os.dup2(source, target)
    for file in (devnull, *files):
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.argv[:] = [asked["path"], *asked["arguments"]]
    paths = [path for path in asked["env"].get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = [os.path.dirname(asked["path"]), *paths]
    if asked["env"].get("OOMTUNE_HOOK"):
        import sitecustomize  # noqa: F401  the inject folder's, as it is the first on the path


if __name__ == "__main__":
    import script_end  # noqa: F401  found again below
    import torch
    import torch.utils.data

    if importlib.util.find_spec("torch._dynamo"):
        import torch._dynamo  # noqa: F401  what the first optimizer of each script would import: 1.5 s of a current torch

    for _name in sys.argv[2:]:
        importlib.import_module(_name)
    sys.modules.pop("sitecustomize", None)
    gc.freeze()  # a fork that looks through what is the same in all, at its end above all, copies every page of it
    _asked, _files = serve(socket.socket(fileno=int(sys.argv[1])))
    become(_asked, _files)
    __file__ = sys.argv[0]
    with open(__file__) as _file:
        _code = compile(_file.read(), __file__, "exec")
    for _name in [name for name in globals() if not (name.startswith("__") or name in ("_code", "_name"))]:
        del globals()[_name]
    del _name
    try:
        exec(_code)
        __import__("script_end").end()
    except BaseException:
        __import__("script_end").end()
