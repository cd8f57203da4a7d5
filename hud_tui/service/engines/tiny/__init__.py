"""The tiny engine: policies small enough to train in NumPy."""

import os

SINGLE = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""What NumPy reads when it is loaded. One thread: it leaves a core to the screen, the same seed
gives the same bits, and a busy machine does not make two wait for each other."""

os.environ.update(dict.fromkeys(SINGLE, "1"))
