"""Objects of another compiler run right, with every check on and no false alarm, whatever the order of waves and
landings.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilec.emulator import CHECKS, load_object
from tilec.emulator.corpus import load_description, load_reference, run_case
from tilec.errors import TilecError

CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"
REFERENCE = load_reference(CORPUS / "ref.py")
OBJECTS = {
    path.parent.name: (load_object(path.read_bytes()), load_description(path.with_name("meta.json")))
    for path in sorted(CORPUS.glob("*/kernel.hsaco"))
}
CASES = [(name, case["id"]) for name, (_, meta) in OBJECTS.items() for case in meta["cases"]]


def show(result):
    return "\n".join([*result.mismatches, *map(str, result.findings)])


@pytest.mark.parametrize(("name", "case"), CASES)
def test_an_object_passes_with_all_checks(name, case):
    code, meta = OBJECTS[name]
    result = run_case(code, meta, case, REFERENCE, checks=CHECKS)
    assert result.passed, show(result)
    assert result.statistics.instructions > 0


@pytest.mark.parametrize(
    "name",
    [
        "softmax_row_bf16_1024__gfx942",
        "transpose_bf16_64x64__gfx950",
        "gemm_bf16_128x128x64_w4_s2__gfx950",
        "atomic_scatter__gfx950",
        "collatz__gfx942",
    ],
)
@pytest.mark.parametrize(("landing", "seed"), [("early", 0), ("random", 1), ("random", 2), ("late", 3)])
def test_order_and_landing_change_nothing(name, landing, seed):
    code, meta = OBJECTS[name]
    case = meta["cases"][-1]["id"]
    plain = run_case(code, meta, case, REFERENCE, checks="none")
    result = run_case(code, meta, case, REFERENCE, landing=landing, seed=seed)
    assert result.passed, show(result)
    assert all((result.outputs[key].view("u1") == plain.outputs[key].view("u1")).all() for key in plain.outputs)


@pytest.mark.parametrize("name", ["vadd_f32__gfx942", "pid3d__gfx950"])
def test_entering_at_the_prologue_gives_the_same(name):
    code, meta = OBJECTS[name]
    for preload in (False, True):
        result = run_case(code, meta, meta["cases"][0]["id"], REFERENCE, preload=preload)
        assert result.passed, show(result)


def test_exact_numerics_pass_as_well():
    code, meta = OBJECTS["gemm_bf16_128x128x64_w4_s1__gfx942"]
    assert run_case(code, meta, "one", REFERENCE, numerics="exact").passed


def test_what_cannot_be_launched_is_refused():
    code, meta = OBJECTS["gemm_bf16_128x128x64_w4_s1__gfx942"]
    with pytest.raises(TilecError, match="needs 131072 bytes of LDS per workgroup") as caught:
        run_case(code, {**meta, "lds_dynamic": 131072}, "one", REFERENCE)
    assert "gfx942 has 65536 bytes" in str(caught.value)
    with pytest.raises(TilecError, match="no case 'two'"):
        run_case(code, meta, "two", REFERENCE)
    with pytest.raises(TilecError, match="no reference at"):
        load_reference(CORPUS / "missing.py")


def test_the_reference_is_believed():
    """A wrong object must not pass: leave out an addition."""
    code, meta = OBJECTS["vadd_f32__gfx942"]
    add = next(i.address for i in code.instructions if i.text.startswith("v_add_f32"))
    assert run_case(code, meta, "a", REFERENCE, without=[add]).mismatches


def test_xf32_is_right_in_exact_numerics():
    """The reference of this object knows nothing of xf32: it allows float32 errors. `exact` cuts operands to 10 bits as
    the hardware does, so it misses that reference by a thousand times its tolerance, and meets the product of the cut
    operands within it.
    """
    code, meta = OBJECTS["gemm_f32_64x64x32_w4__gfx942"]
    assert any("xf32" in i.text for i in code.instructions)
    launch = REFERENCE.launch(meta, "one")
    a, b = (launch.buffers[name].raw for name in "ab")
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64) for x in (a, b)]
    result = run_case(code, meta, "one", REFERENCE, numerics="exact")
    assert not result.findings and len(result.mismatches) == 1
    got, limit = result.outputs["c"].astype(np.float64), 1e-5 * a.shape[1] ** 0.5
    assert np.abs(got - cut[0] @ cut[1].T).max() < limit
    assert np.abs(got - a.astype(np.float64) @ b.astype(np.float64).T).max() > 100 * limit
    fast = run_case(code, meta, "one", REFERENCE).outputs["c"]
    assert (np.abs(fast - got) <= 2.0**-9 * (np.abs(a).astype(np.float64) @ np.abs(b).T)).all()
