"""Switches a rung (autocast, checkpointing, offload) of the models in this process."""


class Rung:
    def __init__(self, torch, hook):
        self._torch = torch
        self._hook = hook

    def can_amp(self):
        return False

    def can_fp16(self):
        return False

    def can_checkpoint(self):
        return False

    def can_offload(self):
        return False

    def switch(self, amp, checkpointing, offload):
        pass
