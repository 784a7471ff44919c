"""Helpers for the libraries that they are named for. Importing one of them imports no other library than that."""
