"""Beside accelerate's finder, and in a real Trainer of transformers."""

import inspect
import tempfile
import unittest

import oomtune
import torch
from torch import nn


class Finder(unittest.TestCase):
    def setUp(self):
        from accelerate.utils import find_executable_batch_size

        self.both = {"theirs": find_executable_batch_size, "ours": oomtune.find_executable_batch_size}

    def each(self, behaviour):
        """What a function does with each of the two."""
        return [behaviour(self.both["theirs"]), behaviour(self.both["ours"])]

    def test_the_signature_is_the_same(self):
        def parameters(function):
            given = inspect.signature(function).parameters.values()
            return [(parameter.name, parameter.default, parameter.kind) for parameter in given]

        theirs, ours = self.each(parameters)
        self.assertEqual(theirs, ours)

    def test_it_does_the_same(self):
        def sizes(finder, message="CUDA out of memory. Tried to allocate 1 GiB", fits=50, **options):
            tried = []

            def train(batch_size, more, *, named=None):
                tried.append((batch_size, more, named))
                if batch_size > fits:
                    raise RuntimeError(message)
                return batch_size

            decorated = finder(train, **options) if options else finder()(train)
            try:
                tried.append(decorated("x", named=1))
                tried.append(decorated("y"))
            except RuntimeError as error:
                tried.append(str(error))
            return tried

        for options in (
            {},
            {"starting_batch_size": 64},
            {"starting_batch_size": 7, "fits": 0},
            {"starting_batch_size": 64, "message": "DefaultCPUAllocator: can't allocate memory: you tried"},
            {"starting_batch_size": 64, "message": "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED."},
            {"starting_batch_size": 64, "message": "MPS backend out of memory (a)"},
            {"starting_batch_size": 64, "message": "shapes differ"},
        ):
            with self.subTest(options):
                theirs, ours = self.each(lambda finder, options=options: sizes(finder, **options))
                self.assertEqual(theirs, ours)

    def test_a_reduction_of_the_callers(self):
        def sizes(finder):
            tried, left = [], iter([10, 5, 1])

            @finder(starting_batch_size=20, reduce_batch_size_fn=lambda: next(left))
            def train(batch_size):
                tried.append(batch_size)
                if batch_size > 1:
                    raise RuntimeError("CUDA out of memory.")

            train()
            return tried

        theirs, ours = self.each(sizes)
        self.assertEqual(theirs, ours)

    def test_a_size_that_is_passed_is_refused_alike(self):
        def refusal(finder):
            @finder(starting_batch_size=20)
            def train(batch_size, model):
                pass

            try:
                train(128, "m")
            except TypeError as error:
                return str(error)

        theirs, ours = self.each(refusal)
        self.assertEqual(theirs, ours)


class TrainerCallback(unittest.TestCase):
    def train(self, folder, callbacks):
        from transformers import Trainer, TrainingArguments, set_seed

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
                self.sizes = []
                self.body[1].register_forward_hook(lambda _, inputs, __: self.sizes.append(len(inputs[0])))

            def forward(self, x, labels=None):
                output = self.body(x).squeeze(1)
                return {"loss": nn.functional.mse_loss(output, labels), "logits": output}

        set_seed(0)
        net = Net()
        data = [{"x": torch.randn(8), "labels": torch.randn(())} for _ in range(40)]
        args = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=10,
            gradient_accumulation_steps=2,
            num_train_epochs=2,
            optim="sgd",  # Adam divides rounding by gradients that are next to zero
            learning_rate=0.01,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(model=net, args=args, train_dataset=data, callbacks=callbacks)
        trainer.train()
        return trainer.state, net

    def test_batches_are_cut_and_the_training_is_the_same(self):
        from oomtune.integrations.transformers import OomtuneCallback
        from torch.utils.tensorboard import SummaryWriter

        with tempfile.TemporaryDirectory() as folder:
            before, whole = self.train(folder, [])
            writer = SummaryWriter(folder + "/runs")
            after, cut = self.train(folder, [OomtuneCallback(4)])
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

            events = EventAccumulator(folder + "/runs")
            events.Reload()
            text = events.Tensors("oomtune/text_summary")[0].tensor_proto.string_val[0].decode()
            writer.close()
        self.assertEqual((max(whole.sizes), max(cut.sizes)), (10, 4))
        self.assertEqual((before.global_step, before.max_steps), (after.global_step, after.max_steps))
        self.assertEqual(after.global_step, 4)
        for one, other in zip(whole.parameters(), cut.parameters()):
            self.assertTrue(torch.allclose(one, other, rtol=1e-5, atol=1e-6))
        for line in ("| micro_batch | 4 |", "| accumulation | 6 |", "| effective_batch | 20 |"):
            self.assertIn(line, text)


if __name__ == "__main__":
    unittest.main()
