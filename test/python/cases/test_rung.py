"""What a device can do, on GPUs that are not here: a stand-in answers for torch.cuda."""

import os
import sys
import tempfile
import types
import unittest
import unittest.mock

import torch
from support import ROOT

sys.path.insert(0, os.path.join(ROOT, "python"))

from oomtune.hook.apply.optimizer_8bit import Optimizer8bit
from oomtune.hook.apply.rung import Rung


def rung(bf16):
    """A rung on a GPU of which torch.cuda.is_bf16_supported is this."""
    root = types.SimpleNamespace(parameters=lambda: [types.SimpleNamespace(is_cuda=True)])
    modules = types.SimpleNamespace(roots=lambda: [root], dtypes=lambda: {torch.float32})
    stand_in = types.SimpleNamespace(
        autocast=torch.autocast, float32=torch.float32, cuda=types.SimpleNamespace(is_bf16_supported=bf16)
    )
    hook = types.SimpleNamespace(
        settings=types.SimpleNamespace(world_size=1), stop_unchunked=None, stop_without_8bit=None
    )
    return Rung(stand_in, modules, None, types.SimpleNamespace(running=False), lambda: False, hook)


class Types(unittest.TestCase):
    def test_emulated_bf16_is_none(self):
        turing = rung(lambda including_emulation=True: including_emulation)
        self.assertEqual((turing.can_amp(), turing.can_fp16()), (False, True))
        ampere = rung(lambda including_emulation=True: True)
        self.assertEqual((ampere.can_amp(), ampere.can_fp16()), (True, True))

    def test_an_older_torch_is_asked_as_it_can_be(self):
        self.assertEqual(rung(lambda: False).can_amp(), False)
        self.assertEqual(rung(lambda: True).can_amp(), True)

    def test_a_bitsandbytes_that_cannot_be_imported_is_refused_with_its_reason(self):
        def refuse(why):
            raise SystemExit(why)

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        knob = Optimizer8bit(torch, types.SimpleNamespace(known=lambda: [optimizer]), refuse)
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "bitsandbytes.py"), "w") as file:
                file.write("raise OSError('libcudart is not there\\nand more')")
            told = self.assertRaisesRegex(SystemExit, r"cannot be imported \(libcudart is not there\)$")
            with unittest.mock.patch.object(sys, "path", [folder, *sys.path]), told:
                knob.switch(True)


if __name__ == "__main__":
    unittest.main()
