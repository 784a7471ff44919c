"""Gradients of the parts of one call, added up inside, so that they are delivered once."""


class Gradients:
    def __init__(self, torch, plan, inputs, deeper):
        self._torch = torch
        self._plan = plan
        self._inputs = [None] * len(inputs)
        self._shapes = inputs
        self._parameters = [None] * len(plan.parameters)
        self._ours = set()
        self._gathers = plan.gathers() and not deeper
        self._joins_in = self._gathers and plan.joins_in()

    def add(self, outputs, gradients, inputs, places, deeper):
        starts = list(inputs.values())
        if self._gathers and not deeper:
            self._plan.backward(outputs, gradients)
            found = [start.grad for start in starts]
        else:
            found = self._plan.gradients(
                outputs, starts + self._plan.parameters, gradients, allow_unused=True, create_graph=deeper
            )
            for number, gradient in enumerate(found[len(starts) :]):
                if gradient is not None:
                    self._add_parameter(number, gradient, deeper)
        for number, (dim, first) in enumerate(places):
            if found[number] is not None:
                self._add_input(number, found[number], dim, first, deeper)

    def totals(self):
        if self._gathers and not self._joins_in:
            self._parameters = [parameter.grad for parameter in self._plan.parameters]
        return tuple(self._inputs + self._parameters)

    # What gathers through backward() does so where gradients always do: what is there already, and hooks, are kept out of
    # it. Checkpointing of the reentrant kind knows nothing else, and nothing lies in memory twice.

    def __enter__(self):
        self._kept, self._hooks = [], []
        if not self._joins_in:
            # torch 2 runs hooks for autograd.grad() too.
            self._hooks = [_Silenced(parameter) for parameter in self._plan.parameters]
        if self._gathers and not self._joins_in:
            self._kept = [(parameter, parameter.grad) for parameter in self._plan.parameters]
            for parameter in self._plan.parameters:
                parameter.grad = None
        return self

    def __exit__(self, *error):
        for parameter, gradient in self._kept:
            parameter.grad = gradient
        for hook in self._hooks:
            hook.restore()

    def _add_input(self, number, gradient, dim, first, deeper):
        if dim is None or deeper:
            if deeper and dim is not None:
                gradient = self._widened(number, gradient, dim, first)
            total = self._inputs[number]
            self._inputs[number] = gradient if total is None else total + gradient
            return
        if self._inputs[number] is None:
            self._inputs[number] = self._torch.zeros_like(self._shapes[number])
        self._inputs[number].narrow(dim, first, gradient.shape[dim]).copy_(gradient)

    def _widened(self, number, gradient, dim, first):
        whole = self._torch.zeros_like(self._shapes[number])
        rows = self._torch.arange(first, first + gradient.shape[dim], device=gradient.device)
        return whole.index_add(dim, rows, gradient)

    def _add_parameter(self, number, gradient, deeper):
        total = self._parameters[number]
        if total is None:
            self._parameters[number] = gradient
        elif deeper or number not in self._ours or total.is_sparse or gradient.is_sparse:
            self._parameters[number] = total + gradient
            self._ours.add(number)
        else:
            total.add_(gradient)


class _Silenced:
    """A parameter's hooks are out of the way."""

    NAMES = ("_backward_hooks", "_post_accumulate_grad_hooks")

    def __init__(self, parameter):
        self._kept = []
        for name in self.NAMES:
            hooks = getattr(parameter, name, None)
            if hooks:
                self._kept.append((hooks, dict(hooks)))
                hooks.clear()

    def restore(self):
        for hooks, items in self._kept:
            hooks.update(items)
