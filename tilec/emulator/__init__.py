"""A CPU emulator of gfx942 and gfx950 code objects, strict about what hardware hides.

    code = load_object(bytes)                                   # CodeObject: arch, kernels, instructions
    memory = Memory()
    address = memory.place(array, name="x", readonly=True)
    result = run(code, "kernel", grid=(x, y, z), block=(x, y, z), arguments=segment, memory=memory)
    result.findings, result.statistics; memory.read(address, size)

It imports nothing of the compiler and reads only code object bytes and launch arguments. See docs/emulator.md.
"""

from tilec.emulator.checks import CHECKS
from tilec.emulator.elf import Argument, CodeObject, Kernel, load_object
from tilec.emulator.findings import Finding
from tilec.emulator.grid import RunResult, Statistics, run
from tilec.emulator.launch import argument_segment
from tilec.emulator.memory import Memory
from tilec.emulator.trace import Event, EventSink, Sink, Summary, Trace

__all__ = [
    "CHECKS",
    "Argument",
    "CodeObject",
    "Event",
    "EventSink",
    "Finding",
    "Kernel",
    "Memory",
    "RunResult",
    "Sink",
    "Statistics",
    "Summary",
    "Trace",
    "argument_segment",
    "load_object",
    "run",
]
