"""torch and transformers for tests that compare with models of Hugging Face. They are
skipped if one of the two is not installed.
"""

import pytest
from with_torch import TORCH as TORCH
from with_torch import torch as torch

transformers = pytest.importorskip(
    "transformers", reason="the models come from transformers; pip install transformers"
)
transformers.logging.set_verbosity_error()
