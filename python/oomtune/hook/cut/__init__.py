"""The cut at the model's call: the script's loop sees its own batches, and each outermost training call of a model is
run as several micro-batches. Known from contrastive learning as gradient caching.

The forward pass runs one micro-batch after another and keeps no activations; the outputs are joined and the script
goes on with them. In the backward pass each micro-batch is run forward once more, with the random numbers that it had,
and takes its slice of the gradient.
"""

from .cut import Cut

__all__ = ["Cut"]
