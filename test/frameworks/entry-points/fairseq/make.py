"""Makes what `fairseq-train` reads: `bin`, by `fairseq-preprocess`, of 64 lines of text, all of which are a step."""

import sys
from pathlib import Path

from fairseq_cli.preprocess import cli_main

rows = [" ".join("w%d" % ((place * (row + 7)) % 300) for place in range(63)) for row in range(64)]
Path("train.txt").write_text("\n".join(rows) + "\n")
sys.argv[1:] = "--only-source --trainpref train.txt --validpref train.txt --destdir bin --workers 1".split()
cli_main()
