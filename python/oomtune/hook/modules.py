"""The models of the process: found by what the optimizers hold, since a script may call them anything."""

import gc


class Modules:
    def __init__(self, torch, optimizers):
        self._torch = torch
        self._optimizers = optimizers
        self._roots = None
        self._replicas = None

    def roots(self):
        """Outermost modules that hold parameters of an optimizer. Looked for once, when a loop begins."""
        if self._roots is None:
            kind = self._torch.nn.Module
            # type(), not isinstance(): proxies answer isinstance by loading what they stand for.
            found = [item for item in gc.get_objects() if issubclass(type(item), kind)]
            inner = {id(child) for module in found for child in module.__dict__.get("_modules", {}).values()}
            ours = {id(parameter) for parameter in self._optimizers.parameters()}
            self._roots = [
                module
                for module in found
                if "_parameters" in module.__dict__
                and id(module) not in inner
                and any(id(parameter) in ours for parameter in module.parameters())
            ]
        return self._roots

    def all(self):
        for root in self.roots():
            yield from root.modules()

    def any_of(self, *kinds):
        return any(isinstance(module, kinds) for module in self.all())

    def dtypes(self):
        return {parameter.dtype for root in self.roots() for parameter in root.parameters() if parameter.requires_grad}

    def compiled(self):
        return any(type(module).__name__ == "OptimizedModule" for module in self.all()) or any(
            getattr(module, "_compiled_call_impl", None) is not None for module in self.all()
        )

    def sync(self, wanted):
        """DistributedDataParallel exchanges gradients in the pass of the last micro-batch only (its no_sync)."""
        if self._replicas is None:
            parallel = getattr(self._torch.nn.parallel, "DistributedDataParallel", None)
            self._replicas = [m for m in self.roots() if parallel is not None and isinstance(m, parallel)]
        for replica in self._replicas:
            replica.require_backward_grad_sync = wanted
