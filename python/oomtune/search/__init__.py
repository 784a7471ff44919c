"""A search for a function: the function becomes a script, which the program `oomtune` starts like any other."""
