"""The configuration in Weights & Biases (offline), MLflow (a folder) and TensorBoard, read back as their users would."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = """
import json, os, sys, oomtune
config = {"micro_batch": 4, "accumulation": 2, "effective_batch": 8, "amp": "bf16", "checkpointing": False}
%s
"""


def run(text, folder, **env):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM % text],
        cwd=folder,
        env=dict(os.environ, HOME=folder, **env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


class Trackers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_without_a_run_nothing_is_written_or_imported(self):
        told = run(
            "before = set(sys.modules)\n"
            "print(json.dumps([oomtune.log_config(config), [n for n in ('wandb', 'mlflow', 'torch') if n in sys.modules]]))",
            self.folder,
        )
        self.assertEqual(told, [[], []])

    def test_no_run_is_opened(self):
        told = run(
            "import mlflow, wandb\n"
            "from torch.utils.tensorboard import SummaryWriter\n"
            "SummaryWriter('closed').close()\n"
            "print(json.dumps([oomtune.log_config(config), wandb.run is None, mlflow.active_run() is None]))",
            self.folder,
        )
        self.assertEqual(told, [[], True, True])

    def test_wandb(self):
        told = run(
            "import wandb\n"
            "run = wandb.init(project='p', mode='offline', settings=wandb.Settings(silent=True), config={'lr': 1})\n"
            "names = oomtune.log_config(config); oomtune.log_config(dict(config, micro_batch=2, accumulation=4))\n"
            "told = json.dumps([names, dict(run.config)], default=dict); run.finish(); print(told)",
            self.folder,
        )
        self.assertEqual(told[0], ["wandb"])
        self.assertEqual(told[1]["lr"], 1)
        self.assertEqual((told[1]["oomtune"]["micro_batch"], told[1]["oomtune"]["effective_batch"]), (2, 8))

    def test_mlflow(self):
        told = run(
            "import mlflow\n"
            "mlflow.set_tracking_uri('file://' + os.getcwd() + '/runs')\n"
            "with mlflow.start_run() as run:\n"
            "    names = oomtune.log_config(config); oomtune.log_config(dict(config, micro_batch=2))\n"
            "data = mlflow.get_run(run.info.run_id).data\n"
            "print(json.dumps([names, data.params, data.tags]))",
            self.folder,
            MLFLOW_ALLOW_FILE_STORE="true",
        )
        self.assertEqual(told[0], ["mlflow"])
        self.assertEqual((told[1]["oomtune.micro_batch"], told[1]["oomtune.amp"]), ("4", "bf16"))
        self.assertEqual(told[2]["oomtune.micro_batch"], "2")  # a parameter cannot be written twice

    def test_tensorboard(self):
        read = (
            "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
            "from torch.utils.tensorboard import SummaryWriter\n"
            "writer = SummaryWriter('runs')\n"
            "names = oomtune.log_config(config%s)\n"
            "events = EventAccumulator('runs'); events.Reload()\n"
            "texts = [e.tensor_proto.string_val[0].decode() for e in events.Tensors('oomtune/text_summary')]\n"
            "print(json.dumps([names, texts]))"
        )
        for given in ("", ", writer=writer"):
            with self.subTest(given), tempfile.TemporaryDirectory() as folder:
                names, texts = run(read % given, folder)
                self.assertEqual(names, ["tensorboard"])
                self.assertEqual(len(texts), 1)
                self.assertIn("| micro_batch | 4 |", texts[0])

    def test_the_configuration_of_the_run_is_the_default(self):
        told = run(
            "import wandb\n"
            "run = wandb.init(project='p', mode='offline', settings=wandb.Settings(silent=True))\n"
            "oomtune.log_config(); told = json.dumps(dict(run.config), default=dict); run.finish(); print(told)",
            self.folder,
            OOMTUNE_MICRO_BATCH="16",
            OOMTUNE_ACCUMULATION="2",
        )
        self.assertEqual((told["oomtune"]["micro_batch"], told["oomtune"]["accumulation"]), (16, 2))


if __name__ == "__main__":
    unittest.main()
