"""One call of a module, run as several: forward without activations, and each part forward again in the backward pass. The
last part keeps its activations, as they are the first that the backward pass needs."""

from .draws import Draws
from .gradients import Gradients
from .joins import Along, Folded, Same
from .precision import Precision
from .refusal import Uncuttable
from .tree import Rows, leaves as leaves_of, rebuilt
from .weights import rules


class Call:
    """`plan`: what is known of the module and of inputs of this kind; `tree`: its inputs, by place
    and by name, with their `leaves`."""

    def __init__(self, torch, plan, tree, leaves, layout, parts, most):
        self._torch = torch
        self.plan = plan
        self._tree = tree
        self._leaves = leaves
        self._layout = layout
        #: [(start, stop)] in rows.
        self.parts = parts
        #: Those that are run.
        self._ran = range(min(len(parts), most or len(parts)))
        self._module = plan.module
        self._draws = []
        #: Of the last part: its inputs that carry gradients, and the leaves of its output with their graph.
        self._kept = None
        #: What the forward pass found in buffers that move, before the first part.
        self._begun = None
        self._weights = {}
        self._shape = None
        self._precision = None
        self.inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)] + plan.parameters
        self._versions = [(tensor, tensor._version) for tensor in tensors if not tensor.is_inference()]
        self._modes = [(module, module.training) for module in plan.modules]

    def _run(self, place, inputs=None):
        """The module on one part. `inputs`: for leaves that carry gradients the tensors to take in their place."""
        start, stop = self.parts[place]
        made = []
        for number, (leaf, dim) in enumerate(zip(self._leaves, self._layout.dims)):
            if inputs is not None and number in inputs:
                made.append(inputs[number])
            elif dim is None:
                made.append(leaf.items if isinstance(leaf, Rows) else leaf)
            else:
                made.append(self._layout.part(leaf, dim, start, stop))
        return self.plan.run(rebuilt(self._torch, self._tree, made, self.plan.lengths))

    # -- forward

    def forward(self):
        """Leaves of the whole call's output."""
        self._precision = Precision(self._torch)
        self._weigh()
        buffers = self.plan.buffers
        self._begun = buffers.snapshot() if buffers.known else None
        joined = None
        for place in self._ran:
            if place and self._begun is not None:
                self._begun.restore()
            self._draws.append(Draws(self._torch, self.plan.devices))
            if place and place == self._ran[-1] and self.plan.keeps():
                leaves = self._keep(place)
            else:
                output = self._run(place)
                leaves = leaves_of(self._torch, output)
                if joined is None:
                    self._shape = output
                    joined = self._room(leaves)
                del output
            self._add(joined, leaves, place)
            del leaves
            if not buffers.known:
                buffers.learn()
                self._begun = buffers.begun()
            elif buffers.waiting:
                self.plan.second_part()
        self._precision.forget_casts()
        for place in range(len(self._ran), len(self.parts)):
            self._stand_in(joined, place)
        return joined

    def _keep(self, place):
        """Runs the last part with its graph; the leaves of its output without."""
        self._precision.forget_casts()
        inputs = self._inputs(*self.parts[place], False)
        with self._torch.enable_grad():
            leaves = leaves_of(self._torch, self._run(place, inputs))
        self._kept = inputs, leaves
        return [leaf.detach() if isinstance(leaf, self._torch.Tensor) else leaf for leaf in leaves]

    def let_go(self):
        """Another call needs the memory: the last part is run again, too."""
        self._kept = None

    def built(self, leaves):
        """The output as the module would return it."""
        output = rebuilt(self._torch, self._shape, leaves)
        self._shape = None
        return output

    def _weigh(self):
        for place, join in enumerate(self.plan.joins):
            if isinstance(join, Folded):
                rule = rules(self._torch, self._leaves, self._layout, join.names)[0]
                self._weights[place] = rule.of([list(range(start, stop)) for start, stop in self.parts])

    def _room(self, leaves):
        """Space for the whole output, made after the first part: parts are not kept beside it."""
        if len(leaves) != len(self.plan.joins):
            raise Uncuttable("it does not always return the same structure")
        room = []
        for leaf, join in zip(leaves, self.plan.joins):
            if isinstance(join, Along):
                shape = list(leaf.shape)
                shape[join.dim] = self._layout.count * join.factor
                room.append(leaf.new_empty(shape))
            elif isinstance(join, Folded):
                room.append(self._torch.zeros_like(leaf) if isinstance(leaf, self._torch.Tensor) else 0.0)
            else:
                room.append(leaf)
        return room

    def _add(self, room, leaves, place):
        start, stop = self.parts[place]
        if len(leaves) != len(room):
            raise Uncuttable("it does not always return the same structure")
        for number, (leaf, join) in enumerate(zip(leaves, self.plan.joins)):
            if isinstance(join, Along):
                target = join.slice(room[number], start, stop)
                if not isinstance(leaf, self._torch.Tensor) or leaf.shape != target.shape:
                    raise Uncuttable("its outputs do not join along the samples")
                target.copy_(leaf)
            elif isinstance(join, Folded):
                weight = self._weights[number][place]
                if weight:
                    room[number] = room[number] + leaf * weight

    def _stand_in(self, room, place):
        """Rows of the first part in place of a part that is not run."""
        start, stop = self.parts[place]
        length = min(stop - start, self.parts[0][1])
        for leaf, join in zip(room, self.plan.joins):
            if isinstance(join, Along):
                join.slice(leaf, start, stop).zero_()
                join.slice(leaf, start, start + length).copy_(join.slice(leaf, 0, length))

    # -- backward

    def backward(self, wanted, deeper):
        """Gradients of inputs and parameters for those of the output's leaves (None: none). `deeper`: second derivatives
        are asked for."""
        self._check_versions()
        kept, self._kept = self._kept, None
        with self._as_it_was(), Gradients(self._torch, self.plan, self.inputs, deeper) as gradients:
            again = list(self._ran)
            if kept is not None and not deeper:
                inputs, leaves = kept
                self._through(again.pop(), leaves, inputs, wanted, gradients, False)
                del inputs, leaves
            kept = None
            for place in again:
                if deeper:
                    self._again(place, wanted, gradients, True)
                    continue
                kept = self.plan.buffers.snapshot(statistics=True)
                try:
                    if self._begun is not None:
                        self._begun.restore()
                    self._again(place, wanted, gradients, False)
                finally:
                    kept.restore()
            return gradients.totals()

    def _again(self, place, wanted, gradients, deeper):
        inputs = self._inputs(*self.parts[place], deeper)
        self._draws[place].restore()
        with self._torch.enable_grad(), self._precision.again():
            leaves = leaves_of(self._torch, self._run(place, inputs))
        self._through(place, leaves, inputs, wanted, gradients, deeper)

    def _through(self, place, leaves, inputs, wanted, gradients, deeper):
        """The backward pass of one part."""
        start, stop = self.parts[place]
        outputs, taken = [], []
        for number, (leaf, join) in enumerate(zip(leaves, self.plan.joins)):
            gradient = wanted[number]
            if gradient is None or isinstance(join, Same) or not leaf.requires_grad:
                continue
            if isinstance(join, Along):
                gradient = join.slice(gradient, start, stop)
            elif self._weights[number][place] == 0.0:
                continue
            else:
                gradient = gradient * self._weights[number][place]
            outputs.append(leaf)
            taken.append(gradient.to(leaf.dtype))
        if outputs:
            gradients.add(outputs, taken, inputs, self._places(start), deeper)

    def _inputs(self, start, stop, deeper):
        """For each leaf that carries gradients, by number: its part, as the start of a graph of its own."""
        made = {}
        for number, (leaf, dim) in enumerate(zip(self._leaves, self._layout.dims)):
            if isinstance(leaf, self._torch.Tensor) and leaf.requires_grad:
                part = leaf if dim is None else leaf.narrow(dim, start, stop - start)
                made[number] = part if deeper else part.detach().requires_grad_()
        return made

    def _places(self, start):
        """(dimension, first row) of each input that carries gradients."""
        numbered = zip(self._leaves, self._layout.dims)
        return [(dim, start) for leaf, dim in numbered if isinstance(leaf, self._torch.Tensor) and leaf.requires_grad]

    def _check_versions(self):
        for tensor, version in self._versions:
            if tensor._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor "
                    "of shape %s was changed between the model's forward pass and its backward pass, and oomtune runs the "
                    "forward pass again in micro-batches; --cut loader does not" % (list(tensor.shape),)
                )

    def _as_it_was(self):
        return _AsItWas(self._torch, self._modes, self.plan)


class _AsItWas:
    """The modules' modes of the forward pass; afterwards modes and random numbers are as before."""

    def __init__(self, torch, modes, plan):
        self._torch = torch
        self._modes = [(module, training) for module, training in modes if module.training != training]
        self.plan = plan

    def __enter__(self):
        self._draws = Draws(self._torch, self.plan.devices)
        for module, training in self._modes:
            module.training = training
        self.plan.enter()

    def __exit__(self, *error):
        self.plan.leave()
        for module, training in self._modes:
            module.training = not training
        self._draws.restore()


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

