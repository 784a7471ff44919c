"""Why a call cannot be cut."""

from __future__ import annotations


class Uncuttable(Exception):
    """The call cannot be shown to give the same in micro-batches; its text says why, as the end of a sentence."""

    severity = 2


class Mismatch(Uncuttable):
    """Cut along these dimensions the micro-batches do not give what the whole batch gives; along others they may."""

    severity = 1
