"""Which dimension of each input counts the samples."""

from .tree import Rows


class Layout:
    """For each leaf of the inputs the dimension along which it is cut; None: it is passed whole."""

    def __init__(self, torch, count, dims):
        self._torch = torch
        #: Rows in the call.
        self.count = count
        self.dims = dims

    def part(self, leaf, dim, start, stop):
        """Rows start:stop of a leaf."""
        if dim is None:
            return leaf
        if isinstance(leaf, Rows):
            return leaf.items[start:stop]
        return leaf.narrow(dim, start, stop - start)

    def chosen(self, leaf, dim, rows):
        """A copy of the rows whose numbers are given."""
        if dim is None:
            return leaf.items if isinstance(leaf, Rows) else leaf
        if isinstance(leaf, Rows):
            return type(leaf.items)(leaf.items[row] for row in rows)
        return leaf.detach().index_select(dim, self._torch.tensor(rows, device=leaf.device))


#: What the parts before the last have of its rows, at least.
LEAST = 4


def bounds(count, most, even, parts=None):
    """Parts of `count` rows, with at most `most` in each: [(start, stop)]. `parts`: how many; None: as few as there can be.
    `even`: all alike, else the last, which need not be run again, has as many rows as it may."""
    parts = parts or -(-count // most)
    last = -(-count // parts)
    if not even and parts > 1:
        last = max(last, min(most, count - (parts - 1) * max(1, most // LEAST)))
    before = count - last
    starts = [before * place // max(1, parts - 1) for place in range(parts - 1)] + [before]
    return list(zip(starts, starts[1:] + [count]))


#: Views of a batch that are put into one call (two crops of each image, say).
VIEWS = 8


def layouts(torch, leaves, sizes):
    """Layouts worth trying, the likeliest first. `sizes`: rows of the batches that the loop has been given lately."""
    for count in _counts(torch, leaves, sizes):
        first = [_dim(torch, leaf, count, 0) for leaf in leaves]
        second = [_dim(torch, leaf, count, 1) for leaf in leaves]
        yield Layout(torch, count, first)
        if second != first:
            yield Layout(torch, count, second)
        square = [None if _square(torch, leaf, count) else dim for leaf, dim in zip(leaves, first)]
        if square != first and any(dim is not None for dim in square):
            yield Layout(torch, count, square)


def _counts(torch, leaves, sizes):
    """Numbers of rows that the call may have."""
    shapes = [tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    lengths = {len(leaf.items) for leaf in leaves if isinstance(leaf, Rows)}
    first = {shape[0] for shape in shapes if shape} | lengths
    second = {shape[1] for shape in shapes if len(shape) > 1}
    several = [size * views for views in range(2, VIEWS + 1) for size in sizes]
    seen = []
    # Last, some of the samples (those that a mask leaves): all inputs have as many.
    some = first if len(first) == 1 else ()
    for wanted, there in ((sizes, first), (several, first), (sizes, second), (some, first)):
        for size in wanted:
            if size in there and size > 1 and size not in seen:
                seen.append(size)
    return seen


def _dim(torch, leaf, count, preferred):
    if isinstance(leaf, Rows):
        return 0 if len(leaf.items) == count else None
    if not isinstance(leaf, torch.Tensor):
        return None
    found = [dim for dim in (0, 1) if leaf.dim() > dim and leaf.shape[dim] == count]
    if preferred in found:
        return preferred
    return found[0] if found else None


def _square(torch, leaf, count):
    """A mask between positions may have as many of them as there are samples."""
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 1 and leaf.shape[0] == leaf.shape[1] == count
