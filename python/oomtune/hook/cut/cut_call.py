"""One call of a module, run as several: forward without activations, and each part forward again in the backward pass. The
last part keeps its activations, as they are the first that the backward pass needs."""

from .draws import Draws
from .gradients import Gradients
from .joins import Along, Folded, Same
from .outputs import Outputs
from .precision import Precision
from .tree import Rows, leaves as leaves_of, rebuilt


class Call:
    """`plan`: what is known of the module and of inputs of this kind; `tree`: its inputs, by place
    and by name, with their `leaves`; `rules`: how outputs without a row for each sample may be weighed."""

    def __init__(self, torch, plan, tree, leaves, layout, rules, parts, most):
        self._torch = torch
        self.plan = plan
        self._tree = tree
        self._leaves = leaves
        self._layout = layout
        #: [(start, stop)] in rows.
        self.parts = parts
        #: Those that are run: the last is the largest.
        self._ran = range(max(0, len(parts) - most) if most else 0, len(parts))
        self._draws = {}
        #: Of the last part: its inputs that carry gradients, and the leaves of its output with their graph.
        self._kept = None
        #: (the number of the loss, gradients that were made in the forward pass for a gradient of 1 of it)
        self._ahead = None
        #: What the forward pass found in buffers that move, before the first part.
        self._begun = None
        self._shape = None
        self._precision = None
        self._weights = {
            place: rules.first(join.names).of([list(range(start, stop)) for start, stop in parts])
            for place, join in enumerate(plan.joins)
            if isinstance(join, Folded)
        }
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
        outputs = Outputs(self._torch, self.plan.joins, self._layout, self.parts, self._weights)
        with self._precision.again():
            loss = self.plan.loss_ahead(self._precision)
            if loss is None:
                self._forward_alone(outputs)
            else:
                self._forward_ahead(outputs, loss)
        for place in range(self._ran[0]):
            outputs.stand_in(place, self._ran[0])
        return outputs.leaves

    def _forward_alone(self, outputs):
        """Without activations, but for those of the last part."""
        for place in self._in_turn():
            if place and place == self._ran[-1] and self.plan.keeps():
                self._precision.forget_casts()
                self._kept = self._with_graph(place)
                leaves = self._without_graph(self._kept[1])
            else:
                leaves = self._leaves_of(self._run(place))
            outputs.add(leaves, place)
            del leaves
        if self._kept is None:
            self._precision.forget_casts()

    def _forward_ahead(self, outputs, loss):
        """Each part's backward pass follows its forward pass at once: of a loss that the module makes itself only the factor
        on its gradient is yet to come."""
        self._precision.forget_casts()
        wanted = [None] * len(self.plan.joins)
        with Gradients(self._torch, self.plan, self.inputs, False) as gradients:
            for place in self._in_turn():
                inputs, leaves = self._with_graph(place)
                outputs.add(self._without_graph(leaves), place)
                wanted[loss] = self._torch.ones_like(leaves[loss])
                with self._precision.off():
                    self._through(place, leaves, inputs, wanted, gradients, False)
                del leaves, inputs
            self._ahead = loss, gradients.totals()

    def _in_turn(self):
        """The parts that are run, with the random numbers and buffers that each of them finds."""
        buffers = self.plan.buffers
        self._begun = buffers.snapshot() if buffers.known else None
        for place in self._ran:
            if place != self._ran[0] and self._begun is not None:
                self._begun.restore()
            self._draws[place] = Draws(self._torch, self.plan.devices)
            yield place
            if not buffers.known:
                buffers.learn()
                self._begun = buffers.begun()
            elif buffers.waiting:
                self.plan.second_part()

    def _leaves_of(self, output):
        leaves = leaves_of(self._torch, output)
        if self._shape is None:
            self._shape = rebuilt(self._torch, output, [None] * len(leaves))
        return leaves

    def _with_graph(self, place, deeper=False):
        """Runs a part: (its inputs that carry gradients, by number, the leaves of its output)."""
        inputs = self._inputs(*self.parts[place], deeper)
        with self._torch.enable_grad():
            return inputs, self._leaves_of(self._run(place, inputs))

    def _without_graph(self, leaves):
        return [leaf.detach() if isinstance(leaf, self._torch.Tensor) else leaf for leaf in leaves]

    def let_go(self):
        """Another call needs the memory: the last part is run again, too."""
        self._kept = None
        if self._ahead is not None:
            # One call's gradients at a time, however often a step calls models.
            self._ahead = None
            self.plan.never_ahead()

    def built(self, leaves):
        """The output as the module would return it."""
        output = rebuilt(self._torch, self._shape, leaves)
        self._shape = None
        return output

    # -- backward

    def backward(self, wanted, deeper):
        """Gradients of inputs and parameters for those of the output's leaves (None: none). `deeper`: second derivatives
        are asked for."""
        self._check_versions()
        self.plan.check_deeper(deeper)
        kept, self._kept = self._kept, None
        ahead, self._ahead = self._ahead, None
        loss = self.plan.saw(wanted, deeper)
        if ahead is not None and ahead[0] == loss:
            return _scaled(ahead[1], wanted[loss])
        del ahead
        outside = Precision(self._torch)
        with self._as_it_was(), Gradients(self._torch, self.plan, self.inputs, deeper) as gradients:
            again = list(self._ran)
            if kept is not None and not deeper:
                inputs, leaves = kept
                place = again.pop()
                with self.plan.exchanging(last=not again):
                    self._through(place, leaves, inputs, wanted, gradients, False)
                del inputs, leaves
            kept = None
            # Weights are cast once for all parts.
            with self.plan.buffers.aside(not deeper), self._precision.again():
                for place in again:
                    if self._begun is not None and not deeper:
                        self._begun.restore()
                    self._draws[place].restore()
                    with self.plan.again():
                        inputs, leaves = self._with_graph(place, deeper)
                    if self.plan.reentrant:
                        # Such checkpoints cast without gradients first.
                        self._precision.forget_casts()
                    with outside.again(), self.plan.exchanging(last=place == again[-1]):
                        self._through(place, leaves, inputs, wanted, gradients, deeper)
                    del leaves, inputs
            return gradients.totals()

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
            elif self._weights[number][place] == 0.0 and not self.plan.all_take_part():
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


def _scaled(gradients, factor):
    """Each gradient times a factor of one element."""
    factors = {}

    def scaled(gradient):
        device = gradient.device
        if device not in factors:
            factors[device] = factor.reshape(()).to(device)
        return gradient * factors[device] if gradient.is_sparse else gradient.mul_(factors[device])

    return tuple(None if gradient is None else scaled(gradient) for gradient in gradients)


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
