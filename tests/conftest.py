import os

import pytest
import torch
from hypothesis import settings

from lawful.kernels import force_backend, native_status

torch.set_num_threads(1)
settings.register_profile("lawful", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("lawful")
os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture(params=["reference", "native"])
def backend(request):
    """Runs the test once with the plain torch path and once with the compiled kernels."""
    if request.param == "native" and not native_status().live:
        pytest.skip(native_status().describe())
    with force_backend(request.param):
        yield request.param


@pytest.fixture
def seed():
    torch.manual_seed(0)
