"""Lives: forks of one start that are as good as starts, and what makes a process go on without them."""

import sys
import tempfile
import unittest

import torch
from support import PATH, probe, run

AGAIN = {"t": "life", "env": {}}
GO = {"t": "go"}

HEAD = """
import torch, os, sys, random
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0); random.seed(0)
"""
TRAIN = """
model = nn.Sequential(nn.Linear(40, 300), nn.Dropout(0.5), nn.Tanh(), nn.Linear(300, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = TensorDataset(torch.randn(64, 40), torch.randn(64, 2))
for x, y in DataLoader(data, batch_size=8, shuffle=True):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""
TELL = """
import hashlib
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print(hashlib.sha1(weights).hexdigest(), random.random(), torch.rand(1).item())
"""
#: Work before the fork that OpenMP and BLAS have threads for.
BUSY = """
big = torch.ones(3000000) + 1
product = torch.randn(500, 500) @ torch.randn(500, 500)
"""
SENTENCES = """
class Sentences(torch.utils.data.Dataset):
    read = 0
    def __len__(self):
        return 400
    def __getitem__(self, index):
        Sentences.read += 1
        return torch.ones(50 if index == 203 else 1 + index % 7)
def pad(samples):
    return nn.utils.rnn.pad_sequence(samples, batch_first=True)
model = nn.Linear(1, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, batch in enumerate(DataLoader(Sentences(), batch_size=8, collate_fn=pad)):
    if number == 0:
        print(Sentences.read, "longest=%d" % batch.shape[1], flush=True)
    optimizer.zero_grad()
    model(batch[..., None]).sum().backward()
    optimizer.step()
"""
OUT_OF_MEMORY = """
class Greedy(nn.Linear):
    def forward(self, x):
        if len(x) > 20:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")
        return super().forward(x)
model = Greedy(40, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 40), torch.randn(64, 2))
for x, y in DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


def lives(text, answers=(), orders=(), to_all=(), **env):
    return run(text, "probe", answers, orders=orders, to_all=to_all, OOMTUNE_FORK="1", **env)


class Lives(unittest.TestCase):
    def test_each_trains_to_the_weights_of_a_start(self):
        for busy, env in (("", {}), (BUSY, {"OMP_NUM_THREADS": "3", "PYTHONPATH": PATH})):
            text = HEAD + busy + TRAIN + TELL
            start = run(text, "probe", [GO], **env)
            self.assertEqual(start.status, 0, start.errors)
            forked = lives(text, [GO], [AGAIN, AGAIN], **env)
            self.assertEqual(forked.status, 0, forked.errors)
            self.assertEqual(forked.of("plain"), [])
            self.assertEqual(len(forked.of("died")), 3)
            self.assertEqual(forked.output.splitlines(), start.output.splitlines() * 3)

    def test_each_is_a_process_of_its_own_that_says_so(self):
        done = lives(HEAD + TRAIN, [probe(4)], [AGAIN])
        self.assertEqual(done.status, 0, done.errors)
        pids = [message["pid"] for message in done.of("life")]
        self.assertEqual(len(set(pids)), 2)
        self.assertEqual([message["pid"] for message in done.of("hello")], pids)
        self.assertNotIn(done.one("fork_server")["pid"], pids)
        ends = [(message["pid"], message["code"], message["signal"]) for message in done.of("died")]
        self.assertEqual(ends, [(pid, 0, None) for pid in pids])

    def test_the_next_goes_on_only_once_the_one_before_is_gone(self):
        begin = "net = nn.Linear(1, 1)\nheld = bytearray(b'1') * 300000000\n"
        look = """
with open(os.environ["PIDS"], "a+") as pids:
    pids.seek(0)
    print([os.path.exists("/proc/" + pid) for pid in pids.read().split()])
    pids.write("%d " % os.getpid())
"""
        with tempfile.NamedTemporaryFile("w") as pids:
            done = lives(HEAD + begin + look + TRAIN, [probe(4)], to_all=[AGAIN, AGAIN], PIDS=pids.name)
        self.assertEqual(done.status, 0, done.errors)
        self.assertEqual(done.output.splitlines(), ["[]", "[False]", "[False, False]"])
        told = [message["t"] for message in done.messages if message["t"] in ("hello", "died")]
        self.assertEqual(told, ["hello", "died"] * 3)

    def test_they_follow_one_another_where_the_script_has_many_files_open(self):
        many = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = [open(os.devnull) for _ in range(1100)]
"""
        done = lives(HEAD + many + TRAIN, [probe(4)], to_all=[AGAIN])
        self.assertEqual((done.status, len(done.of("hello"))), (0, 2), done.errors)

    def test_one_that_is_killed_before_it_goes_on_is_told_of(self):
        kill = """
if os.environ.get("KILLED") == "yes":
    os.kill(os.getpid(), 9)
"""
        done = lives(
            HEAD + "net = nn.Linear(1, 1)\n" + kill + TRAIN, [probe(4)], [{"t": "life", "env": {"KILLED": "yes"}}]
        )
        self.assertEqual([message["signal"] for message in done.of("died")], [None, 9])

    def test_the_fork_server_ends_as_soon_as_it_is_told_to(self):
        done = lives(HEAD + TRAIN, [probe(4)], to_all=[{"t": "end"}])
        self.assertEqual((done.status, done.of("died")), (0, []), done.errors)

    def test_data_is_read_for_its_longest_samples_once(self):
        done = lives(HEAD + SENTENCES, [probe(4)], [AGAIN, AGAIN])
        self.assertEqual(done.status, 0, done.errors)
        first, *others = [int(line.split()[0]) for line in done.output.splitlines()]
        self.assertGreaterEqual(first, 400)
        self.assertEqual(len(others), 2)
        self.assertLess(max(others), 100)
        self.assertEqual(done.output.split().count("longest=50"), 3)

    def test_another_follows_one_that_ran_out_of_memory(self):
        done = lives(HEAD + OUT_OF_MEMORY + "print('over')", [probe(30)], [AGAIN])
        self.assertEqual([message["oom"] for message in done.of("exception")], [True, True])
        self.assertEqual([message["code"] for message in done.of("died")], [1, 1])
        self.assertEqual(done.status, 1)

    def test_what_was_to_be_removed_at_the_end_is_there_for_the_next(self):
        made = "import tempfile\nfolder = tempfile.TemporaryDirectory()\n"
        look = "print(os.path.isdir(folder.name))\n"
        done = lives(HEAD + made + "net = nn.Linear(1, 1)\n" + look + OUT_OF_MEMORY, [probe(30)], [AGAIN])
        self.assertEqual(done.output.split(), ["True", "True"])

    def test_the_fork_server_ends_as_its_last_life_did(self):
        for last, died, status in (
            ("os.kill(os.getpid(), 9)\n", (None, 9), -9),
            ("sys.exit(3)\n", (3, None), 3),
        ):
            done = lives(HEAD + TRAIN + last, [GO])
            self.assertEqual([(message["code"], message["signal"]) for message in done.of("died")], [died])
            self.assertEqual(done.status, status)

    def test_a_process_that_never_trains_is_none_of_ours(self):
        for last, status in (("os.kill(os.getpid(), 9)\n", -9), ("sys.exit(3)\n", 3), ("", 0)):
            done = lives(HEAD + "net = nn.Linear(1, 1)\n" + last)
            self.assertEqual((done.messages, done.status), ([], status))

    def test_the_fork_server_ends_where_the_worker_is_gone(self):
        done = lives(HEAD + TRAIN, [], [None])
        self.assertEqual(len(done.of("died")), 1)
        self.assertEqual(done.status, 0, done.errors)

    def test_each_reads_files_from_where_they_stood(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("first\nsecond\n")
            file.flush()
            read = "lines = os.open(%r, os.O_RDONLY)\nos.read(lines, 6)\nnet = nn.Linear(1, 1)\nprint(os.read(lines, 99))\n"
            done = lives(HEAD + read % file.name + TRAIN, [], [AGAIN])
        self.assertEqual(done.output.splitlines(), ["b'second\\n'"] * 2)

    def test_what_is_in_buffers_is_written_once(self):
        text = "print('started')\nsys.stdout.write('begun ')\n"
        done = lives(HEAD + text + TRAIN + "print('trained')\n", [GO], [AGAIN])
        self.assertEqual(done.output, "started\nbegun trained\ntrained\n")

    def test_handlers_of_signals_are_the_lives_own(self):
        text = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('asked to end'))\n"
        kill = "net = nn.Linear(1, 1)\nos.kill(os.getpid(), signal.SIGTERM)\n"
        done = lives(HEAD + text + kill + TRAIN, [], [AGAIN])
        self.assertEqual(done.output.splitlines(), ["asked to end"] * 2)

    def test_loader_workers_are_no_lives(self):
        text = HEAD + TRAIN.replace("batch_size=8,", "batch_size=8, num_workers=2,") + TELL
        start = run(text, "probe", [GO])
        done = lives(text, [GO], [AGAIN])
        self.assertEqual(done.status, 0, done.errors)
        self.assertEqual(done.output.splitlines(), start.output.splitlines() * 2)
        self.assertEqual(len(done.of("hello")), 2)

    def test_threads_that_are_there_again_in_a_child_or_can_be_ended_do_not_hinder_it(self):
        # Threads with the names of jemalloc's and NVML's stand in for them, and one of that class for tqdm's.
        text = """
import ctypes, threading
def run(name):
    ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
    named.wait()
    threading.Event().wait()
named = threading.Barrier(3)
for name in (b"jemalloc_bg_thd", b"cuda00001800007"):
    threading.Thread(target=run, args=(name,), daemon=True).start()
named.wait()
class TMonitor(threading.Thread):
    over = threading.Event()
    def run(self):
        self.over.wait()
    def exit(self):
        self.over.set()
        self.join()
TMonitor(daemon=True).start()
"""
        done = lives(HEAD + text + TRAIN, [], [AGAIN])
        self.assertEqual(done.of("plain"), [])
        self.assertEqual(len(done.of("died")), 2)


class NoLives(unittest.TestCase):
    def refused(self, text, why, **env):
        done = lives(HEAD + text + TRAIN + "print('trained')\n", [GO], [AGAIN], **env)
        self.assertEqual(done.status, 0, done.errors)
        self.assertEqual(done.of("fork_server"), [])
        self.assertIn(why, done.one("plain")["message"])
        self.assertEqual(done.output, "trained\n")

    def test_where_threads_would_be_missing(self):
        waits = "import threading\ndone = threading.Event()\nthreading.Thread(target=done.wait, daemon=True).start()\n"
        self.refused(waits, "other threads run: ")

    def test_where_the_driver_has_threads_of_a_context(self):
        # A thread with the name of the driver's stands in for it.
        text = """
import ctypes, threading
def run():
    ctypes.CDLL(None).prctl(15, b"cuda-EvtHandlr", 0, 0, 0)
    named.set()
    threading.Event().wait()
named = threading.Event()
threading.Thread(target=run, daemon=True).start()
named.wait()
"""
        self.refused(text, "other threads run: cuda-EvtHandlr")

    def test_where_the_script_has_children(self):
        self.refused("import subprocess\nchild = subprocess.Popen(['sleep', '1'])\n", "child processes")

    def test_where_the_script_has_sockets(self):
        self.refused("import socket\nline = socket.socketpair()\n", "sockets")

    def test_where_a_timer_runs(self):
        self.refused("import signal\nsignal.setitimer(signal.ITIMER_REAL, 900)\n", "timer")

    def test_where_several_ranks_train(self):
        self.refused("", "several ranks", WORLD_SIZE="2", RANK="0")
        # A script may make the group of ranks itself, without the launcher's variables.
        group = "torch.distributed.%s = lambda *group: %s\n"
        made = (("is_initialized", True), ("get_world_size", 2), ("get_rank", 0))
        self.refused("".join(group % each for each in made), "several ranks")

    def test_where_the_device_was_in_use(self):
        self.refused("torch.cuda.is_initialized = lambda: True\n", "in use before")

    def test_where_the_point_is_not_reached(self):
        # A build of torch without CUDA has no such function; another one is never asked for the device here.
        why = "did not come to a first use" if hasattr(torch._C, "_cuda_init") else "no such device"
        self.refused("", why, OOMTUNE_DEVICE="cuda:0")


#: torch's part that brings CUDA up, where there is no GPU: a stand-in.
CUDA = """
import os, sys
import torch
torch._C._cuda_init = lambda: print("cuda is up in a life:", os.getpid() != first)
torch.cuda.memory._set_allocator_settings = lambda settings: print("allocator:", settings)
first = os.getpid()
os.environ["OOMTUNE_HOOK"] = "probe"
from oomtune.hook import start
start()
print(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
big = torch.nn.Linear(4, 4)
torch._C._cuda_init()
torch._C._cuda_init()
print(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"), os.environ.get("PYTORCH_CUDA_ALLOC_CONF"))
"""


class OnAGpu(unittest.TestCase):
    def test_the_first_use_of_cuda_is_the_fork(self):
        env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        done = run(
            CUDA + HEAD + TRAIN,
            None,
            orders=[{"t": "life", "env": env}],
            command=[sys.executable],
            PYTHONPATH=PATH,
            OOMTUNE_FORK="1",
            OOMTUNE_DEVICE="cuda:0",
        )
        self.assertEqual(done.status, 0, done.errors)
        up = ["cuda is up in a life: True"] * 2
        second = ["allocator: expandable_segments:True", *up, "None expandable_segments:True"]
        self.assertEqual(done.output.splitlines(), ["1", *up, "None None", *second])


if __name__ == "__main__":
    unittest.main()
