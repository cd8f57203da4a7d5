"""The tiny engine: policies small enough to train in NumPy."""

import os

SINGLE = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Variables that NumPy's BLAS reads when it is loaded. With one thread, a core is left for the
screen, and the same seed gives the same bits."""

os.environ.update(dict.fromkeys(SINGLE, "1"))
