"""What a module is made of: layers, or models around which it computes a loss or compares what they return."""

from __future__ import annotations

from .lazy_layers import is_made

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..types import Module

#: So many models may be in a module at most for it to be made of them.
FEW = 4
#: Part of the weights from which on the models in a module are what is to be cut.
NEARLY = 0.9


def is_model(module: Module) -> bool:
    """Whether it has weights and is more than a layer."""
    return next(module.children(), None) is not None and next(module.parameters(), None) is not None


def has_one_model(module: Module) -> bool:
    """Whether all weights of the module that learn are those of one module in it, and that is more than a layer."""
    own = {id(each) for each in module.parameters() if each.requires_grad}
    return any(own <= {id(each) for each in child.parameters()} for child in module.children() if is_model(child))


def is_made_of_models(module: Module) -> bool:
    """Whether a few modules in it that are more than a layer have nearly all of its weights that learn. (Of many, as the blocks of a
    network are, each one's output would be whole in memory.)"""
    models = [child for child in module.children() if is_model(child)]
    parts = {id(each) for model in models for each in model.parameters()}
    weights = [each for each in module.parameters() if each.requires_grad and is_made(each)]
    inner = sum(each.numel() for each in weights if id(each) in parts)
    return len(models) <= FEW and inner > NEARLY * sum(each.numel() for each in weights)
