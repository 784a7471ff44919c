"""Applies the knobs to the script. Imports `watch`, `report` and `cut`."""
