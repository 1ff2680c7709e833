"""Each kernel test runs for both architectures."""

import pytest


@pytest.fixture(params=("gfx942", "gfx950"))
def arch(request: pytest.FixtureRequest) -> str:
    return request.param
