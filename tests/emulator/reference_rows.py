"""What each vector instruction computes for one lane, on Python integers, as in the pseudocode of the ISA guides.

Sources come as unsigned ints (u kinds, float bits), signed ints (i kinds), bools (mask) or tuples of those (packed
kinds). A result is an int (wrapped to the destination's width by the caller), a bool, a tuple for packed kinds, or a
list with one result per destination. Names without an entry are packed forms, whose entry is the scalar one applied per
item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from typing import Any

from tests.emulator import reference
from tests.emulator.reference import F16, F32, F64, FORMATS, Binary
from tilec.emulator.mode import Mode

ROWS: dict[str, Callable[..., Any]] = {}
M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def plain(entries: dict[str, Callable[..., Any]]) -> None:
    """Entries that no mode bit changes."""
    for name, function in entries.items():
        ROWS[name] = lambda mode, *sources, function=function, **named: function(*sources, **named)


def signed(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (x >> bits - 1 << bits)


def parts(x: int, bits: int, is_signed: bool = False, width: int = 32) -> list[int]:
    fields = [x >> i & (1 << bits) - 1 for i in range(0, width, bits)]
    return [signed(f, bits) for f in fields] if is_signed else fields


def joined(fields: Iterable[int], bits: int) -> int:
    return sum((f & (1 << bits) - 1) << i * bits for i, f in enumerate(fields))


# Integers

plain({
    "v_mov_b32": lambda a: a, "v_mov_b64": lambda a: a,
    "v_accvgpr_read_b32": lambda a: a, "v_accvgpr_write_b32": lambda a: a, "v_accvgpr_mov_b32": lambda a: a,
    "v_pk_mov_b32": lambda a, b: (a[0], b[0]),
    "v_swap_b32": lambda source, old: [source, old],
    "v_cndmask_b32": lambda a, b, mask: b if mask else a,
    "v_not_b32": lambda a: ~a, "v_and_b32": lambda a, b: a & b, "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b, "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_and_or_b32": lambda a, b, c: a & b | c, "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c, "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
    "v_bfm_b32": lambda a, b: (1 << a % 32) - 1 << b % 32,
    "v_bfe_u32": lambda a, b, c: a >> b % 32 & (1 << c % 32) - 1,
    "v_bfe_i32": lambda a, b, c: signed(a >> b % 32, c % 32) if c % 32 else 0,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32": lambda a: 32 - a.bit_length() if a else -1,
    "v_ffbh_i32": lambda a: -1 if a in (0, -1) else 32 - (a if a > 0 else ~a).bit_length(),
    "v_ffbl_b32": lambda a: f"{a:032b}"[::-1].find("1"),
    "v_bcnt_u32_b32": lambda a, b: a.bit_count() + b,
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> c % 32,
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> c % 4 * 8,
    "v_pack_b32_f16": lambda a, b: (a, b),
    "v_prng_b32": lambda a: a << 1 ^ (197 if a >> 31 else 0),
    "v_lshl_add_u32": lambda a, b, c: (a << b % 32) + c, "v_add_lshl_u32": lambda a, b, c: a + b << c % 32,
    "v_lshl_or_b32": lambda a, b, c: a << b % 32 | c, "v_lshl_add_u64": lambda a, b, c: (a << b % 8) + c,
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_mul_lo_u32": lambda a, b: a * b, "v_mul_lo_i32": lambda a, b: a * b, "v_mul_lo_u16": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32, "v_mul_hi_i32": lambda a, b: a * b >> 32,
    "v_mul_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24),
    "v_mul_hi_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24) >> 32,
    "v_mul_u32_u24": lambda a, b: a % (1 << 24) * (b % (1 << 24)),
    "v_mul_hi_u32_u24": lambda a, b: a % (1 << 24) * (b % (1 << 24)) >> 32,
    "v_mad_i32_i24": lambda a, b, c: signed(a, 24) * signed(b, 24) + c,
    "v_mad_u32_u24": lambda a, b, c: a % (1 << 24) * (b % (1 << 24)) + c,
    "v_mad_u32_u16": lambda a, b, c: a * b + c, "v_mad_i32_i16": lambda a, b, c: a * b + c,
    "v_add_co_u32": lambda a, b: [a + b, a + b > M32],
    "v_sub_co_u32": lambda a, b: [a - b, a < b], "v_subrev_co_u32": lambda a, b: [b - a, b < a],
    "v_addc_co_u32": lambda a, b, c: [a + b + c, a + b + c > M32],
    "v_subb_co_u32": lambda a, b, c: [a - b - c, a < b + c],
    "v_subbrev_co_u32": lambda a, b, c: [b - a - c, b < a + c],
    "v_mad_u64_u32": lambda a, b, c: [a * b + c, a * b + c > M64],
    "v_mad_i64_i32": lambda a, b, c: [a * b + c, bool(a * b + c >> 64 & 1)],
    "v_sad_u8": lambda a, b, c: differences(a, b, 8) + c,
    "v_sad_hi_u8": lambda a, b, c: (differences(a, b, 8) << 16) + c,
    "v_sad_u16": lambda a, b, c: differences(a, b, 16) + c, "v_sad_u32": lambda a, b, c: abs(a - b) + c,
    "v_msad_u8": lambda a, b, c: differences(a, b, 8, True) + c,
    "v_qsad_pk_u16_u8": lambda a, b, c: joined(quads(a, b, parts(c, 16, width=64), False), 16),
    "v_mqsad_pk_u16_u8": lambda a, b, c: joined(quads(a, b, parts(c, 16, width=64), True), 16),
    "v_mqsad_u32_u8": lambda a, b, c: tuple(quads(a, b, c, True)),
    "v_lerp_u8": lambda a, b, c: joined((x + y + z % 2 >> 1 for x, y, z in zip(*(parts(v, 8) for v in (a, b, c)))), 8),
    "v_sat_pk_u8_i16": lambda a: joined((min(max(x, 0), 255) for x in a), 8),
    "v_ashr_pk_i8_i32": lambda a, b, c: joined((min(max(x >> c % 32, -128), 127) for x in (a, b)), 8),
    "v_ashr_pk_u8_i32": lambda a, b, c: joined((min(max(x >> c % 32, 0), 255) for x in (a, b)), 8),
    "v_perm_b32": lambda a, b, c: joined((permuted(a << 32 | b, s) for s in parts(c, 8)), 8),
    "v_bitop3_b32": lambda a, b, c, bitop3: bit_table(a, b, c, bitop3, 32),
    "v_bitop3_b16": lambda a, b, c, bitop3: bit_table(a, b, c, bitop3, 16),
})  # fmt: skip


def differences(a: int, b: int, bits: int, masked: bool = False) -> int:
    return sum(abs(x - y) for x, y in zip(parts(a, bits), parts(b, bits)) if y or not masked)


def quads(a: int, b: int, c: Iterable[int], masked: bool) -> list[int]:
    return [differences(a >> 8 * i & M32, b, 8, masked) + x for i, x in enumerate(c)]


def permuted(data: int, selector: int) -> int:
    if selector < 8:
        return data >> 8 * selector & 255
    if selector < 12:
        return 255 * (data >> {8: 15, 9: 31, 10: 47, 11: 63}[selector] & 1)
    return 0 if selector == 12 else 255


def bit_table(a: int, b: int, c: int, table: int, width: int) -> int:
    return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(width))


for _bits in (16, 32, 64):
    plain({
        f"v_lshlrev_b{_bits}": lambda n, x, w=_bits: x << n % w,
        f"v_lshrrev_b{_bits}": lambda n, x, w=_bits: x >> n % w,
        f"v_ashrrev_i{_bits}": lambda n, x, w=_bits: x >> n % w,
    })  # fmt: skip
for _kind in ("u16", "i16", "u32", "i32"):
    plain({
        f"v_add_{_kind}": lambda a, b: a + b, f"v_sub_{_kind}": lambda a, b: a - b,
        f"v_subrev_{_kind}": lambda a, b: b - a, f"v_mad_{_kind}": lambda a, b, c: a * b + c,
        f"v_mad_legacy_{_kind}": lambda a, b, c: a * b + c,
        f"v_min_{_kind}": min, f"v_max_{_kind}": max, f"v_min3_{_kind}": min, f"v_max3_{_kind}": max,
        f"v_med3_{_kind}": lambda *x: sorted(x)[1],
    })  # fmt: skip
for _count, _kind, _signed in (
    (2, "i32_i16", True), (2, "u32_u16", False), (4, "i32_i8", True), (4, "u32_u8", False), (8, "i32_i4", True),
    (8, "u32_u4", False),
):  # fmt: skip
    for _name in (f"v_dot{_count}_{_kind}", f"v_dot{_count}c_{_kind}"):
        plain({_name: lambda a, b, c, n=32 // _count, s=_signed: c + sum(
            x * y for x, y in zip(parts(a, n, s), parts(b, n, s)))})  # fmt: skip

# Compares

_ORDER = {"lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
          "ge": lambda a, b: a >= b}  # fmt: skip
for _kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
    for _prefix in ("v_cmp_", "v_cmpx_"):
        plain({f"{_prefix}{name}_{_kind}": test for name, test in _ORDER.items()})
        plain({f"{_prefix}ne_{_kind}": lambda a, b: a != b, f"{_prefix}f_{_kind}": lambda a, b: False,
               f"{_prefix}t_{_kind}": lambda a, b: True})  # fmt: skip


def denormals(form: Binary, mode: Mode) -> int:
    return mode.denorm32 if form is F32 else mode.denorm64


def rounding(form: Binary, mode: Mode) -> int:
    return mode.round32 if form is F32 else mode.round64


def number(form: Binary, bits: int) -> Fraction | float:
    """Something that compares like the float."""
    if form.is_infinite(bits):
        return float("-inf") if form.sign(bits) else float("inf")
    return form.value(bits)


def compared(form: Binary, condition: str) -> Callable[..., bool]:
    negated = condition.startswith("n")
    test = _ORDER | {"lg": lambda a, b: a != b, "neq": None}

    def function(mode: Mode, a: int, b: int) -> bool:
        a, b = (form.flushed(x, denormals(form, mode) & 1) for x in (a, b))
        unordered = form.is_nan(a) or form.is_nan(b)
        if condition in ("f", "tru"):
            return condition == "tru"
        if condition in ("o", "u"):
            return unordered == (condition == "u")
        if unordered:
            return negated
        return test[condition.removeprefix("n")](number(form, a), number(form, b)) != negated

    return function


def classified(form: Binary) -> Callable[..., bool]:
    def function(mode: Mode, x: int, mask: int) -> bool:
        if form.is_nan(x):
            return bool(mask >> (0 if form.is_signaling(x) else 1) & 1)
        kind = 0 if form.is_infinite(x) else 3 if form.is_zero(x) else 2 if form.is_denormal(x) else 1
        return bool(mask >> (2 + kind if form.sign(x) else 9 - kind) & 1)

    return function


for _kind in ("f16", "f32", "f64"):
    for _prefix in ("v_cmp_", "v_cmpx_"):
        for _name in (
            "f",
            "lt",
            "eq",
            "le",
            "gt",
            "lg",
            "ge",
            "o",
            "u",
            "nge",
            "nlg",
            "ngt",
            "nle",
            "neq",
            "nlt",
            "tru",
        ):
            ROWS[f"{_prefix}{_name}_{_kind}"] = compared(FORMATS[_kind], _name)
        ROWS[f"{_prefix}class_{_kind}"] = classified(FORMATS[_kind])

# Floats


def governed(form: Binary, compute: Callable[..., int]) -> Callable[..., int]:
    """NaN sources win, denormals follow the mode; compute(rounding, *sources) sees neither."""

    def function(mode: Mode, *sources: int) -> int:
        nan = reference.first_nan(form, *sources)
        if nan is not None:
            return nan
        keep = denormals(form, mode)
        flushed = [form.flushed(x, keep & 1) for x in sources]
        result = compute(rounding(form, mode), *flushed)
        if form is F16 and mode.fp16_ovfl and form.is_infinite(result) and not any(map(form.is_infinite, flushed)):
            result -= 1
        return form.flushed(result, keep & 2)

    return function


def extreme(form: Binary, largest: bool) -> Callable[..., int]:
    def function(mode: Mode, a: int, b: int) -> int:
        keep = denormals(form, mode)
        a, b = (form.flushed(x, keep & 1) for x in (a, b))
        for x in (a, b):
            if mode.ieee and form.is_signaling(x):
                return x | form.quiet_bit
        if form.is_nan(a):
            result = b
        elif form.is_nan(b):
            result = a
        else:
            order = [(number(form, x), -form.sign(x), x) for x in (a, b)]
            result = (max if largest else min)(order)[2]
        return form.flushed(result, keep & 2)

    return function


def of_three(two: Callable[..., int]) -> Callable[..., int]:
    return lambda mode, a, b, c: two(mode, two(mode, a, b), c)


def median(form: Binary) -> Callable[..., int]:
    low, high = extreme(form, False), extreme(form, True)

    def function(mode: Mode, a: int, b: int, c: int) -> int:
        if any(map(form.is_nan, (a, b, c))):
            return low(mode, low(mode, a, b), c)
        top = number(form, high(mode, high(mode, a, b), c))
        if top == number(form, a):
            return high(mode, b, c)
        return high(mode, a, c) if top == number(form, b) else high(mode, a, b)

    return function


def propagating(form: Binary, largest: bool) -> Callable[..., int]:
    two = extreme(form, largest)

    def function(mode: Mode, a: int, b: int, c: int) -> int:
        nan = reference.first_nan(form, a, b, c)
        return two(mode, two(mode, a, b), c) if nan is None else nan

    return function


def integral(form: Binary, whole: Callable[[Fraction], int]) -> Callable[..., int]:
    def compute(_: int, x: int) -> int:
        return x if form.is_infinite(x) else form.round(Fraction(whole(form.value(x))), 0, form.sign(x))

    return governed(form, compute)


def fraction(form: Binary) -> Callable[..., int]:
    def compute(_: int, x: int) -> int:
        if form.is_infinite(x):
            return form.nan
        value = form.value(x)
        result = form.round(value - floor(value))
        return min(result, (form.bias << form.mantissa) - 1)

    return governed(form, compute)


def split_exponent(form: Binary, x: int) -> int:
    """e with |x| = m * 2**e, 1/2 <= m < 1; 0 for zero, infinity, NaN."""
    if not form.is_finite(x) or form.is_zero(x):
        return 0
    return reference.floor_log2(abs(form.value(x))) + 1


def mantissa(form: Binary) -> Callable[..., int]:
    def compute(_: int, x: int) -> int:
        if form.is_infinite(x) or form.is_zero(x):
            return x
        return form.round(form.value(x) / Fraction(2) ** split_exponent(form, x))

    return governed(form, compute)


def load_exponent(form: Binary) -> Callable[..., int]:
    def function(mode: Mode, x: int, n: int) -> int:
        def compute(direction: int, x: int) -> int:
            if form.is_infinite(x):
                return x
            return form.round(form.value(x) * Fraction(2) ** min(max(n, -4500), 4500), direction, form.sign(x))

        return governed(form, compute)(mode, x)

    return function


def division_scale(form: Binary) -> Callable[..., list[Any]]:
    step, far, tiny = (64, 96, 23) if form is F32 else (128, 768, 53)
    normal = Fraction(2) ** (1 - form.bias)

    def function(mode: Mode, value: int, denominator: int, numerator: int) -> list[Any]:
        def times(power: int) -> int:
            if form.is_nan(value):
                return value | form.quiet_bit
            return (
                value
                if form.is_infinite(value)
                else form.round(form.value(value) * Fraction(2) ** power, 0, form.sign(value))
            )

        if form.is_zero(denominator) or form.is_zero(numerator):
            return [value | form.quiet_bit if form.is_nan(value) else form.nan, False]
        equal_d = not form.is_nan(value) and not form.is_nan(denominator) and value == denominator
        equal_n = not form.is_nan(value) and not form.is_nan(numerator) and value == numerator
        if form.field(numerator) - form.field(denominator) >= far:
            return [times(step if equal_d else 0), True]
        if form.is_denormal(denominator):
            return [times(step), False]
        finite_d, finite_n = form.is_finite(denominator), form.is_finite(numerator)
        tiny_inverse = finite_d and 1 / abs(form.value(denominator)) < normal
        tiny_ratio = finite_d and finite_n and abs(form.value(numerator) / form.value(denominator)) < normal
        if tiny_inverse and tiny_ratio:
            return [times(-step if equal_d else 0), True]
        if tiny_inverse:
            return [times(-step), False]
        if tiny_ratio:
            return [times(step if equal_n else 0), True]
        return [times(step if form.field(numerator) <= tiny else 0), False]

    return function


def division_fma(form: Binary) -> Callable[..., int]:
    step = 64 if form is F32 else 128

    def compute(direction: int, a: int, b: int, c: int) -> int:
        result = reference.fused(form, a, b, c, direction)
        if not all(map(form.is_finite, (a, b, c))):
            return result
        exact = form.value(a) * form.value(b) + form.value(c)
        power = step if abs(form.value(c)) >= 2 else -step
        return form.round(exact * Fraction(2) ** power, direction) if exact else result

    scaled = governed(form, compute)
    return lambda mode, a, b, c, mask: (scaled if mask else ROWS[f"v_fma_{'f32' if form is F32 else 'f64'}"])(
        mode, a, b, c
    )


def division_fixup(form: Binary) -> Callable[..., int]:
    vanishing = {F32: -150, F64: -1075}.get(form, -(10**9))

    def function(mode: Mode, quotient: int, d: int, n: int) -> int:
        sign = (form.sign(d) ^ form.sign(n)) * form.sign_bit
        nan = reference.first_nan(form, n, d)
        if nan is not None:
            return nan
        if form.is_zero(d) and form.is_zero(n) or form.is_infinite(d) and form.is_infinite(n):
            return form.sign_bit | form.nan
        if form.is_zero(d) or form.is_infinite(n):
            return sign | form.infinity
        if form.is_infinite(d) or form.is_zero(n) or form.field(n) - form.field(d) < vanishing:
            return sign
        return sign | (form.infinity if not form.is_finite(quotient) else form.magnitude(quotient))

    return function


for _kind in ("f16", "f32", "f64"):
    _form = FORMATS[_kind]
    _fma = governed(_form, lambda r, a, b, c, form=_form: reference.fused(form, a, b, c, r))
    _integer = "i16" if _kind == "f16" else "i32"
    _rows: dict[str, Callable[..., Any]] = {
        f"v_add_{_kind}": governed(_form, lambda r, a, b, form=_form: reference.add(form, a, b, r)),
        f"v_sub_{_kind}": lambda mode, a, b, k=_kind: ROWS[f"v_add_{k}"](mode, a, b ^ FORMATS[k].sign_bit),
        f"v_subrev_{_kind}": lambda mode, a, b, k=_kind: ROWS[f"v_add_{k}"](mode, a ^ FORMATS[k].sign_bit, b),
        f"v_mul_{_kind}": governed(_form, lambda r, a, b, form=_form: reference.multiply(form, a, b, r)),
        f"v_fma_{_kind}": _fma, f"v_fmac_{_kind}": _fma, f"v_fmamk_{_kind}": _fma, f"v_fmaak_{_kind}": _fma,
        f"v_fma_legacy_{_kind}": _fma,
        f"v_min_{_kind}": extreme(_form, False), f"v_max_{_kind}": extreme(_form, True),
        f"v_min3_{_kind}": of_three(extreme(_form, False)), f"v_max3_{_kind}": of_three(extreme(_form, True)),
        f"v_med3_{_kind}": median(_form),
        f"v_minimum3_{_kind}": propagating(_form, False), f"v_maximum3_{_kind}": propagating(_form, True),
        f"v_trunc_{_kind}": integral(_form, int), f"v_ceil_{_kind}": integral(_form, ceil),
        f"v_floor_{_kind}": integral(_form, floor), f"v_rndne_{_kind}": integral(_form, round),
        f"v_fract_{_kind}": fraction(_form), f"v_frexp_mant_{_kind}": mantissa(_form),
        f"v_frexp_exp_{_integer}_{_kind}": lambda mode, x, form=_form: split_exponent(
            form, form.flushed(x, denormals(form, mode) & 1)),
        f"v_ldexp_{_kind}": load_exponent(_form),
        f"v_div_scale_{_kind}": division_scale(_form), f"v_div_fmas_{_kind}": division_fma(_form),
        f"v_div_fixup_{_kind}": division_fixup(_form), f"v_div_fixup_legacy_{_kind}": division_fixup(_form),
    }  # fmt: skip
    ROWS.update(_rows)


def legacy_multiply(mode: Mode, a: int, b: int) -> int:
    flushed = [F32.flushed(x, mode.denorm32 & 1) for x in (a, b)]
    return 0 if any(map(F32.is_zero, flushed)) else ROWS["v_mul_f32"](mode, a, b)


def unfused(mode: Mode, a: int, b: int, c: int) -> int:
    flat = replace(mode, denorm64=0)
    return ROWS["v_add_f16"](flat, ROWS["v_mul_f16"](flat, a, b), c)


def converted(source: Binary, to: Binary, direction: int | None = None) -> Callable[..., int]:
    """One width to another; a NaN keeps sign and upper payload and becomes quiet."""

    def function(mode: Mode, x: int) -> int:
        if source.is_nan(x):
            payload = x & (1 << source.mantissa) - 1
            shift = to.mantissa - source.mantissa
            payload = payload << shift if shift >= 0 else payload >> -shift
            return source.sign(x) * to.sign_bit | to.nan | payload
        if source.is_infinite(x):
            return source.sign(x) * to.sign_bit | to.infinity
        x = source.flushed(x, denormals(source, mode) & 1)
        result = to.round(source.value(x), rounding(to, mode) if direction is None else direction, source.sign(x))
        if to is F16 and mode.fp16_ovfl and to.is_infinite(result):
            result -= 1
        return to.flushed(result, denormals(to, mode) & 2)

    return function


def mixed_half(mode: Mode, a: int, b: int, c: int) -> int:
    keep = Mode(round64=mode.round64)
    return converted(F32, F16)(keep, ROWS["v_fma_f32"](mode, a, b, c))


def dot2(kind: str) -> Callable[..., int]:
    form = FORMATS[kind]

    def function(mode: Mode, a: tuple[int, int], b: tuple[int, int], c: int) -> int:
        for i in range(2):
            c = ROWS["v_fma_f32"](Mode(), *(converted(form, F32)(Mode(), x) for x in (a[i], b[i])), c)
        return c

    return function


def cube(pick: Callable[..., int]) -> Callable[..., int]:
    def function(mode: Mode, x: int, y: int, z: int) -> int:
        def at_least(p: int, q: int) -> bool:
            return not F32.is_nan(p) and not F32.is_nan(q) and F32.magnitude(p) >= F32.magnitude(q)

        axis = 2 if at_least(z, x) and at_least(z, y) else 1 if at_least(y, x) else 0
        major = (x, y, z)[axis]
        return pick(axis, bool(F32.sign(major) and not F32.is_zero(major) and not F32.is_nan(major)), x, y, z)

    return function


_NEGATE = F32.sign_bit
_TWO = F32.round(Fraction(2))
ROWS |= {
    "v_mul_legacy_f32": legacy_multiply,
    "v_mad_f16": unfused, "v_mad_legacy_f16": unfused, "v_mac_f16": unfused, "v_madmk_f16": unfused,
    "v_madak_f16": unfused,
    "v_fma_mix_f32": lambda mode, *x: ROWS["v_fma_f32"](mode, *x), "v_fma_mixlo_f16": mixed_half,
    "v_fma_mixhi_f16": mixed_half,
    "v_dot2_f32_f16": dot2("f16"), "v_dot2c_f32_f16": dot2("f16"),
    "v_dot2_f32_bf16": dot2("bf16"), "v_dot2c_f32_bf16": dot2("bf16"),
    "v_cubeid_f32": cube(lambda axis, negative, *_: F32.round(Fraction(2 * axis + negative))),
    "v_cubesc_f32": cube(lambda axis, negative, x, y, z: (
        (z if negative else z ^ _NEGATE) if axis == 0 else x if axis == 1 else x ^ _NEGATE if negative else x)),
    "v_cubetc_f32": cube(lambda axis, negative, x, y, z: (
        y ^ _NEGATE if axis != 1 else z ^ _NEGATE if negative else z)),
    "v_cubema_f32": cube(lambda axis, negative, *v: ROWS["v_mul_f32"](Mode(), v[axis], _TWO)),
}  # fmt: skip
