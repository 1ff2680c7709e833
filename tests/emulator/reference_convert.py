"""What each conversion row computes for one lane; forms as in reference_rows.py. None stands for any NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import ceil, floor
from typing import Any

from tests.emulator import reference
from tests.emulator.reference import F16, F32, F64, FORMATS, NARROW, Binary
from tests.emulator.reference_rows import M32, converted, joined, parts, rounding, signed
from tilec.emulator.mode import Mode

ROWS: dict[str, Callable[..., Any]] = {}


def to_integer(form: Binary, low: int, high: int, whole: Callable[[Fraction], int] = int) -> Callable[..., int]:
    def function(mode: Mode, x: int) -> int:
        if form.is_nan(x):
            return 0
        if form.is_infinite(x):
            return low if form.sign(x) else high
        return min(max(whole(form.value(x)), low), high)

    return function


def from_integer(form: Binary) -> Callable[..., int]:
    return lambda mode, x: form.round(Fraction(x), rounding(form, mode))


def normalised(form: Binary, low: int, high: int) -> Callable[[int], int]:
    def function(x: int) -> int:
        if form.is_nan(x):
            return 0
        value = Fraction(1 - 2 * form.sign(x)) if form.is_infinite(x) else form.value(x)
        return round(min(max(value, Fraction(min(low, 0), max(-low, 1))), Fraction(1)) * high)

    return function


def each_normalised(form: Binary, low: int, high: int, pair: bool) -> Callable[..., Any]:
    one = normalised(form, low, high)
    return (lambda mode, a, b: (one(a), one(b))) if pair else (lambda mode, a: one(a))


def to_byte(mode: Mode, x: int) -> int:
    whole = (round, ceil, floor, int)[mode.round32]
    return to_integer(F32, 0, 255, whole)(mode, x)


def with_byte(mode: Mode, x: int, position: int, old: int) -> int:
    shift = 8 * (position % 4)
    return old & ~(255 << shift) | to_byte(mode, x) << shift


_RANGES = {"i16": (-(1 << 15), (1 << 15) - 1), "u16": (0, 65535), "i32": (-(1 << 31), (1 << 31) - 1), "u32": (0, M32)}
for _kind, (_low, _high) in _RANGES.items():
    for _name in ("f32", "f64") if _kind.endswith("32") else ("f16",):
        ROWS[f"v_cvt_{_kind}_{_name}"] = to_integer(FORMATS[_name], _low, _high)
        ROWS[f"v_cvt_{_name}_{_kind}"] = from_integer(FORMATS[_name])
    if _kind.endswith("16"):
        _low_one = -_high if _low else 0
        ROWS[f"v_cvt_norm_{_kind}_f16"] = each_normalised(F16, _low_one, _high, pair=False)
        for _name in ("f16", "f32"):
            ROWS[f"v_cvt_pknorm_{_kind}_{_name}"] = each_normalised(FORMATS[_name], _low_one, _high, pair=True)
        _wide = _kind.replace("16", "32")
        ROWS.update(
            {
                f"v_cvt_pk_{_kind}_{_wide}": lambda mode, a, b, lo=_low, hi=_high: tuple(
                    min(max(x, lo), hi) for x in (a, b)
                )
            }
        )
for _byte in range(4):
    ROWS[f"v_cvt_f32_ubyte{_byte}"] = lambda mode, x, i=_byte: F32.round(Fraction(x >> 8 * i & 255))


def rounded_up(mode: Mode, x: int) -> int:
    half = F32.round(Fraction(1, 2))
    return ROWS["v_cvt_flr_i32_f32"](mode, reference.add(F32, x, half) if F32.is_finite(x) else x)


ROWS |= {
    "v_cvt_flr_i32_f32": to_integer(F32, *_RANGES["i32"], floor), "v_cvt_rpi_i32_f32": rounded_up,
    "v_cvt_off_f32_i4": lambda mode, x: F32.round(Fraction(signed(x, 4), 16)),
    "v_cvt_pk_u8_f32": with_byte, "v_cvt_pkaccum_u8_f32": with_byte,
    "v_cvt_f16_f32": converted(F32, F16), "v_cvt_f32_f16": converted(F16, F32),
    "v_cvt_f32_f64": converted(F64, F32), "v_cvt_f64_f32": converted(F32, F64),
    "v_cvt_pkrtz_f16_f32": lambda mode, *pair: tuple(
        converted(F32, F16, reference.TOWARD_ZERO)(mode, x) for x in pair),
    "v_cvt_pk_f16_f32": lambda mode, a, b: tuple(converted(F32, F16, reference.NEAREST)(mode, x) for x in (a, b)),
    "v_cvt_pk_bf16_f32": lambda mode, a, b: tuple(converted(F32, FORMATS["bf16"])(Mode(), x) for x in (a, b)),
    "v_cvt_f32_bf16": lambda mode, x: x << 16,
}  # fmt: skip


def scale_of(x: int) -> int | None:
    """The power of two in an f32's exponent field; None for 255, which makes NaN."""
    field = x >> 23 & 255
    return None if field == 255 else field - 127


def to_narrow(mode: Mode, name: str, kind: str, x: int, scale: int | None = 0, noise: int | None = None) -> int:
    """A float as a code of a narrow format after division by 2**scale; noise is the 32-bit random source."""
    source, form = FORMATS[kind], NARROW[mode.architecture][name]
    if source.is_nan(x) or scale is None:
        return form.not_a_number(source.sign(x) if source.is_nan(x) else 0)
    if source.is_infinite(x):
        return form.beyond(source.sign(x), mode.fp16_ovfl)
    bits = source.mantissa - form.mantissa
    part = None if noise is None else Fraction(noise >> 32 - bits, 1 << bits)
    return form.encode(source.value(x) / Fraction(2) ** scale, source.sign(x), mode.fp16_ovfl, part)


def from_narrow(mode: Mode, name: str, kind: str, code: int, scale: int | None = 0) -> int | None:
    """A code as a float times 2**scale, rounded once; None stands for any NaN."""
    to, value = FORMATS[kind], NARROW[mode.architecture][name].decode(code)
    if value == "nan" or scale is None:
        return None
    if isinstance(value, str):
        return to.infinity | (to.sign_bit if value == "-inf" else 0)
    return to.round(value * Fraction(2) ** scale, 0, code >> NARROW[mode.architecture][name].sign_bit.bit_length() - 1)


def noises(noise: int, count: int) -> list[int]:
    result = []
    for _ in range(count):
        result.append(noise)
        noise = (noise << 1 & M32) ^ (197 if noise >> 31 else 0)
    return result


for _name in ("fp8", "bf8"):
    ROWS |= {
        f"v_cvt_pk_{_name}_f32": lambda mode, a, b, n=_name: joined((to_narrow(mode, n, "f32", x) for x in (a, b)), 8),
        f"v_cvt_sr_{_name}_f32": lambda mode, x, r, n=_name: to_narrow(mode, n, "f32", x, 0, r),
        f"v_cvt_f32_{_name}": lambda mode, c, n=_name: from_narrow(mode, n, "f32", c),
        f"v_cvt_pk_f32_{_name}": lambda mode, c, n=_name: tuple(
            from_narrow(mode, n, "f32", x) for x in parts(c, 8, width=16)),
    }  # fmt: skip


def stochastic_sixteen(kind: str) -> Callable[..., int]:
    """f32 to f16 or bf16: floor of the exact count plus noise, in units of the last place."""
    to = FORMATS[kind]
    form = reference.Narrow(to.mantissa, to.exponent, to.bias, "ieee")

    def function(mode: Mode, x: int, noise: int) -> int:
        if F32.is_nan(x):
            return form.not_a_number(F32.sign(x))
        if F32.is_infinite(x):
            return form.beyond(F32.sign(x), False)
        bits = 23 - to.mantissa
        return form.encode(F32.value(x), F32.sign(x), False, Fraction(noise >> 32 - bits, 1 << bits))

    return function


for _kind in ("f16", "bf16"):
    ROWS[f"v_cvt_sr_{_kind}_f32"] = stochastic_sixteen(_kind)


def scaled_rows(name: str, kind: str) -> dict[str, Callable[..., Any]]:
    """All v_cvt_scalef32 rows between a narrow format and a float kind."""
    width = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}[name]

    def to(mode: Mode, x: int, scale: int, noise: int | None = None) -> int:
        return to_narrow(mode, name, kind, x, scale_of(scale), noise)

    def many(mode: Mode, values: Iterable[int], scale: int) -> int:
        return joined((to(mode, x, scale) for x in values), width)

    def many_random(mode: Mode, values: tuple[int, ...], noise: int, scale: int) -> int:
        return joined((to(mode, x, scale, n) for x, n in zip(values, noises(noise, len(values)))), width)

    def back(mode: Mode, code: int, scale: int, items: int) -> tuple[int | None, ...]:
        return tuple(from_narrow(mode, name, kind, c, scale_of(scale)) for c in parts(code, width, width=items * width))

    def dwords(x: int) -> tuple[int, ...]:
        return tuple(parts(x, 32, width=192))

    def long(x: tuple[int, ...]) -> int:
        return joined(x, 32)

    if width == 6:
        return {
            f"2xpk16_{name}_{kind}": lambda mode, a, b, s: dwords(many(mode, [x for p in zip(a, b) for x in p], s)),
            f"pk32_{name}_{kind}": lambda mode, x, s: dwords(many(mode, x, s)),
            f"sr_pk32_{name}_{kind}": lambda mode, x, r, s: dwords(many_random(mode, x, r, s)),
            f"pk32_{kind}_{name}": lambda mode, x, s: back(mode, long(x), s, 32),
        }
    return {
        f"pk_{name}_{kind}": lambda mode, *x: many(mode, x[:2] if kind == "f32" else x[0], x[-1]),
        f"sr_pk_{name}_{kind}": many_random,
        f"sr_{name}_{kind}": lambda mode, x, r, s: to(mode, x, s, r),
        f"pk_{kind}_{name}": lambda mode, code, s: back(mode, code, s, 2),
        f"{kind}_{name}": lambda mode, code, s: back(mode, code, s, 1)[0],
    }


for _name in ("fp8", "bf8", "fp6", "bf6", "fp4"):
    for _kind in ("f32", "f16", "bf16"):
        ROWS |= {f"v_cvt_scalef32_{name}": row for name, row in scaled_rows(_name, _kind).items()}
