"""Why a call cannot be cut."""

from __future__ import annotations

#: Where the model's own calls can be cut.
INSTEAD = " (with --cut model it does not)"
#: Where what the loader yields in parts would be another training, too.
NOWHERE = " (nor would --cut loader train the same)"
#: Where outputs for some of the samples differ in another dimension: the usual reason.
UNPADDED = (
    "; where it calls pad_packed_sequence(), total_length makes them as long as its input, whatever the longest sample"
)


class Uncuttable(Exception):
    """The call is not known to give the same in micro-batches. Its text says why, as the end of a sentence."""

    severity = 2
    #: Whether the loader's batches may be cut instead.
    elsewhere = True


class Mismatch(Uncuttable):
    """Cut along these dimensions, micro-batches do not give what the whole batch gives; along others they may."""

    severity = 1


class Unseen(Mismatch):
    """It cannot be run on a part of the samples, or what it returns cannot be looked into: nothing is known of what it makes of them."""


class Unreduced(Uncuttable):
    """One value for all samples is not known to be made of those of micro-batches: a loss may compare the samples."""

    elsewhere = False


class NoMean(Unreduced):
    """Such a value is neither a mean nor a sum over the samples or their tokens."""

    def __init__(self) -> None:
        super().__init__("it returns a value that is neither a mean nor a sum over its samples or their tokens")


class OtherGradients(Mismatch):
    """Its outputs join, and the gradients of micro-batches do not add up: its backward pass makes something of all samples."""

    elsewhere = False


class LeavesOnWeights(Uncuttable):
    """Its backward pass leaves something on its weights besides their gradients, which micro-batches do not add up."""

    elsewhere = False


class WritesWeights(Uncuttable):
    """Its forward pass has changed its own weights: it cannot be run whole any more as if nothing had been."""

    elsewhere = False


class ReplacesWeights(Mismatch):
    """Its forward pass has put other tensors in the place of its weights, which were taken back."""

    elsewhere = False


class Keeps(Uncuttable):
    """What it keeps from one call to the next would be that of micro-batches, whatever makes them."""

    elsewhere = False
