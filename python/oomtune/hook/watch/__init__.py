"""Watches what the script does: its loaders, optimizers, models, backward passes and memory. Imports no other package of the hook."""
