"""Runs a module on two or three samples, together and apart, before its first cut call: whether the two are the same,
and how its outputs join, is seen and not assumed."""

import gc
import weakref

from .graph import graph_of
from .joins import Along, Folded, Same
from .refusal import Mismatch, Uncuttable
from .tree import leaves as leaves_of
from .weights import Rules, disagreement

#: Relative differences that rounding makes: in single precision, and in less.
FINE, COARSE = 2e-4, 2e-2

NO_MEAN = "it returns a value that is neither a mean nor a sum over its samples or their tokens"


class Rehearsal:
    """`call(leaves)` runs the module on other leaves; `layout` says how they are cut."""

    def __init__(self, torch, call, leaves, layout, stage, parameters, ranks, shards):
        self._torch = torch
        self._call = call
        self._leaves = leaves
        self._layout = layout
        self._stage = stage
        self._parameters = parameters
        self._ranks = ranks
        self._shards = shards
        self._rules = Rules(torch, leaves, layout)

    def found(self):
        """(a join for each leaf of the output, whether each carries gradients, whether checkpointing of the reentrant kind
        is in it). Raises Uncuttable."""
        rows = self._rows()
        seen = self._run(rows)
        joins = self._ranks.agreed(lambda: [self._join(entry, seen, rows) for entry in zip(*seen.outputs)])
        if not self._ranks.alike([type(join).__name__ for join in joins]):
            raise Uncuttable("its outputs join in another way on another rank")
        flags, reentrant = self._ranks.agreed(lambda: self._behind(rows[:1], len(joins)))
        return joins, flags, reentrant

    def settle(self, place, names, parts):
        """Names of the rules that hold for the output numbered `place`, where they give the parts other weights now."""
        candidates = self._rules.named(names)
        if self._ranks.together:
            return self._settled_together(place, candidates, parts)
        rows = disagreement(candidates, parts)
        while rows is not None:
            seen = self._run(list(rows))
            kept = self._holding(candidates, [output[place] for output in seen.outputs], seen, list(rows))
            if len(kept) == len(candidates):
                kept = self._told_apart(place, candidates, parts, rows)
            if not kept or len(kept) == len(candidates):
                raise Uncuttable(NO_MEAN)
            candidates = kept
            rows = disagreement(candidates, parts)
        return [rule.name for rule in candidates]

    def _settled_together(self, place, candidates, parts):
        """The same where no rank may run the module by itself: as often as any of them has to."""
        rows = disagreement(candidates, parts)
        while self._ranks.any(rows is not None):
            chosen = list(rows or (0, 1))
            seen = self._run(chosen)
            kept = candidates
            if rows is not None:
                kept = self._holding(candidates, [output[place] for output in seen.outputs], seen, chosen)
            if self._ranks.any(rows is not None and not 0 < len(kept) < len(candidates)):
                raise Uncuttable(NO_MEAN)
            candidates = kept
            rows = disagreement(candidates, parts)
        return [rule.name for rule in candidates]

    def _told_apart(self, place, candidates, parts, rows):
        """Where the samples' own values tell two rules apart by less than rounding (the label 0 stands in some rows, and
        may be one that is left out): with a row of nothing but that value."""
        for rule in candidates[1:]:
            if rule.ignored is None or rule.of(parts) == candidates[0].of(parts):
                continue
            marked = Rehearsal(
                self._torch,
                self._call,
                self._marked(rule, rows[1]),
                self._layout,
                self._stage,
                self._parameters,
                self._ranks,
                self._shards,
            )
            seen = marked._run(list(rows))
            others = marked._rules.named([one.name for one in candidates])
            kept = marked._holding(others, [output[place] for output in seen.outputs], seen, list(rows))
            names = [one.name for one in kept]
            if 0 < len(names) < len(candidates):
                return [one for one in candidates if one.name in names]
        return candidates

    def _marked(self, rule, row):
        """The leaves, with one row of the rule's all of the value that it leaves out."""
        leaves = list(self._leaves)
        leaves[rule.leaf] = leaves[rule.leaf].detach().clone()
        leaves[rule.leaf].select(self._layout.dims[rule.leaf], row).fill_(rule.ignored)
        return leaves

    def _rows(self):
        """Samples that tell the rules apart as far as possible."""
        every = list(range(self._layout.count))
        if len(every) < 3:
            return every
        apart = disagreement(self._rules.named(), [every[:1], every[1:]]) or (0, 1)
        low, high = apart if apart[0] != apart[1] else (0, 1)
        return [low, next(row for row in every if row not in (low, high)), high]

    def _inputs(self, rows, grad=False):
        made = []
        for leaf, dim in zip(self._leaves, self._layout.dims):
            part = self._layout.chosen(leaf, dim, rows)
            if isinstance(part, self._torch.Tensor):
                part = part.detach()
                if isinstance(leaf, self._torch.Tensor) and leaf.requires_grad:
                    part.requires_grad_(grad)
            made.append(part)
        return made

    # -- together and apart

    def _run(self, rows):
        """In training mode as far as nothing draws, else in evaluation mode; the first way that is not random."""
        error = seen = None
        for precise in (True, False):
            for evaluation in (False, True):
                try:
                    found = self._passes(rows, evaluation, precise)
                except Exception as failed:
                    if _out_of_memory(failed):
                        raise
                    error, found = failed, None
                if self._ranks.any(found is None):
                    error = error or RuntimeError("on another rank")
                    continue
                if self._ranks.any(seen is not None and not seen.alike(found)):
                    continue
                if not self._ranks.any(found.random):
                    return found
                seen = seen or found
            if seen is not None:
                return seen
        raise Mismatch("its forward pass fails on fewer samples (%s: %s)" % (type(error).__name__, str(error)[:200]))

    def _passes(self, rows, evaluation, precise):
        half = (len(rows) + 1) // 2
        with self._stage.set(evaluation, precise) as draws, self._torch.no_grad():
            outputs = []
            for chosen in (rows, rows[:half], rows[half:]):
                draws.restore()
                outputs.append(leaves_of(self._torch, self._call(self._inputs(chosen))))
            # The draws of this one are others.
            again = leaves_of(self._torch, self._call(self._inputs(rows)))
        if len({len(output) for output in outputs}) != 1 or len(again) != len(outputs[0]):
            raise Mismatch("what it returns has another structure for fewer samples")
        random = not all(self._near(one, other, FINE) for one, other in zip(outputs[0], again))
        return _Seen(outputs, half, random, FINE if precise and self._single() else COARSE)

    def _single(self):
        if self._shards is not None and self._shards.coarse:
            return False
        kinds = (self._torch.float32, self._torch.float64)
        return all(parameter.dtype in kinds for parameter in self._parameters)

    def _near(self, one, other, tolerance):
        torch = self._torch
        if not isinstance(one, torch.Tensor):
            if isinstance(one, float) and isinstance(other, float):
                return one == other or abs(one - other) <= tolerance * max(abs(one), abs(other)) or one != one
            return type(one) is type(other) and (one == other if _comparable(one) else True)
        if not isinstance(other, torch.Tensor) or one.shape != other.shape:
            return False
        if not one.is_floating_point() and not one.is_complex():
            return torch.equal(one, other)
        one, other = torch.nan_to_num(one.detach().double()), torch.nan_to_num(other.detach().double())
        return float((one - other).norm()) <= tolerance * max(float(one.norm()), float(other.norm()), 1e-30)

    # -- how one output joins

    def _join(self, entry, seen, rows):
        torch = self._torch
        whole, first, last = entry
        if not isinstance(whole, torch.Tensor):
            if isinstance(whole, float) and not self._near(whole, first, 0.0):
                return self._folded(entry, seen, rows)
            if not self._near(whole, first, 0.0) or not self._near(whole, last, 0.0):
                raise Mismatch("it returns a value that changes with its samples (%r)" % (whole,))
            return Same()
        if not isinstance(first, torch.Tensor) or not isinstance(last, torch.Tensor) or first.dim() != whole.dim():
            raise Mismatch("what it returns has another structure for fewer samples")
        dims = [dim for dim in range(whole.dim()) if len({whole.shape[dim], first.shape[dim], last.shape[dim]}) > 1]
        if self._layout.count == 2 or len(rows) == 2:
            dims = [dim for dim in range(whole.dim()) if whole.shape[dim] != first.shape[dim]]
        if not dims:
            return self._folded(entry, seen, rows)
        sizes = [len(rows), seen.half, len(rows) - seen.half]
        factor = whole.shape[dims[0]] // len(rows)
        if len(dims) > 1 or [part.shape[dims[0]] for part in entry] != [size * factor for size in sizes]:
            raise Mismatch("its outputs do not join along the samples (of shape %s)" % (tuple(whole.shape),))
        joined = torch.cat([first, last], dims[0])
        if not seen.random and not self._near(whole, joined, seen.tolerance):
            raise Mismatch("what it returns for a sample depends on the other samples of the batch")
        return Along(dims[0], factor)

    def _folded(self, entry, seen, rows):
        whole, first, last = entry
        alike = self._near(whole, first, 0.0) and self._near(whole, last, 0.0)
        exact = not isinstance(whole, self._torch.Tensor) or not (whole.is_floating_point() or whole.is_complex())
        if alike and exact:
            return Same()
        if seen.random and not alike:
            raise Uncuttable("it returns one value for all its samples and draws random numbers, so that what it is made of cannot be seen")
        kept = self._holding(self._rules.named(), entry, seen, rows)
        if not kept:
            raise Uncuttable(NO_MEAN)
        return Folded([rule.name for rule in kept])

    def _holding(self, candidates, entry, seen, rows):
        parts = [rows[: seen.half], rows[seen.half :]]
        whole, values = entry[0], entry[1:]
        kept = []
        for rule in candidates:
            total = 0.0
            for weight, value in zip(rule.of(parts), values):
                if weight:
                    total = total + value * weight
            if isinstance(whole, self._torch.Tensor) and not isinstance(total, self._torch.Tensor):
                total = self._torch.full_like(whole, total)
            if self._near(whole, total, seen.tolerance):
                kept.append(rule)
        return kept

    # -- what is behind the outputs

    def _behind(self, rows, count):
        """(which outputs carry gradients, reentrant checkpointing). Raises Uncuttable where gradients would be lost: those of a tensor from elsewhere,
        and those of something that is kept besides the outputs (a hook's features, a part of the loss on the module)."""
        torch, held = self._torch, []

        def pack(tensor):
            # An output that its own node keeps would be a circle.
            holder = _Held(tensor.detach())
            held.append(weakref.ref(holder))
            return holder

        with self._stage.set(False, False), torch.enable_grad():
            inputs = self._inputs(rows, grad=True)
            try:
                with torch.autograd.graph.saved_tensors_hooks(pack, lambda holder: holder.tensor):
                    outputs = leaves_of(torch, self._call(inputs))
            except Exception as failed:
                if _out_of_memory(failed):
                    raise
                raise Uncuttable("its forward pass fails on one sample (%s: %s)" % (type(failed).__name__, str(failed)[:200]))
            flags = [isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in outputs]
            known = {id(tensor) for tensor in inputs if isinstance(tensor, torch.Tensor)}
            own = self._parameters + (self._shards.leaves() if self._shards is not None else [])
            known |= {id(parameter) for parameter in own}
            stranger, reentrant = graph_of([leaf for leaf, flag in zip(outputs, flags) if flag], known)
            del outputs, inputs
        self._stage.let_go()
        if stranger:
            raise Uncuttable("it uses a tensor that learns and is neither an input nor a parameter of its own")
        if any(holder() is not None for holder in held):
            gc.collect()
            if any(holder() is not None for holder in held):
                raise Uncuttable("something besides its outputs is kept that carries gradients (by a hook, or on the module)")
        return flags + [False] * (count - len(flags)), reentrant


class _Held:
    __slots__ = ("tensor", "__weakref__")

    def __init__(self, tensor):
        self.tensor = tensor


class _Seen:
    """Outputs of all rows, of the first part of them and of the rest."""

    def __init__(self, outputs, half, random, tolerance):
        self.outputs = outputs
        self.half = half
        self.random = random
        self.tolerance = tolerance

    def alike(self, other):
        """Whether evaluation mode returns the same kind of things."""
        mine, theirs = self.outputs[0], other.outputs[0]
        return len(mine) == len(theirs) and all(
            type(one) is type(two) and getattr(one, "shape", None) == getattr(two, "shape", None) for one, two in zip(mine, theirs)
        )


def _comparable(value):
    return isinstance(value, (str, bytes, int, bool, type(None)))


def _out_of_memory(error):
    from ..report.exceptions import is_oom

    return is_oom(error)
