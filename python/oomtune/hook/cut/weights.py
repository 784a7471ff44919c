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


def rules(torch, leaves, layout, names=None):
    """Rules that may hold for this call, by name; `names`: only these."""
    wanted = lambda name: names is None or name in names  # noqa: E731
    found = []
    if wanted("samples"):
        found.append(Rule("samples", [1] * layout.count))
    for place, (leaf, dim) in enumerate(zip(leaves, layout.dims)):
        if dim is None or not isinstance(leaf, torch.Tensor) or leaf.is_complex():
            continue
        for name, ignored, count in _countings(torch, leaf, dim):
            full = "%d %s" % (place, name)
            if wanted(full):
                counts = count()
                if counts is not None:
                    found.append(Rule(full, counts, place, ignored))
    if wanted("sum"):
        found.append(Rule("sum", None))
    return found


def _countings(torch, leaf, dim):
    rows = leaf.detach().movedim(dim, 0)
    if leaf.is_floating_point():
        if leaf.dim() == 2:
            yield "weights", None, lambda: _weights(rows)
        return
    ignored = (0,) if leaf.dtype == torch.bool else IGNORED
    for value in ignored:
        yield "but %d" % value, value, lambda value=value: _counted(rows != value)
        if leaf.dim() > 1:
            yield "shifted but %d" % value, value, lambda value=value: _counted(rows[:, 1:] != value)


def _counted(flags):
    return flags.reshape(len(flags), -1).sum(1).tolist()


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
