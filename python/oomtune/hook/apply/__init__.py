"""Brings the knobs into the script. Imports `watch` and `report`."""
