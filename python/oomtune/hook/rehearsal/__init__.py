"""A rehearsal: the job's own script, shortened, to see what its evaluation, generation and saving take."""
