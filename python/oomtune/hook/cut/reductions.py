"""How much each micro-batch counts in an output that has no row for each sample: a loss that the module itself makes of
its samples is their mean, their sum, or a mean over the tokens that count."""

#: What losses leave out by default (torch and transformers, minGPT and its like) and padding.
IGNORED = (-100, -1, 0)


class Rule:
    """`counts`: for each row what it counts; None: a sum, in which each part counts as it is. `leaf`: the number of the
    input that is counted, and `ignored` the value that counts for nothing in it."""

    def __init__(self, name, counts, leaf=None, ignored=None):
        self.name = name
        self._counts = counts
        self.leaf = leaf
        self.ignored = ignored

    def of(self, parts):
        """The weight of each part, a list of rows."""
        if self._counts is None:
            return [1.0] * len(parts)
        sums = [float(sum(self._counts[row] for row in part)) for part in parts]
        total = sum(sums)
        return [value / total if total else 0.0 for value in sums]

    def share(self, row):
        if self._counts is None:
            return 1.0
        return self._counts[row] / (sum(self._counts) or 1)


class Rules:
    """Rules that may hold for the inputs of one call. What the rows count is fetched from the device once."""

    def __init__(self, torch, leaves, layout):
        self._torch = torch
        self._leaves = leaves
        self._layout = layout
        self._counts = {}

    def named(self, names=None):
        """By name; None: all of them."""
        every = self._names()
        wanted = [name for name in every if names is None or name in names]
        self._count([name for name in wanted if name not in self._counts])
        found = [Rule(name, self._counts[name], *every[name]) for name in wanted]
        return [rule for rule in found if self._counts[rule.name] is not None or rule.name == "sum"]

    def first(self, names):
        return self.named([next(name for name in self._names() if name in names)])[0]

    def _names(self):
        """For each name of a rule the leaf that it counts and the value that it leaves out."""
        torch = self._torch
        found = {"samples": (None, None)}
        for place, (leaf, dim) in enumerate(zip(self._leaves, self._layout.dims)):
            if dim is None or not isinstance(leaf, torch.Tensor) or leaf.is_complex():
                continue
            if leaf.is_floating_point():
                if leaf.dim() == 2:
                    found["%d weights" % place] = (place, None)
                continue
            for value in (0,) if leaf.dtype == torch.bool else IGNORED:
                found["%d but %d" % (place, value)] = (place, value)
                if leaf.dim() > 1:
                    found["%d shifted but %d" % (place, value)] = (place, value)
        found["sum"] = (None, None)
        return found

    def _count(self, names):
        torch, every, sums = self._torch, self._names(), {}
        for name in names:
            place, ignored = every[name]
            if place is None:
                self._counts[name] = [1] * self._layout.count if name == "samples" else None
                continue
            rows = self._leaves[place].detach().movedim(self._layout.dims[place], 0)
            if ignored is None:
                self._counts[name] = _weights(rows)
                continue
            flags = (rows[:, 1:] if "shifted" in name else rows) != ignored
            sums[name] = flags.reshape(len(flags), -1).sum(1)
        if sums:
            # One transfer for all: each waits for the device.
            device = next(iter(sums.values())).device
            counted = torch.stack([each.to(device) for each in sums.values()]).tolist()
            self._counts.update(zip(sums, counted))


def _weights(rows):
    values = rows.double()
    return values.sum(1).tolist() if bool((values >= 0).all()) else None


def disagreement(candidates, parts):
    """Rows (few, many) on which two of the rules differ most, where rules give the parts other weights; else None."""
    first = candidates[0]
    for other in candidates[1:]:
        if any(abs(one - two) > 1e-12 for one, two in zip(first.of(parts), other.of(parts))):
            rows = [row for part in parts for row in part]
            ratio = {row: _ratio(first.share(row), other.share(row)) for row in rows}
            return min(rows, key=ratio.get), max(rows, key=ratio.get)
    return None


def _ratio(one, two):
    return one / (one + two) if one + two else 0.5
