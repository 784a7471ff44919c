"""The hook comes by the environment, stays out of the way, and costs nothing where no torch is."""

import functools
import os
import subprocess
import sys
import tempfile
import unittest

import support
from support import PATH, ROOT, Worker, environment

#: How torch comes to be imported is what this is about: each script is a start of its own.
run = functools.partial(support.run, command=[sys.executable])


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=60,
        **options,
    )


class Injection(unittest.TestCase):
    def test_another_sitecustomize_still_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "sitecustomize.py"), "w") as file:
                file.write("import sys\nsys.theirs = __file__\n")
            env = environment(mode="probe")
            env["PYTHONPATH"] = PATH + os.pathsep + folder
            done = python(
                "-c", "import sys; print(sys.theirs); import sitecustomize; print(sitecustomize.__file__)", env=env
            )
        theirs = os.path.join(folder, "sitecustomize.py")
        self.assertEqual(done.stdout.split(), [theirs, theirs], done.stderr)

    def test_a_failing_sitecustomize_fails_as_ever(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "sitecustomize.py"), "w") as file:
                file.write("raise RuntimeError('theirs')\n")
            env = environment(mode="probe")
            env["PYTHONPATH"] = PATH + os.pathsep + folder
            done = python("-c", "print('on')", env=env)
        self.assertEqual(done.stdout, "on\n")
        self.assertIn("theirs", done.stderr)

    def test_isolated_interpreters_run_without_the_hook(self):
        worker = Worker()
        for flag in ("-I", "-E", "-S"):
            with self.subTest(flag):
                done = python(
                    flag, "-c", "import sys; print('oomtune.hook' in sys.modules)", env=environment(worker, "probe")
                )
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "False\n", ""))
        self.assertEqual(worker.connections, 0)
        worker.close()

    def test_no_hook_without_the_word(self):
        for mode in (None, "", "nonsense"):
            with self.subTest(mode):
                env = environment(mode=mode)
                done = python(
                    "-c", "import sys; print([m for m in sys.modules if m.startswith('oomtune.hook.hook')])", env=env
                )
                self.assertEqual((done.stdout, done.stderr), ("[]\n", ""))

    def test_processes_without_torch_load_little(self):
        count = "import sys; print(len(sys.modules), 'torch' in sys.modules, 'numpy' in sys.modules)"
        bare = python("-c", count, env=environment())
        hooked = python("-c", count, env=environment(mode="probe", OOMTUNE_HOOK_SOCKET="/nowhere/s"))
        self.assertEqual(hooked.stdout.split()[1:], ["False", "False"], hooked.stderr)
        self.assertLess(int(hooked.stdout.split()[0]) - int(bare.stdout.split()[0]), 25)

    def test_the_hook_sets_off_no_collection_when_torch_has_been_imported(self):
        script = (
            "import gc, sys\n"
            "mine = []\n"
            "def look(phase, info):\n"
            "    frame = sys._getframe(1)\n"
            "    while frame is not None:\n"
            "        path = frame.f_code.co_filename\n"
            "        if '/oomtune/hook/' in path and not path.endswith('post_import.py'): mine.append(path)\n"
            "        frame = frame.f_back\n"
            "gc.callbacks.append(look)\n"
            "import torch\n"
            "print(mine[:1], gc.isenabled())\n"
        )
        for mode in ("probe", "apply"):
            result = run(script, mode)
            self.assertEqual(result.output, "[] True\n", result.errors)

    def test_the_loader_of_torch_keeps_its_type(self):
        result = run("import torch\nprint(type(torch.__spec__.loader).__name__)\n", "probe")
        self.assertEqual(result.output, "SourceFileLoader\n", result.errors)

    def test_modules_run_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "package"))
            with open(os.path.join(folder, "package", "__main__.py"), "w") as file:
                file.write("import torch; print('ran', torch.optim.Optimizer.__init__.__wrapped__ is not None)\n")
            done = python("-m", "package", cwd=folder, env=environment(mode="apply", OOMTUNE_HOOK_SOCKET="/nowhere/s"))
        self.assertEqual(done.stdout, "ran True\n", done.stderr)

    def test_subprocesses_do_not_connect(self):
        result = run(
            "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import torch; print(1)'], check=True)\n",
            "probe",
        )
        self.assertEqual((result.status, result.connections), (0, 0), result.errors)

    def test_trackers_are_quiet_while_probing(self):
        text = "import os\nprint(os.environ.get('WANDB_MODE'))\n"
        self.assertEqual(run(text, "probe").output, "disabled\n")
        self.assertEqual(run(text, "apply").output, "None\n")

    def test_wheel_has_no_dependencies(self):
        with open(os.path.join(ROOT, "python", "pyproject.toml")) as file:
            self.assertIn("\ndependencies = []\n", file.read())


class Sdk(unittest.TestCase):
    def test_outside_oomtune(self):
        text = "import oomtune\nprint(oomtune.config(micro_batch=8))\n"
        env = environment()
        done = python("-c", text, env=env)
        self.assertEqual(
            done.stdout,
            "Config(micro_batch=8, accumulation=1, effective_batch=8, amp='off', checkpointing=False, device=None, "
            "budget_bytes=None, job_id=None, resume=False)\n",
            done.stderr,
        )

    def test_inside(self):
        text = "import oomtune\nprint(oomtune.config(micro_batch=8, checkpointing=True))\n"
        env = environment(
            OOMTUNE_MICRO_BATCH=4,
            OOMTUNE_ACCUMULATION=2,
            OOMTUNE_EFFECTIVE_BATCH=16,
            OOMTUNE_AMP="bf16",
            OOMTUNE_CHECKPOINTING=0,
            OOMTUNE_DEVICE="cuda:1",
            OOMTUNE_BUDGET_BYTES=1024,
            OOMTUNE_JOB_ID="j-1",
            OOMTUNE_RESUME=1,
        )
        self.assertEqual(
            python("-c", text, env=env).stdout,
            "Config(micro_batch=4, accumulation=2, effective_batch=16, amp='bf16', checkpointing=False, device='cuda:1', "
            "budget_bytes=1024, job_id='j-1', resume=True)\n",
        )

    def test_nonsense_is_named(self):
        env = environment(OOMTUNE_MICRO_BATCH="many")
        done = python("-c", "import oomtune; oomtune.config()", env=env)
        self.assertIn("ValueError: OOMTUNE_MICRO_BATCH: expected a whole number of at least 1, got 'many'", done.stderr)

    def test_it_is_light(self):
        done = python("-X", "importtime", "-c", "import oomtune", env=environment())
        self.assertNotIn("torch", done.stderr)
        self.assertNotIn("oomtune.hook", done.stderr)


if __name__ == "__main__":
    unittest.main()
