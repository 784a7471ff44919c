"""Measures sizes in a process that is thrown away. Imports `watch`, `report` and `apply`."""
