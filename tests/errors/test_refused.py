"""Every rejected program gives its whole message: refused.txt holds one for each kernel of kernels_refused.py.

After a change of wording: `python tests/errors/test_refused.py` rewrites refused.txt; read its diff.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import tilec as tc

HERE = Path(__file__).parent
EXPECTED = HERE / "refused.txt"

_spec = importlib.util.spec_from_file_location("kernels_refused", HERE / "kernels_refused.py")
assert _spec and _spec.loader
kernels_refused = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kernels_refused)
KERNELS = {name: item for name, item in vars(kernels_refused).items() if isinstance(item, tc.Kernel)}


def message(name: str) -> str:
    tensors, arch = kernels_refused.arguments(name)
    try:
        KERNELS[name].trace(*tensors, arch=arch)
    except tc.TilecError as error:
        return str(error).replace(f"{HERE}/", "")
    return "not refused"


def expected() -> dict[str, str]:
    entries = EXPECTED.read_text().split("\n\n")
    return dict(entry.strip("\n").split("\n", 1) for entry in entries if entry.strip())


@pytest.mark.parametrize("name", KERNELS)
def test_the_message(name: str):
    assert message(name) == expected()[f"[{name}]"]


def test_no_message_is_stale():
    assert set(expected()) == {f"[{name}]" for name in KERNELS}


if __name__ == "__main__":
    EXPECTED.write_text("\n\n".join(f"[{name}]\n{message(name)}" for name in KERNELS) + "\n")
