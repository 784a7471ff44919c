"""How the outputs of micro-batches become the outputs of the whole call."""


class Along:
    """One row, or the same number of rows, for each sample along a dimension."""

    def __init__(self, dim, factor):
        self.dim = dim
        #: Rows of the output for each sample.
        self.factor = factor

    def slice(self, gradient, start, stop):
        return gradient.narrow(self.dim, start * self.factor, (stop - start) * self.factor)


class Folded:
    """No row for each sample: the parts' values are added up, each by its weight. `names`: rules that may hold."""

    def __init__(self, names):
        self.names = names


class Same:
    """Every micro-batch gives the same."""
