"""What the checks report: one Finding per fault and pair of instructions, with the first place where it was seen."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.emulator.elf import CodeObject
from tilec.emulator.instruction import Instruction


@dataclass(frozen=True)
class Finding:
    """A fault of the program. `address`/`text` name the instruction at which it shows, `other_*` the one that it
    conflicts with.

    `workgroup` is the linear id, `wave` counts within it; `lane` and `byte` are -1 where they mean nothing. `byte` is
    an address (global or LDS) or a byte of a register, as the message says. `count`: how often it was seen.
    """

    check: str
    message: str
    address: int
    text: str
    source: str = ""
    other_address: int | None = None
    other_text: str = ""
    other_source: str = ""
    workgroup: int = -1
    wave: int = -1
    lane: int = -1
    byte: int = -1
    count: int = 1

    def __str__(self) -> str:
        place = [f"workgroup {self.workgroup}", f"wave {self.wave}"]
        place += [f"lane {self.lane}"] if self.lane >= 0 else []
        place += [f"byte {self.byte:#x}"] if self.byte >= 0 else []
        lines = [
            f"{self.check}: {self.message} ({', '.join(place)}{f'; {self.count} times' if self.count > 1 else ''})",
            f"  at   {self.address:#x}: {self.text}{f'  ; {self.source}' if self.source else ''}",
        ]
        if self.other_address is not None:
            source = f"  ; {self.other_source}" if self.other_source else ""
            lines.append(f"  with {self.other_address:#x}: {self.other_text}{source}")
        return "\n".join(lines)


class Report:
    """Collects findings; equal ones (check, both instructions) are counted, not repeated."""

    def __init__(self, code: CodeObject):
        self._code = code
        self._found: dict[tuple[str, int, int | None], Finding] = {}

    def add(
        self,
        check: str,
        message: str,
        at: Instruction,
        other: Instruction | None = None,
        *,
        workgroup: int = -1,
        wave: int = -1,
        lane: int = -1,
        byte: int = -1,
    ) -> None:
        key = check, at.address, None if other is None else other.address
        if key in self._found:
            self._found[key] = replace(self._found[key], count=self._found[key].count + 1)
            return
        line = self._code.line_of
        self._found[key] = Finding(
            check,
            message,
            at.address,
            at.text,
            line(at.address),
            None if other is None else other.address,
            "" if other is None else other.text,
            "" if other is None else line(other.address),
            workgroup,
            wave,
            lane,
            byte,
        )

    def findings(self) -> tuple[Finding, ...]:
        return tuple(self._found.values())
