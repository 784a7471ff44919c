"""The spare that a job leaves of itself: when it is left, and when not. With the worker it is held in test/worker/spare.test.ts."""

import builtins
import importlib
import io
import os
import pathlib
import sys
import tempfile
import unittest

from support import ROOT, run

sys.path.insert(0, os.path.join(ROOT, "python"))
artifact_guard = importlib.import_module("oomtune.hook.probe.artifact_guard")
process_state = importlib.import_module("oomtune.hook.fork.process_state")

#: The process that was started, as under a supervisor: here another is above it.
MAIN = "import oomtune.hook.fork.spare as spare\nspare.is_main = lambda: True\n"
TRAIN = """
import os, random, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0); random.seed(0)
%s
model = nn.Linear(40, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn(64, 40), torch.randn(64, 2)), batch_size=8, shuffle=True):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
print(random.random(), model.weight.sum().item())
"""


def job(before="", **env):
    return run(TRAIN % before, "apply", OOMTUNE_WATCH="1", **env)


class NoSpare(unittest.TestCase):
    def refused(self, before, why):
        done = job(before, OOMTUNE_FORK="1")
        self.assertEqual(done.status, 0, done.errors)
        self.assertEqual(done.of("fork_server"), [])
        self.assertIn(why, done.of("plain")[0]["message"])
        self.assertEqual(done.output, job().output)

    def test_of_what_another_process_of_the_command_runs(self):
        self.refused("", "not the process that was started")

    def test_where_a_tracker_may_have_begun_to_write(self):
        self.refused(MAIN + "sys.modules['mlflow'] = sys", "imported mlflow")

    def test_where_a_file_is_locked(self):
        lock = "import fcntl\nlock = open('lock', 'w')\nfcntl.flock(lock, fcntl.LOCK_EX)"
        self.refused(MAIN + lock, "locked files")

    def test_where_the_job_could_not_be_there_twice(self):
        self.refused(MAIN + "spare.has_room_for_copy = lambda: False", "too little memory")

    def test_where_threads_would_be_missing(self):
        waits = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
        self.refused(MAIN + waits, "other threads run: ")

    def test_where_none_is_asked_for(self):
        self.assertEqual(job(MAIN).of("plain") + job(MAIN).of("fork_server"), [])


class RoomForACopy(unittest.TestCase):
    def test_is_that_of_the_groups_too(self):
        self.assertTrue(process_state.has_room_for_copy())
        rooms = process_state._rooms_of_groups
        process_state._rooms_of_groups = lambda: [1024]
        try:
            self.assertFalse(process_state.has_room_for_copy())
        finally:
            process_state._rooms_of_groups = rooms


class OlderPathlib(unittest.TestCase):
    def test_writes_no_artifact_either(self):
        """Before Python 3.11 pathlib keeps functions of its own: a stand-in for that."""

        class Accessor:
            unlink = os.unlink
            open = io.open

        names = ("remove", "unlink", "replace", "rename", "link", "symlink")
        before = {name: getattr(os, name) for name in names}, open, getattr(pathlib, "_NormalAccessor", None)
        setattr(pathlib, "_NormalAccessor", Accessor)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            with open(path, "w") as file:
                file.write("of an earlier run")
            try:
                artifact_guard.ArtifactGuard(lambda: True).install()
                Accessor().unlink(path)
                with Accessor().open(path, "w") as file:
                    file.write("of a search")
            finally:
                for name, original in before[0].items():
                    setattr(os, name, original)
                builtins.open = io.open = before[1]
                setattr(pathlib, "_NormalAccessor", before[2])
                if before[2] is None:
                    delattr(pathlib, "_NormalAccessor")
            with open(path) as file:
                self.assertEqual(file.read(), "of an earlier run")


if __name__ == "__main__":
    unittest.main()
