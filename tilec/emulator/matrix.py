"""MFMA: the table of every dense matrix instruction, its register layouts, and its execution over a batch of waves.

Layout rule (AMD matrix instruction calculator; facts checked entry by entry in the tests): the 64 lanes of A hold (k
group, block, row), of B (k group, block, column), each with k_items consecutive k; D holds groups of 4 rows (1 for
f64). The 8-bit operands of f8f6f4 come in two halves of 16 k per lane. MFMA ignores EXEC and MODE rounding.

`fast` numerics multiply in BLAS, float32 (float64 for f64), within matrix_exact.distance_bound of `exact`. Integer
results are exact in both. NaN payloads are those of the host in `fast`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.emulator import matrix_exact
from tilec.emulator.arithmetic import F32
from tilec.emulator.formats import E8M0_VALUES, FORMATS, f16_bits_to_f32, unpack
from tilec.emulator.mode import Mode

Array = np.ndarray[Any, Any]

BITS = {
    "f64": 64,
    "f32": 32,
    "xf32": 32,
    "i32": 32,
    "f16": 16,
    "bf16": 16,
    "i8": 8,
    "fp8": 8,
    "bf8": 8,
    "fp6": 6,
    "bf6": 6,
    "fp4": 4,
}
F8F6F4 = ("fp8", "bf8", "fp6", "bf6", "fp4")  # the codes of cbsz (for A) and blgp (for B)
BOTH = ("gfx942", "gfx950")
PLAIN = Mode()


@dataclass(frozen=True)
class MatrixRow:
    """One mnemonic: D[m, n] = A[m, k] B[k, n] + C[m, n] for each of `blocks`. `passes` are of 4 cycles.

    `a` and `b` are format names, or f8f6f4 where cbsz and blgp choose; then `passes` holds for an 8-bit operand and
    half of it otherwise. A pair of passes is (gfx942, gfx950).
    """

    name: str
    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    cd: str
    passes: int | tuple[int, int]
    hazard_class: str
    architectures: tuple[str, ...] = BOTH
    scaled: bool = False

    def formats(self, cbsz: int = 0, blgp: int = 0) -> tuple[str, str]:
        return (F8F6F4[cbsz], F8F6F4[blgp]) if self.a == "f8f6f4" else (self.a, self.b)

    def cycles(self, architecture: str, cbsz: int = 0, blgp: int = 0) -> int:
        """Clocks that the matrix pipe is busy."""
        passes = self.passes if isinstance(self.passes, int) else self.passes[BOTH.index(architecture)]
        narrow = self.a == "f8f6f4" and not any(f in ("fp8", "bf8") for f in self.formats(cbsz, blgp))
        return 4 * (passes // 2 if narrow else passes)

    @property
    def groups(self) -> int:
        """How many groups of lanes share the contracted index."""
        return 64 // (self.m * self.blocks)

    @property
    def k_items(self) -> int:
        return self.k // self.groups

    def operand_dwords(self, form: str) -> int:
        return self.k_items * BITS[form] // 32

    @property
    def a_dwords(self) -> int:
        return self.operand_dwords(self.formats()[0])

    @property
    def b_dwords(self) -> int:
        return self.operand_dwords(self.formats()[1])

    @property
    def cd_dwords(self) -> int:
        return self.m * self.n * self.blocks * BITS[self.cd] // 2048

    @property
    def d_shape(self) -> tuple[int, int, int, int, int]:
        """(outer blocks, row groups, rows per item group, inner blocks, lane rows): how D spreads over items and lanes.

        Row i = h + H * (lane row + lane rows * row group) with h < H; block = inner + inner blocks * outer.
        """
        height = 1 if self.cd == "f64" else 4
        inner = max(1, 64 * height // (self.n * self.m))
        lane_rows = 64 // inner // self.n
        return self.blocks // inner, self.m // (height * lane_rows), height, inner, lane_rows


def _table() -> dict[str, MatrixRow]:
    rows: list[MatrixRow] = []

    def add(shape: str, passes: int | tuple[int, int], cd: str, *pairs: str, only: str = "") -> None:
        m, n, k, *blocks = (int(x.rstrip("b")) for x in shape.replace("_", "x").split("x"))
        hazard = {"f32": "sgemm", "f64": "dgemm"}
        for pair in pairs:
            a, b = pair.split("_") if "_" in pair else (pair, pair)
            rows.append(
                MatrixRow(
                    f"v_mfma_{cd}_{shape}_{pair}", m, n, k, blocks[0] if blocks else 1, a, b, cd, passes,
                    hazard.get(pair, "xdl"), (only,) if only else BOTH,
                )
            )  # fmt: skip

    eight = ("fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8")
    for shape, passes in (("4x4x4_16b", 2), ("16x16x4_4b", 8), ("32x32x4_2b", 16), ("16x16x16", 4), ("32x32x8", 8)):
        add(shape, passes, "f32", "f16", "bf16")
    for shape, passes in (("4x4x1_16b", 2), ("16x16x1_4b", 8), ("32x32x1_2b", 16), ("16x16x4", 8), ("32x32x2", 16)):
        add(shape, passes, "f32", "f32")
    for shape, passes in (("4x4x4_16b", 2), ("16x16x4_4b", 8), ("32x32x4_2b", 16), ("16x16x32", 4), ("32x32x16", 8)):
        add(shape, passes, "i32", "i8")
    add("16x16x32", 4, "f32", *eight)
    add("32x32x16", 8, "f32", *eight)
    add("16x16x8", 4, "f32", "xf32", only="gfx942")
    add("32x32x4", 8, "f32", "xf32", only="gfx942")
    add("16x16x4", (8, 16), "f64", "f64")
    add("4x4x4_4b", 4, "f64", "f64")
    add("16x16x32", 4, "f32", "f16", "bf16", only="gfx950")
    add("32x32x16", 8, "f32", "f16", "bf16", only="gfx950")
    add("16x16x64", 4, "i32", "i8", only="gfx950")
    add("32x32x32", 8, "i32", "i8", only="gfx950")
    for shape, k, passes in ((16, 128, 8), (32, 64, 16)):
        for prefix in ("", "scale_"):
            name = f"v_mfma_{prefix}f32_{shape}x{shape}x{k}_f8f6f4"
            rows.append(
                MatrixRow(name, shape, shape, k, 1, "f8f6f4", "f8f6f4", "f32", passes, "xdl", ("gfx950",), bool(prefix))
            )
    return {row.name: row for row in rows}


MATRIX: dict[str, MatrixRow] = _table()


def operand_index(row: MatrixRow, form: str, lane: Array, item: Array) -> tuple[Array, Array, Array]:
    """(block, row of A or column of B, k) of an operand's item in a lane; A and B share the rule since m == n."""
    group, rest = lane // (row.m * row.blocks), lane % (row.m * row.blocks)
    k = row.k_items * group + item
    if _is_split(row, form):
        k = row.k // 2 * (item // 16) + 16 * group + item % 16
    return rest // row.m, rest % row.m, k


def result_index(row: MatrixRow, lane: Array, item: Array) -> tuple[Array, Array, Array]:
    """(block, row, column) of D's item in a lane."""
    _, row_groups, height, inner, lane_rows = row.d_shape
    upper, h = item // height, item % height
    i = h + height * (lane // (row.n * inner) + lane_rows * (upper % row_groups))
    return lane // row.n % inner + inner * (upper // row_groups), i, lane % row.n


def _is_split(row: MatrixRow, form: str) -> bool:
    return row.a == "f8f6f4" and BITS[form] == 8


def _values(dwords: Array, form: str, items: int, architecture: str) -> Array:
    """Operand registers [n, W, 64] to float values [W, items, 64]: float32, exact for every format but f64."""
    if form in ("bf16", "f16"):
        out = np.empty((dwords.shape[1], items // 2, 2, 64), np.uint32)
        by_wave = dwords.transpose(1, 0, 2)
        np.left_shift(by_wave, np.uint32(16), out=out[:, :, 0])
        np.bitwise_and(by_wave, np.uint32(0xFFFF0000), out=out[:, :, 1])
        values = out.view(np.float32) if form == "bf16" else f16_bits_to_f32(out)
        return values.reshape(-1, items, 64)
    if form in ("f32", "xf32"):
        return dwords.transpose(1, 0, 2).view(np.float32)
    if form == "f64":
        pairs = dwords.reshape(items, 2, -1, 64).transpose(2, 0, 3, 1)
        return np.ascontiguousarray(pairs).view(np.float64)[..., 0]
    codes = unpack(dwords, BITS[form])
    return codes.view(np.int8).astype(np.float32) if form == "i8" else FORMATS[architecture][form].decode(codes)


def _operand(row: MatrixRow, dwords: Array, form: str, mode: Mode) -> Array:
    """Operand registers to values [W, blocks, k, rows or columns], k ascending."""
    values = _values(dwords, form, row.k_items, mode.architecture)
    if form in ("f32", "xf32") and not mode.denorm32 & 1:
        values = F32.flush(np.ascontiguousarray(values))
    if form == "xf32":
        values = (np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    halves = 2 if _is_split(row, form) else 1
    split = values.reshape(-1, halves, row.k_items // halves, row.groups, row.blocks, row.m)
    ordered = split.transpose(0, 4, 1, 3, 2, 5)
    return ordered.reshape(-1, row.blocks, row.k, row.m)


def _operand_any_order(row: MatrixRow, dwords: Array, form: str, mode: Mode) -> Array:
    """As _operand with k in register order: enough when A and B share it, and free of copies for one block."""
    values = _values(dwords, form, row.k_items, mode.architecture)
    return values.reshape(-1, 1, row.k, row.m)


def _accumulator(row: MatrixRow, dwords: Array) -> Array:
    """C registers [n, W, 64] to [W, blocks, m, n] in the type of the accumulator."""
    outer, row_groups, height, inner, lane_rows = row.d_shape
    if row.cd == "f64":
        pairs = dwords.reshape(-1, 2, *dwords.shape[1:]).transpose(0, 2, 3, 1)
        values = np.ascontiguousarray(pairs).view(np.float64)[..., 0]
    else:
        values = dwords.view(np.float32 if row.cd == "f32" else np.int32)
    split = values.reshape(outer, row_groups, height, -1, lane_rows, inner, row.n)
    return split.transpose(3, 0, 5, 1, 4, 2, 6).reshape(-1, row.blocks, row.m, row.n)


def _result(row: MatrixRow, values: Array) -> Array:
    """The inverse of _accumulator."""
    outer, row_groups, height, inner, lane_rows = row.d_shape
    split = values.reshape(-1, outer, inner, row_groups, lane_rows, height, row.n)
    ordered = np.ascontiguousarray(split.transpose(1, 3, 5, 0, 4, 2, 6)).reshape(-1, values.shape[0], 64)
    if row.cd != "f64":
        return ordered.view(np.uint32)
    pairs = ordered.view(np.uint32).reshape(*ordered.shape, 2)
    return np.ascontiguousarray(pairs.transpose(0, 3, 1, 2)).reshape(-1, values.shape[0], 64)


def _broadcast_a(dwords: Array, cbsz: int, abid: int) -> Array:
    size = 64 >> cbsz
    return dwords.take(np.arange(64) % size + size * abid, axis=-1)


def _broadcast_b(dwords: Array, blgp: int) -> Array:
    """Lane patterns of BLGP: halves, a rotation by 16, or one of the four quarters."""
    lane = np.arange(64)
    pattern = {1: lane % 32, 2: 32 + lane % 32, 3: (lane + 16) % 64}.get(blgp, 16 * (blgp - 4) + lane % 16)
    return dwords.take(pattern, axis=-1)


def execute(
    row: MatrixRow,
    a: Array,
    b: Array,
    c: Array,
    *,
    numerics: str = "fast",
    cbsz: int = 0,
    abid: int = 0,
    blgp: int = 0,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
    clamp: bool = False,
    mode: Mode = PLAIN,
) -> Array:
    """D registers, uint32 [cd_dwords, W, 64], of operand registers uint32 [dwords, W, 64].

    Scales are E8M0 codes (uint8 [W, 64], the byte that op_sel chose), one per row or column and 32 k.
    """
    form_a, form_b = row.formats(cbsz, blgp)
    if row.a == "f64":
        a, b, c = _negated64(a, blgp & 1), _negated64(b, blgp & 2), _negated64(c, blgp & 4)
    elif row.a != "f8f6f4":
        a = _broadcast_a(a, cbsz, abid) if cbsz else a
        b = _broadcast_b(b, blgp) if blgp else b
    scaled = scale_a is not None and scale_b is not None
    if numerics == "fast" and row.blocks == 1 and not scaled and _is_split(row, form_a) == _is_split(row, form_b):
        if form_a not in ("f32", "xf32"):
            left, right = (_operand_any_order(row, x, form, mode) for x, form in ((a, form_a), (b, form_b)))
            return _fast(row, left, right, c, clamp, mode)
    left, right = _operand(row, a, form_a, mode), _operand(row, b, form_b, mode)
    scales: list[Array | None] = [None, None]
    if scale_a is not None and scale_b is not None:
        scales = [E8M0_VALUES[s].reshape(-1, row.groups, row.m) for s in (scale_a, scale_b)]
    if numerics == "exact" and row.cd != "i32":
        values = _exact(row, (form_a, form_b), left, right, scales, _accumulator(row, c), mode)
        return _result(row, _clamped(values, mode))
    if scales[0] is not None and scales[1] is not None:
        values = _scaled(row, left, right, scales[0], scales[1], _accumulator(row, c))
        return _result(row, _clamped(values, mode))
    return _fast(row, left, right, c, clamp, mode)


def factors(
    row: MatrixRow, forms: tuple[str, str], left: Array, right: Array, scales: list[Array | None], mode: Mode
) -> list[matrix_exact.Factor]:
    """The operands [W, blocks, k, rows] as exact factors, with scales [W, k / 32, rows] spread over k."""
    result = []
    for form, values, scale in zip(forms, (left, right), scales, strict=True):
        spread = None if scale is None else np.repeat(scale, 32, axis=1)[:, None]
        result.append(matrix_exact.factor(form, values, mode, spread))
    return result


def _exact(
    row: MatrixRow, forms: tuple[str, str], left: Array, right: Array, scales: list[Array | None], c: Array, mode: Mode
) -> Array:
    if row.a in ("f32", "f64"):
        return matrix_exact.sequential(row.a, left, right, c)
    factor_a, factor_b = factors(row, forms, left, right, scales, mode)
    return matrix_exact.grouped(row.a, factor_a, factor_b, c)


def _negated64(dwords: Array, negate: int) -> Array:
    if not negate:
        return dwords
    return dwords ^ np.where(np.arange(dwords.shape[0]) & 1, np.uint32(1 << 31), np.uint32(0))[:, None, None]


def _clamped(values: Array, mode: Mode) -> Array:
    """FP16_OVFL makes an f32 overflow the largest number."""
    if not mode.fp16_ovfl or values.dtype != np.float32:
        return values
    return np.clip(values, -np.finfo(np.float32).max, np.finfo(np.float32).max)


def _fast(row: MatrixRow, left: Array, right: Array, c: Array, clamp: bool, mode: Mode) -> Array:
    product = np.matmul(left.swapaxes(-1, -2), right)
    if row.cd == "i32":  # at most 64 products below 2**14: exact in float32
        total = product.astype(np.int64) + _accumulator(row, c)
        limits = np.iinfo(np.int32)
        return _result(row, (np.clip(total, limits.min, limits.max) if clamp else total).astype(np.int32))
    if row.blocks == 1 and row.cd == "f32":  # add in D's register order: saves a copy of C
        _, row_groups, height, _, lane_rows = row.d_shape
        ordered = product.reshape(-1, row_groups, lane_rows, height, row.n).transpose(1, 3, 0, 2, 4)
        added = ordered + c.view(np.float32).reshape(row_groups, height, -1, lane_rows, row.n)
        return _clamped(added, mode).reshape(-1, product.shape[0], 64).view(np.uint32)
    return _result(row, _clamped(product + _accumulator(row, c), mode))


def _scaled(row: MatrixRow, left: Array, right: Array, scale_a: Array, scale_b: Array, c: Array) -> Array:
    """Products of 32 k at a time in float32, scaled and summed in float64, rounded once."""
    waves = left.shape[0]
    blocks_a = left.reshape(waves, row.groups, 32, row.m).swapaxes(-1, -2)
    partial = np.matmul(blocks_a, right.reshape(waves, row.groups, 32, row.n)).astype(np.float64)
    partial *= scale_a[..., :, None]
    partial *= scale_b[..., None, :]
    return (partial.sum(axis=1)[:, None] + c).astype(np.float32)
