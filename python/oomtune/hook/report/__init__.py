"""Tells the worker. Imports `watch`."""
