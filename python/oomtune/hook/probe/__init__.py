"""Measures batch sizes in a process that is thrown away. Imports `watch`, `report`, `apply` and `cut`."""
