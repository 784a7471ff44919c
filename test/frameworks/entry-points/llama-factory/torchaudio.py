"""A stand-in. LLaMA-Factory imports torchaudio at its start and calls it for sounds alone; the newest on Python's index is built
for another CUDA than the pinned torch, and refuses to be imported beside it."""
