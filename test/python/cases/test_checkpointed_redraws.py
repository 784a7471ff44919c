"""Which blocks draw the same random numbers when they are computed again."""

import sys
import types
import unittest

import torch
from support import PATH
from torch import nn

sys.path[:0] = PATH.split(":")

from oomtune.hook.apply.checkpointing import Checkpointing


class Recurrent(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.layers = nn.LSTM(4, 4, num_layers=2, dropout=dropout)

    def forward(self, x):
        return self.layers(x)[0]


class OnGpu(Recurrent):
    """Stands for one whose weights are on a GPU, of which there may be none here."""

    def parameters(self, recurse=True):
        return iter([types.SimpleNamespace(is_cuda=True)])


def blocks(make):
    model = nn.Sequential(make(), make())
    modules = types.SimpleNamespace(roots=lambda: [model])
    return Checkpointing(torch, modules, None, None, lambda: False).blocks()


class Redraws(unittest.TestCase):
    def test_a_recurrent_block_is_checkpointed_where_its_numbers_are_drawn_by_torch_or_not_at_all(self):
        self.assertEqual(len(blocks(lambda: Recurrent(0.2))), 2)
        self.assertEqual(len(blocks(lambda: OnGpu(0.0))), 2)

    def test_one_whose_numbers_cudnn_draws_is_left_as_it_is(self):
        self.assertEqual(blocks(lambda: OnGpu(0.2)), [])


if __name__ == "__main__":
    unittest.main()
