"""Why a call cannot be cut."""


class Uncuttable(Exception):
    """The call cannot be shown to give the same in micro-batches; its text says why, as the end of a sentence."""

    severity = 2


class Mismatch(Uncuttable):
    """With this layout the parts are not the whole; with another they may be."""

    severity = 1
