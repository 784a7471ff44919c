"""The cut at the model's call: the script's loop sees its own batches, and each outermost training call of a model runs as
several micro-batches. Known from contrastive learning as gradient caching.

The forward pass runs one micro-batch after another without keeping activations, and joins the outputs for the script. The
backward pass runs each micro-batch forward once more, with the same random numbers, and then backward with its slice of the
gradient.
"""

from .cut import Cut

__all__ = ["Cut"]
