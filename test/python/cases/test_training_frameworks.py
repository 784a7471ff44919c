"""Training frameworks: probed, and accumulating by their own settings to the same weights."""

import functools
import importlib.util
import os
import sys
import tempfile
import unittest

import support
import torch
from support import probe

#: How a framework comes to be imported is what this is about: the first run of each is a start of its own.
REAL = [sys.executable]

DATA = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(86, 8), torch.randn(86, 3))
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
"""

ACCELERATE = (
    DATA
    + """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, DataLoader(data, batch_size=16, shuffle=True), schedule)
for epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(net(x), y))
        accelerator.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        schedule.step()
torch.save(net.state_dict(), 'out.pt')
"""
)

LIGHTNING = (
    DATA
    + """
import lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net
    def training_step(self, batch, place):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])
    def validation_step(self, batch, place):
        self.log('loss', nn.functional.mse_loss(self.net(batch[0]), batch[1]))
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)
trainer = lightning.Trainer(max_epochs=4, accelerator='cpu', enable_progress_bar=False, accumulate_grad_batches=%d)
trainer.fit(Model(), DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=10))
torch.save(net.state_dict(), 'out.pt')
"""
)

TRAINER = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from torch.utils.data import Dataset
class Text(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        tokens = torch.arange(20) + i
        return {'input_ids': tokens, 'labels': tokens}
torch.manual_seed(0)
config = GPT2Config(vocab_size=200, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
model = GPT2LMHeadModel(config)
arguments = TrainingArguments(output_dir='folder', per_device_train_batch_size=8, gradient_accumulation_steps=%d,
                              num_train_epochs=3, use_cpu=True, learning_rate=0.1, optim='sgd', save_steps=1)
Trainer(model=model, args=arguments, train_dataset=Text()).train()
torch.save(model.state_dict(), 'out.pt')
"""


#: 64 samples three times; counts its losses, and those that it logs.
OWN_LOSS = (
    TRAINER.replace("%d", "1")
    .replace(
        "torch.manual_seed(0)",
        """
class Own(Trainer):
    made, told = 0, 0
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        found = model(**inputs).logits.mean(1)
        self.made += 1
        self.log({'made': self.made})
        %s
        return loss
    def log(self, logs, *args, **kwargs):
        self.told += 'made' in logs
torch.manual_seed(0)""",
    )
    .replace("Trainer(model=model", "trainer = Own(model=model")
    .replace(").train()", ")\ntrainer.train()\nprint(trainer.made, trainer.told)")
)
COMPARES = "loss = torch.nn.functional.cross_entropy(found @ found.flip(0).t(), torch.arange(len(found)))"

KERAS = """
import os
os.environ['KERAS_BACKEND'] = 'torch'
import keras, numpy, torch
keras.config.set_floatx('float64')
keras.utils.set_random_seed(0)
x, y = numpy.random.rand(90, 8), numpy.random.rand(90, 3)
net = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation='tanh'), keras.layers.Dense(3)])
net.compile(loss='mse', optimizer=keras.optimizers.Adam(1e-2))
net.fit(x, y, batch_size=16, epochs=3, validation_split=0.1, verbose=0)
torch.save({**net.state_dict(), 'steps': torch.tensor(float(net.optimizer.iterations))}, 'out.pt')
"""

#: Makes a mean of the samples that it is given, and accepts any argument.
CLASSIFIER = (
    (TRAINER % 1)
    .replace("import GPT2Config, GPT2LMHeadModel", "import BertConfig, BertForSequenceClassification")
    .replace("'labels': tokens", "'labels': i % 2")
    .replace("GPT2LMHeadModel(config)", "BertForSequenceClassification(config)")
    .replace(
        "GPT2Config(vocab_size=200, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)",
        "BertConfig(vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, hidden_dropout_prob=0, attention_probs_dropout_prob=0)",
    )
)
STREAM = """
torch.manual_seed(0)
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): return (%s[i] for i in range(len(%s)))
class Batches(torch.utils.data.IterableDataset):
    def __init__(self, size): self.size = size
    def __iter__(self): return iter(torch.utils.data.DataLoader(%s, batch_size=self.size))
"""
OWN_LOADER = (
    (TRAINER % 1)
    .replace("torch.manual_seed(0)", STREAM.replace("%s", "Text()"), 1)
    .replace(
        "Trainer(model=",
        "class Loads(Trainer):\n    def get_train_dataloader(self):\n        return torch.utils.data.DataLoader(%s)\nLoads(model=",
        1,
    )
    .replace("per_device_train_batch_size=8, ", "")
    .replace("num_train_epochs=3", "max_steps=20")
)


def needs(package):
    found = importlib.util.find_spec(package) is not None
    return unittest.skipUnless(found, "%s is not installed for this interpreter" % package)


class Entries(unittest.TestCase):
    def drive(self, run, text, own, command=None):
        answers = [
            probe(4),
            probe(20, steps=2),
            probe(6, accumulation=2),
            probe(6, checkpointing=True),
            probe(6, amp="bf16"),
        ]
        with tempfile.TemporaryDirectory() as folder:
            result = run(text, "probe", answers, cwd=folder, command=command)
            files = set(os.listdir(folder))
        self.assertEqual(result.status, 0, result.errors)
        measured = result.of("measured")
        self.assertEqual([m["micro_batch"] for m in measured], [4, 20, 6, 6, 6])
        self.assertEqual([m["own_accumulation"] for m in measured], [own] * 5)
        self.assertEqual([m["accumulation"] for m in measured], [own, own, max(own, 2), own, own])
        self.assertEqual(files & {"out.pt", "lightning_logs", "checkpoints"}, set())

    def weights(self, run, text, **env):
        with tempfile.TemporaryDirectory() as folder:
            result = run(text, "apply", cwd=folder, **env)
            self.assertEqual(result.status, 0, result.errors)
            self.cut = [(message["cut"], message["why"]) for message in result.of("cut")]
            return torch.load(os.path.join(folder, "out.pt"))

    def assert_equivalent(self, run, text, micro, accumulation):
        bare = self.weights(run, text)
        self.assertEqual(self.cut, [])
        knobs = "micro_batch,accumulation"
        env = {"OOMTUNE_MICRO_BATCH": micro, "OOMTUNE_ACCUMULATION": accumulation, "OOMTUNE_HOOK_KNOBS": knobs}
        tuned = self.weights(run, text, **env)
        for name, value in bare.items():
            difference = (value - tuned[name]).norm() / value.norm().clamp_min(1e-12)
            self.assertLess(difference.item(), 1e-5, name)

    @needs("accelerate")
    def test_accelerate(self):
        run = functools.partial(support.run, imported=("accelerate",))
        self.drive(run, ACCELERATE, 1, REAL)
        self.assert_equivalent(run, ACCELERATE, 4, 4)
        self.assertEqual(self.cut, [("model", "the loop sees its own batches only")])

    @needs("lightning")
    def test_lightning(self):
        run = functools.partial(support.run, imported=("lightning",))
        self.drive(run, LIGHTNING % 1, 1)
        self.drive(run, LIGHTNING % 2, 2, REAL)
        self.assert_equivalent(run, LIGHTNING % 1, 4, 4)
        self.assertEqual(self.cut, [("loader", "Lightning accumulates by itself")])
        counted = "Trainer(limit_train_batches=4, val_check_interval=2, "
        self.assert_equivalent(run, LIGHTNING.replace("Trainer(", counted) % 1, 4, 4)
        # What compares the samples would compare those of a micro-batch.
        mean = "nn.functional.mse_loss(self.net(batch[0]), batch[1])\n    def validation"
        compared = "nn.functional.cross_entropy(self.net(batch[0]) @ batch[1].t(), torch.arange(len(batch[0])))\n    def validation"
        contrast = LIGHTNING.replace(mean, compared) % 1
        knobs = {"OOMTUNE_MICRO_BATCH": 4, "OOMTUNE_ACCUMULATION": 4, "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"}
        result = run(contrast, "apply", OOMTUNE_OWN_BATCH=16, **knobs)
        self.assertEqual((result.status, result.one("goodbye")["reason"]), (1, "at_model"), result.errors)
        self.assertIn("is cut at the model's call, since ", result.one("goodbye")["message"])
        self.assertNotIn("--cut loader", result.errors)
        result = run(contrast, "apply", OOMTUNE_OWN_BATCH=16, OOMTUNE_CUT="model", **knobs)
        self.assertEqual(result.status, 0, result.errors)
        # Nor is a mean over what counts one over the samples, if only some of them have less of it.
        masked = "(lambda counts: ((self.net(batch[0]) - batch[1]) ** 2 * counts).sum() / counts.sum())(batch[1] != 0)"
        masked = LIGHTNING.replace(mean, masked + "\n    def validation").replace("batch_size=16", "batch_size=32") % 1
        masked = masked.replace("net =", "data.tensors[1][7::9] = 0\nnet =", 1)
        knobs.update(OOMTUNE_MICRO_BATCH=16, OOMTUNE_ACCUMULATION=2)
        result = run(masked, "apply", OOMTUNE_OWN_BATCH=32, **knobs)
        self.assertEqual((result.status, result.one("goodbye")["reason"]), (1, "at_model"), result.errors)

    @needs("keras")
    def test_keras(self):
        run = support.run  # it is imported for the backend that its environment names
        self.drive(run, KERAS, 1, REAL)
        self.assert_equivalent(run, KERAS, 4, 4)
        counted = [("model", "Keras counts the batches of a pass before it")]
        self.assertEqual(self.cut, counted)
        # Each pass has as many batches as it has where the script itself asks for them.
        bare = self.weights(run, KERAS.replace("batch_size=16", "batch_size=8"))
        knobs = {"OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation", "OOMTUNE_OWN_BATCH": 16, "OOMTUNE_CUT": "loader"}
        for micro, accumulation, cut in ((8, 1, []), (4, 2, counted)):
            sizes = {"OOMTUNE_MICRO_BATCH": micro, "OOMTUNE_ACCUMULATION": accumulation}
            tuned = self.weights(run, KERAS, **knobs, **sizes)
            self.assertEqual(self.cut, cut)
            for name, value in bare.items():
                self.assertLess((value - tuned[name]).abs().max().item(), 1e-7, (micro, name))

    @needs("transformers")
    def test_trainer(self):
        run = functools.partial(support.run, imported=("transformers.trainer",))
        self.drive(run, TRAINER % 1, 1)
        self.drive(run, TRAINER % 2, 2, REAL)
        self.assert_equivalent(run, TRAINER % 1, 2, 4)
        self.assertEqual(self.cut, [("loader", "transformers accumulates by itself")])
        dropped = (
            (TRAINER % 1)
            .replace("batch_size=8", "batch_size=12")
            .replace("use_cpu", "dataloader_drop_last=True, use_cpu")
        )
        self.assert_equivalent(run, dropped, 3, 4)

    @needs("transformers")
    def test_trainer_whose_callback_looks_for_its_evaluation(self):
        """In a search it neither evaluates nor saves, though its arguments say so."""
        run = functools.partial(support.run, imported=("transformers.trainer",))
        quiet = """
class Quiet(Trainer):
    def evaluate(self, *args, **kwargs): raise AssertionError('evaluated')
    def _save_checkpoint(self, *args, **kwargs): raise AssertionError('saved')
Quiet(model=model, callbacks=[transformers.EarlyStoppingCallback(1)], eval_dataset=Text(),"""
        best = "eval_strategy='steps', eval_steps=1, load_best_model_at_end=True, use_cpu"
        script = "import transformers" + (TRAINER % 1).replace("Trainer(model=model,", quiet).replace("use_cpu", best)
        self.drive(run, script, 1)

    @needs("transformers")
    def test_trainer_with_a_loss_of_its_own(self):
        run = functools.partial(support.run, imported=("transformers.trainer",))
        knobs = {"OOMTUNE_MICRO_BATCH": 2, "OOMTUNE_ACCUMULATION": 4, "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"}
        result = run(OWN_LOSS % COMPARES, "apply", OOMTUNE_OWN_BATCH=8, **knobs)
        self.assertEqual((result.status, result.one("goodbye")["reason"]), (1, "at_model"), result.errors)
        why = "Own.compute_loss computes a loss that compares the samples of its batch"
        self.assertIn(why, result.one("goodbye")["message"])
        self.assertIn("is cut at the model's call, since ", result.one("goodbye")["message"])
        given = "compute_loss_func=lambda outputs, labels, **more: compared(outputs.logits.mean(1)), "
        compared = "def compared(found):\n    %s\n    return loss\ntorch.manual_seed(0)" % COMPARES
        script = (
            (TRAINER % 1).replace("torch.manual_seed(0)", compared).replace("Trainer(model", "Trainer(%smodel" % given)
        )
        result = run(script, "apply", OOMTUNE_OWN_BATCH=8, **knobs)
        self.assertIn("Trainer.compute_loss computes a loss that", result.one("goodbye")["message"], result.errors)
        # The worker starts it again so.
        bare = self.weights(run, OWN_LOSS % COMPARES)
        whole = self.weights(run, OWN_LOSS % COMPARES, OOMTUNE_CUT="whole", OOMTUNE_OWN_BATCH=8, **knobs)
        self.assertEqual(self.cut, [("model", "micro-batches that transformers adds up would be another training")])
        for name, value in bare.items():
            self.assertLess((value - whole[name]).norm().item(), 1e-6 * max(1, value.norm().item()))
        # One that is divided by the items of the whole batch is left to Trainer, and what it gathers is that of its steps alone.
        divided = "loss = found.pow(2).sum() / num_items_in_batch"
        result = run(OWN_LOSS % divided, "apply", OOMTUNE_OWN_BATCH=8, **knobs)
        self.assertEqual((result.status, result.output.split()[-2:]), (0, ["96", "96"]), result.errors)
        self.assertEqual(result.one("cut")["cut"], "loader")

    @needs("transformers")
    def test_trainer_with_a_loss_that_it_would_not_divide(self):
        """Trainer leaves the division to models that accept any argument, though many of them take the mean of what they are given."""
        run = functools.partial(support.run, imported=("transformers.trainer",))
        knobs = {"OOMTUNE_MICRO_BATCH": 2, "OOMTUNE_ACCUMULATION": 4, "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation"}
        for script in (CLASSIFIER, OWN_LOSS % "loss = found.pow(2).mean()"):
            result = run(script, "apply", OOMTUNE_OWN_BATCH=8, **knobs)
            self.assertEqual((result.status, result.one("goodbye")["reason"]), (1, "at_model"), result.errors)
            self.assertIn("is not divided by the items of the whole batch", result.one("goodbye")["message"])
            flags = script.replace(
                "batch_size=8, gradient_accumulation_steps=1", "batch_size=2, gradient_accumulation_steps=4"
            )
            result = run(flags, "apply", OOMTUNE_OWN_BATCH=8, OOMTUNE_MICRO_BATCH=2, OOMTUNE_ACCUMULATION=4)
            self.assertEqual((result.status, result.one("goodbye")["reason"]), (1, "at_model"), result.errors)
            bare = self.weights(run, script)
            whole = self.weights(run, script, OOMTUNE_CUT="whole", OOMTUNE_OWN_BATCH=8, **knobs)
            for name, value in bare.items():
                self.assertLess((value - whole[name]).norm().item(), 1e-5 * max(1, value.norm().item()), name)

    @needs("transformers")
    def test_trainer_with_a_loader_of_the_script(self):
        """Its batches have their size by no argument, so Trainer alone would add up four whole ones."""
        run = functools.partial(support.run, imported=("transformers.trainer",))
        self.assert_equivalent(run, OWN_LOADER % "Text(), batch_size=8, shuffle=True", 2, 4)
        self.assertEqual(self.cut, [("loader", "transformers accumulates by itself")])
        self.assert_equivalent(run, OWN_LOADER % "Stream(), batch_size=8", 2, 4)
        self.assert_equivalent(run, OWN_LOADER % "Text(), batch_size=12, drop_last=True", 3, 4)
        prepared = OWN_LOADER.replace(
            "torch.utils.data.DataLoader(%s)", "self.accelerator.prepare(torch.utils.data.DataLoader(%s))"
        )
        self.assert_equivalent(run, prepared % "Text(), batch_size=8, shuffle=True", 2, 4)
        made = OWN_LOADER % "Batches(8), batch_size=None"
        self.assert_at_model(run, made, "the script's loader makes batches that transformers cannot have smaller")

    @needs("lightning")
    def test_lightning_with_a_stream(self):
        run = functools.partial(support.run, imported=("lightning",))
        script = LIGHTNING.replace("torch.manual_seed(0)", STREAM.replace("%s", "data"), 1) % 1
        loader = "DataLoader(data, batch_size=16, shuffle=True)"
        stream = script.replace(loader, "DataLoader(Stream(), batch_size=16)")
        self.assert_at_model(run, stream, "how many samples the last batch of the script's stream has is not known", 4)
        plain = "class Plain:\n    def __iter__(self): return zip(*(each.split(16) for each in data.tensors))\n"
        script = script.replace("import lightning", plain + "import lightning")
        for made in ("DataLoader(Batches(16), batch_size=None)", "Batches(16)", "Plain()"):
            why = "the script's loader makes batches that Lightning cannot have smaller"
            self.assert_at_model(run, script.replace(loader, made), why, 4)
        # A step that calls parts of the model, each with another part of the batch.
        parts = script.replace(
            "self.net(batch[0])", "torch.cat((self.net[:2](batch[0]), batch[1]), 1) @ torch.ones(19, 3)"
        )
        self.drive(run, parts.replace(loader, "Plain()"), 1)

    @needs("lightning")
    def test_lightning_where_the_script_counts_on_whole_batches(self):
        run = functools.partial(support.run, imported=("lightning",))
        average = (
            "class Average(lightning.Callback):\n    def on_train_batch_end(self, *_): net[0].weight.data.mul_(0.999)\n"
        )
        script = LIGHTNING.replace("trainer =", average + "trainer =")
        averaged = script.replace("Trainer(", "Trainer(callbacks=[Average()], ")
        why = "Average.on_train_batch_end() is to be called once for each batch"
        self.assert_at_model(run, averaged % 1, why, 4)
        of_model = LIGHTNING.replace("    def configure", "    def on_after_backward(self): pass\n    def configure")
        why = "Model.on_after_backward() is to be called once for each batch"
        self.assert_at_model(run, of_model % 1, why, 4)
        scheduler = "lightning.pytorch.callbacks.GradientAccumulationScheduler({0: 2, 2: 1})"
        scheduled = LIGHTNING.replace("Trainer(", "Trainer(callbacks=[%s], " % scheduler) % 1
        why = "GradientAccumulationScheduler sets how many batches Lightning accumulates"
        self.assert_at_model(run, scheduled, why, 4, own=2)

    @needs("lightning")
    def test_a_last_smaller_batch_counts_as_much_as_others_where_the_script_accumulates(self):
        run = functools.partial(support.run, imported=("lightning",))
        why = "Lightning is to accumulate 2 batches, and the last one of a pass is smaller"
        self.assert_at_model(run, LIGHTNING % 2, why, 4, own=2)

    @needs("lightning")
    def test_a_batch_that_was_edited_is_not_made_what_it_was_in_lightning(self):
        run = functools.partial(support.run, imported=("lightning",))
        self.assert_at_model(run, LIGHTNING % 1, "the script's batch has 16 samples, and 8 were known", known=8)

    @needs("transformers")
    def test_a_batch_that_was_edited_is_not_made_what_it_was_in_transformers(self):
        run = functools.partial(support.run, imported=("transformers",))
        self.assert_at_model(run, TRAINER % 1, "the script's batch has 8 samples, and 16 were known", 4, known=16)

    @needs("lightning")
    def test_batches_of_no_one_size_stay_as_they_are_in_lightning(self):
        run = functools.partial(support.run, imported=("lightning",))
        listed = (
            "DataLoader(data, batch_sampler=[list(range(n, n + size)) for n, size in ((0, 16), (16, 40), (56, 30))])"
        )
        for own in (1, 2):
            script = LIGHTNING.replace("DataLoader(data, batch_size=16, shuffle=True)", listed) % own
            self.assert_kept(run, script, "Lightning", own)

    @needs("transformers")
    def test_batches_of_no_one_size_stay_as_they_are_in_transformers(self):
        run = functools.partial(support.run, imported=("transformers.trainer",))
        sizes = "[list(range(n, n + size)) for n, size in ((0, 8), (8, 24), (32, 20), (52, 12))]"
        script = OWN_LOADER % ("Text(), batch_sampler=%s" % sizes)
        self.assert_kept(run, script.replace("max_steps=20", "num_train_epochs=3"), "transformers", 1)

    def assert_kept(self, run, script, framework, own):
        """As where a search has seen no one size, nor was another asked for."""
        env = {
            "OOMTUNE_MICRO_BATCH": 12,
            "OOMTUNE_ACCUMULATION": own,
            "OOMTUNE_OWN_ACCUMULATION": own,
            "OOMTUNE_OWN_BATCH": "unknown",
            "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation",
        }
        bare = self.weights(run, script)
        for cut in ("auto", "loader"):
            tuned = self.weights(run, script, OOMTUNE_CUT=cut, **env)
            self.assertEqual(
                self.cut, [("model", "the batches that %s takes have no one size that is known" % framework)]
            )
            for name, value in bare.items():
                self.assertLess((value - tuned[name]).norm().item(), 1e-5 * max(1, value.norm().item()), name)

    def assert_at_model(self, run, script, why, micro=2, own=1, known=None):
        """`known`: the samples of the script's batch, of which there are four micro-batches else."""
        batch = known or 4 * micro
        env = {
            "OOMTUNE_MICRO_BATCH": micro,
            "OOMTUNE_ACCUMULATION": batch // micro * own,
            "OOMTUNE_OWN_ACCUMULATION": own,
            "OOMTUNE_HOOK_KNOBS": "micro_batch,accumulation",
        }
        result = run(script, "apply", OOMTUNE_OWN_BATCH=batch, **env)
        self.assertEqual((result.status, result.one("goodbye")["reason"]), (1, "at_model"), result.errors)
        self.assertIn(why, result.one("goodbye")["message"])
        bare = self.weights(run, script)
        whole = self.weights(run, script, OOMTUNE_CUT="whole", OOMTUNE_OWN_BATCH=batch, **env)
        self.assertEqual([cut for cut, _ in self.cut], ["model"])
        for name, value in bare.items():
            self.assertLess((value - whole[name]).norm().item(), 1e-5 * max(1, value.norm().item()), name)


if __name__ == "__main__":
    unittest.main()
