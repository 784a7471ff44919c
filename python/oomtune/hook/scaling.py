"""The loss scaler of half precision, for scripts that have none: small gradients would vanish in fp16."""


class Scaling:
    """Off until begin(); then gradients are scaled in the backward pass and set right before they are used."""

    def __init__(self, torch, backward, optimizers):
        self._torch = torch
        self._backward = backward
        self._optimizers = optimizers
        self._scaler = None
        self._right = set()
        self._due = False
        self._used = False

    @property
    def on(self):
        """Whether gradients are scaled now: not before the first backward pass since begin()."""
        return self._scaler is not None and self._used

    def begin(self):
        if self._scaler is None:
            amp = getattr(self._torch, "amp", None)
            kind = getattr(amp, "GradScaler", None)
            self._scaler = kind("cuda") if kind is not None else self._torch.cuda.amp.GradScaler()
            self._backward.scale = self._factor
            self._optimizers.scaling = self

    def end(self):
        if self._scaler is not None:
            self._scaler = None
            self._used = False
            self._backward.scale = None
            self._optimizers.scaling = None

    def _factor(self):
        if self._due:
            self._due = False
            self._right.clear()
            self._scaler.update()
        self._used = True
        device = next((p.device for p in self._optimizers.parameters()), "cuda")
        return self._scaler.scale(self._torch.ones((), device=device))

    def set_right(self):
        """Takes the scale out of the gradients, once a step: before they are clipped."""
        for optimizer in self._optimizers.known():
            if id(optimizer) not in self._right:
                self._right.add(id(optimizer))
                self._scaler.unscale_(optimizer)

    def step(self, optimizer, args, kwargs):
        self._due = True
        return self._scaler.step(optimizer, *args, **kwargs)
