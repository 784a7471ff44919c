"""`python -m oomtune` is the command `oomtune`."""

from .launcher import main

main()
