"""torch for tests that compare with it. They are skipped if it is not installed."""

import pytest

torch = pytest.importorskip(
    "torch",
    reason=(
        "torch is the other side of these comparisons; pip install torch transformers"
    ),
)
torch.set_num_threads(1)

TORCH = [pytest.mark.xdist_group("torch"), pytest.mark.filterwarnings("ignore")]
