"""Reports to the worker. Imports `watch`."""
