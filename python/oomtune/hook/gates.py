"""Lets calls that belong to an optimizer step pass without effect while the step's micro-batches are not all through.

Done when torch is imported, so that names which the script takes from it are the gated ones.
"""

import functools


def gate_calls(torch, gate, optimizers, driven):
    """`driven()`: the loop goes round for longer than the script says. A schedule that counts its steps, and has an end,
    then stays where it is: memory does not depend on it."""
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_"):
            original = getattr(module, name, None)
            if original is not None and not hasattr(original, "_oomtune"):
                setattr(module, name, _clip(torch, gate, optimizers, original))
    for kind in _scalers(torch):
        for name in ("step", "update", "unscale_"):
            if name in kind.__dict__:
                setattr(kind, name, _scaler_call(gate, kind.__dict__[name], name))
    scheduler = torch.optim.lr_scheduler
    for kind in list(vars(scheduler).values()):
        if isinstance(kind, type) and "step" in kind.__dict__:
            kind.step = _schedule(gate, driven, kind.__dict__["step"])
    averaged = torch.optim.swa_utils.AveragedModel
    averaged.update_parameters = _skipped(gate, averaged.update_parameters)


def _schedule(gate, driven, original):
    @functools.wraps(original)
    def step(self, *args, **kwargs):
        begun = hasattr(self, "_last_lr")  # its first step is part of making it
        if gate.closed or (begun and driven()):
            return None
        return original(self, *args, **kwargs)

    return step


def _scalers(torch):
    kinds = [torch.cuda.amp.GradScaler, getattr(torch.amp, "GradScaler", None) if hasattr(torch, "amp") else None]
    return {kind for kind in kinds if kind is not None}


def _skipped(gate, original):
    @functools.wraps(original)
    def call(*args, **kwargs):
        if gate.closed:
            return None
        return original(*args, **kwargs)

    return call


def _scaler_call(gate, original, name):
    """A script's own loss scaler. Its first step() is also where the hook learns how far the loop looks ahead."""

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        if name != "step":
            return None if gate.closed else original(self, *args, **kwargs)
        optimizer = args[0] if args else kwargs["optimizer"]
        if not gate.attempt(optimizer):
            return None
        result = original(self, *args, **kwargs)
        # Also where it skipped the step for infinite gradients: those must be zeroed.
        gate.stepped(optimizer)
        return result

    return call


def _clip(torch, gate, optimizers, original):
    @functools.wraps(original)
    def call(*args, **kwargs):
        if gate.closed:
            return torch.zeros(())
        if optimizers.scaling is not None and optimizers.scaling.on:
            optimizers.scaling.set_right()
        return original(*args, **kwargs)

    call._oomtune = True
    return call
