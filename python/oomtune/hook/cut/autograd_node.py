"""The cut call's place in autograd's graph."""


def function(torch):
    """The autograd function, made once torch is there. Its inputs are the module's inputs and parameters: hooks on those,
    exchanges between ranks and torch.autograd.grad see one gradient, as without the cut."""

    class CutCall(torch.autograd.Function):
        @staticmethod
        def forward(ctx, call, flags, holder, *tensors):
            joined = call.forward()
            holder.append(joined)
            ctx.call = call
            ctx.set_materialize_grads(False)
            ctx.places = [number for number, leaf in enumerate(joined) if isinstance(leaf, torch.Tensor)]
            ctx.count = len(joined)
            made = tuple(joined[number] for number in ctx.places)
            ctx.mark_non_differentiable(*[joined[number] for number in ctx.places if not flags[number]])
            return made

        @staticmethod
        def backward(ctx, *gradients):
            wanted = [None] * ctx.count
            for number, gradient in zip(ctx.places, gradients):
                wanted[number] = gradient
            return (None, None, None, *ctx.call.backward(wanted, torch.is_grad_enabled()))

    return CutCall
