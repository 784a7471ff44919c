"""On the path of a script whose own end is not what a test is about: the collector, which the interpreter calls once more at its end,
finds nothing to look through. With a current torch that is a fifth of the time of a start. All else is as it is: exit handlers run
before, in the same order, and modules are taken apart after it.
"""

import atexit
import gc

atexit.register(gc.freeze)  # the first to be registered is the last to run
