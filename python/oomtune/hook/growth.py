"""Whether memory rises from step to step, judged over all of the steps: what a loop leaves behind goes on rising, however
much single steps go up and down."""

#: From so many values on a rise has to show in most of their pairs.
ENOUGH = 5
#: Part of the pairs of values by which more have to rise than fall.
CONCORDANT = 0.6
#: A rise is more than so many times what single steps go up and down by: an allocator hands out blocks of several sizes.
BEYOND = 1.5


def rise(values):
    """Bytes for each step, by the median slope over all pairs of values (Theil and Sen's estimate); 0: they do not rise.
    None: too few values."""
    if len(values) < 2 or None in values:
        return None
    slope, concordance = _fit(values)
    if len(values) >= ENOUGH and concordance < CONCORDANT:
        return 0
    if len(values) > 2:
        # What has stopped rising (a cache that is full, an allocator at rest) is left behind by no step.
        later = values[len(values) // 2 :]
        slope = min(slope, _fit(later)[0])
        if len(values) >= ENOUGH and slope * (len(later) - 1) <= BEYOND * _spread(later, slope):
            return 0
    return max(0, int(slope))


def _spread(values, slope):
    """How far apart the values lie beside a line of that slope."""
    beside = [value - slope * step for step, value in enumerate(values)]
    return max(beside) - min(beside)


def _fit(values):
    """(median slope, by how much rising pairs outweigh falling ones: from -1 to 1)."""
    slopes = sorted((later - before) / (j - i) for j, later in enumerate(values) for i, before in enumerate(values[:j]))
    middle = len(slopes) // 2
    median = slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2
    balance = sum((slope > 0) - (slope < 0) for slope in slopes)
    return median, balance / len(slopes)
