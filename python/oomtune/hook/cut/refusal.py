"""Why a call cannot be cut."""


class Uncuttable(Exception):
    """The call cannot be shown to give the same in micro-batches; its text says why, as the end of a sentence."""
