import os

os.environ.setdefault("OMP_NUM_THREADS", "1") # the tests run side by side, one process per processor

import matplotlib

matplotlib.use("agg")
