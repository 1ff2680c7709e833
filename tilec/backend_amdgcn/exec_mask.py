"""Which lanes each instruction works on, as far as the program text says: nested narrowings of EXEC.

The state is a tuple of the instructions (by number) that narrowed EXEC and still hold: () means all lanes, and a
state's lanes are a subset of every prefix's. EXEC is narrowed by `s_and_saveexec_b64` and `s_mov_exec`, restored by
`s_mov_exec` of -1 or of a register that holds a saved EXEC. A vector write under a narrowed EXEC leaves the other lanes
of its destination as they were: liveness must keep the old content alive, unless nobody looks at it with more lanes.
"""

from __future__ import annotations

from tilec.errors import InternalError
from tilec.ir.machine import Immediate, Instruction, Program, Ref, Register, successors

State = tuple[int, ...]
ALL_LANES: State = ()
_CHANGES = {"s_mov_exec", "s_and_saveexec_b64"}
_IGNORES_EXEC = {"v_readlane_b32"}


def lanes_of(program: Program) -> list[State] | None:
    """The state in which each instruction (in program order) runs; None when EXEC never changes, so that all are
    ALL_LANES."""
    if not any(i.op in _CHANGES for i in program.instructions()):
        return None
    result: list[State] = []
    entering: dict[str, State] = {program.blocks[0].label: ALL_LANES}
    saved: dict[Register, State] = {}
    following = successors(program)
    number = 0
    for block in program.blocks:                        # regions nest: layout order meets the entry of a block first
        state = entering.get(block.label, ALL_LANES)
        for instruction in block.instructions:
            result.append(state)
            state = _after(instruction, number, state, saved)
            number += 1
        for label in following[block.label]:
            if entering.setdefault(label, state) != state:
                raise InternalError(f"EXEC is narrowed in different ways on the paths that meet at {label}",
                                    where=program.where)
    return result


def covers(outer: State, inner: State) -> bool:
    """Whether every lane of `inner` is one of `outer`."""
    return inner[:len(outer)] == outer


def reads_all_lanes(op: str, unit: str) -> bool:
    """Instructions that look at lanes outside EXEC: matrix instructions and reads of a named lane."""
    return unit == "mfma" or op in _IGNORES_EXEC


def _after(instruction: Instruction, number: int, state: State, saved: dict[Register, State]) -> State:
    source = instruction.src[0] if instruction.src else None
    match instruction.op:
        case "s_read_exec" | "s_and_saveexec_b64":
            for o in instruction.dst:
                if isinstance(o, Ref):
                    saved[o.register] = state
            if instruction.op == "s_and_saveexec_b64":
                return (*state, number)
        case "s_mov_exec":
            if isinstance(source, Immediate) and source.value in (-1, 0xFFFFFFFFFFFFFFFF):
                return ALL_LANES
            if isinstance(source, Ref) and source.register in saved:
                return saved[source.register]
            return (number,)
        case "copy" if isinstance(source, Ref) and source.register in saved:
            for o in instruction.dst:
                if isinstance(o, Ref):
                    saved[o.register] = saved[source.register]
    return state

