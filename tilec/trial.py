"""A trial run of a kernel: the data it gets, the comparison with a reference, the verdict, its bank conflicts.

A reference is in float64 or in integers. An element matches when it is the reference rounded to the output's type, or
is within one rounding of that type plus what an accumulation in f32 (f64 for f64) may lose, which is measured against
the largest element of the tensor.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.dtypes import DType
from tilec.errors import TilecError
from tilec.runtime.arguments import Argument, Executable, pack, workgroups
from tilec.runtime.tensors import TensorView

if TYPE_CHECKING:
    from tilec.emulator.findings import Finding
    from tilec.emulator.grid import Statistics

DATA = ("normal", "integers")
"""What fills a tensor: normally distributed numbers (small integers where the type has no fractions), or integers from
-4 to 4, whose products and sums are exact in every order."""

_LOST_IN_F32, _LOST_IN_F64 = 2.0**-18, 2.0**-45


@dataclass(frozen=True)
class Comparison:
    """One output tensor against its reference. `error`: largest absolute difference among finite ones; `largest`:
    the largest finite element of the reference; `first`: index, value, reference of the first that does not match."""

    name: str
    elements: int
    wrong: int
    error: float
    largest: float
    first: tuple[tuple[int, ...], Any, Any] | None = None

    def __str__(self) -> str:
        if self.first is None:
            return (f"{self.name}: {self.elements} elements match, error {self.error:.3g} "
                    f"(largest element {self.largest:.3g})")
        index, got, want = self.first
        return (f"{self.name}: {self.wrong} of {self.elements} elements are wrong, the first at {list(index)}: "
                f"{got} instead of {want}")

    def as_json(self) -> dict[str, Any]:
        return {"elements": self.elements, "wrong": self.wrong, "error": self.error, "largest": self.largest,
                "text": str(self)}


@dataclass(frozen=True)
class Outcome:
    """What a run on the emulator gave. It passed when nothing mismatches and no check found anything."""

    mismatches: Sequence[str]
    findings: Sequence[Finding]
    statistics: Statistics
    outputs: Sequence[Comparison] = ()

    @property
    def passed(self) -> bool:
        return not self.mismatches and not self.findings

    def as_text(self) -> str:
        lines = [str(output) for output in self.outputs if not output.wrong]
        lines += [f"mismatch: {text}" for text in self.mismatches]
        lines += [f"finding: {finding}" for finding in self.findings]
        verdict = "passed" if self.passed else "FAILED"
        lines.append(f"{verdict}: {len(self.mismatches)} mismatches, {len(self.findings)} findings; "
                     f"{self.statistics.instructions} wave instructions in {self.statistics.seconds:.2f} s")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed, "mismatches": list(self.mismatches),
            "findings": [{**dataclasses.asdict(finding), "report": str(finding)} for finding in self.findings],
            "outputs": {output.name: output.as_json() for output in self.outputs},
            "wave_instructions": self.statistics.instructions, "seconds": self.statistics.seconds,
        }


def lds_conflicts(executable: Executable, values: Mapping[str, Argument]) -> dict[int, float]:
    """Extra LDS cycles per execution, by address, of the first workgroup of a launch on zeros; empty where none runs.

    Conflicts follow from addresses, which follow from shapes, so that the tensors may be specs.
    """
    from tilec.emulator import grid
    from tilec.emulator.memory import Memory
    from tilec.emulator.trace import Summary

    if any(p.name not in values for p in executable.program.params) or not workgroups(executable.program, values):
        return {}
    memory, summary = Memory(), Summary()
    places = {name: memory.place(value.span, name=name) + value.address - value.start for name, value in values.items()
              if isinstance(value, TensorView)}
    grid.run(executable.code, executable.name, grid=(1, 1, 1), block=(executable.threads, 1, 1), memory=memory,
             arguments=pack(executable.program, values, places), checks="none", sink=summary)
    return {address: row.lds_extra_cycles / row.executions for address, row in summary.rows.items()}


def fill(tensor: TensorView, kind: str, random: np.random.Generator) -> np.ndarray:
    """An array with the element type, shape and strides of a spec. What lies between its rows stays zero."""
    element = tensor.dtype
    twin = element.numpy()
    if element.is_float and twin.kind == "u":
        raise TilecError(f"numpy alone has no {element}", fix="pip install ml_dtypes")
    size = element.bits // 8
    storage = np.zeros(tensor.span // size, twin)
    first = storage[(tensor.address - tensor.start) // size:]
    array = np.lib.stride_tricks.as_strided(first, tensor.shape, tensor.strides) if storage.size else \
        np.zeros(tensor.shape, twin)
    low, high = max(-4, element.limits[0]), min(4, element.limits[1])
    if element.kind == "bool":
        array[...] = random.integers(0, 2, tensor.shape)
    elif kind == "normal" and element.is_float:
        array[...] = random.standard_normal(tensor.shape, np.float32).astype(twin)
    else:
        array[...] = random.integers(math.ceil(low), math.floor(high) + 1, tensor.shape).astype(twin)
    return array


def compare(
    name: str, got: np.ndarray, want: np.ndarray, element: DType, bound: np.ndarray | float = 0.0
) -> Comparison:
    """`want` has the shape of `got`, in float64 or an integer type. NaN matches NaN, infinity its like. `bound`: what
    an element may be off beyond one rounding and an accumulation."""
    if want.shape != got.shape:
        raise TilecError(f"the reference of {name} has shape {want.shape}, the tensor {got.shape}",
                         fix="return an array of the tensor's own shape")
    if got.size == 0:
        return Comparison(name, 0, 0, 0.0, 0.0)
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        wide, exact, reference = (array.astype(np.float64) for array in (got, rounded, want))
        difference = np.abs(wide - reference)
        finite = np.isfinite(reference)
        largest = float(np.abs(reference[finite]).max(initial=0.0))
        matches = (wide == exact) | (np.isnan(wide) & np.isnan(exact))
        if element.is_float:
            lost = _LOST_IN_F64 if element.bits == 64 else _LOST_IN_F32
            matches |= finite & (difference <= 2.0**-element.mantissa * np.abs(reference) + lost * largest + bound)
        else:
            matches = got == rounded
    error = float(np.where(finite & np.isfinite(wide), difference, 0.0).max())
    wrong = np.argwhere(~matches)
    first = None
    if len(wrong):
        index = tuple(map(int, wrong[0]))
        first = index, wide[index].item() if element.is_float else got[index].item(), want[index].item()
    return Comparison(name, got.size, len(wrong), error, largest, first)
