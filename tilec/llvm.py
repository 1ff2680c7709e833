"""The one binding to ROCm's own LLVM: AMDGPU assembly text to a relocatable object, and code bytes to instructions.

The library is `librocmllvm.so` of the wheel `rocm-llvm-python`, reached through LLVM-C by ctypes and loaded when used.
Nothing here knows of kernels, and nothing else in tilec knows of LLVM.
LLVM ends the process on some faults that it meets after a parse error (a `.size` whose label was lost). Text that tilec
printed is assembled in process; text that a person edited goes through `assemble_isolated`, in a child process.
`arch` is a processor ("gfx950") or a target id ("gfx950:xnack-").
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tilec.errors import TilecError

TRIPLE = b"amdgcn-amd-amdhsa"
PROCESSORS = ("gfx942", "gfx950")
CODE_OBJECT_VERSION = 500
"""Code object v5, as the module flag `amdhsa_code_object_version` spells it; the ELF header then has ABI version 3."""

TEXT_END = "tilec.text_end"
"""Symbol that marks where the given text ends in `.text`. LLVM pads `.text` behind it; our linker cuts there."""

_ISOLATED_SECONDS = 120
_DIAGNOSTIC = re.compile(r"<[\w ]+>:(?P<line>\d+)(?::(?P<column>\d+))?: (?P<message>.*)", re.DOTALL)
_SEVERITY_ERROR = 0
_RECORD = "tilec-message "


class Instruction(NamedTuple):
    """One decoded instruction. `text` has no leading blanks, and is empty where the bytes decode to nothing."""

    address: int
    size: int
    text: str


@dataclass(frozen=True)
class Message:
    """What the assembler said about a line of the text. `line` and `column` count from 1; 0: LLVM named no place."""

    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


class AssemblerError(Exception):
    """The text did not assemble. Callers that know where the text came from turn it into a TilecError."""

    def __init__(self, messages: tuple[Message, ...]):
        self.messages = messages
        super().__init__("\n".join(map(str, messages)))


def assemble(text: str, arch: str) -> bytes:
    """A relocatable ELF object. `.text` ends at the symbol TEXT_END and is padded behind it.

    Raises AssemblerError with every fault that LLVM found. Malformed text can end the process: see `assemble_isolated`.
    """
    messages: list[Message] = []
    with _EMITTING:
        result = _emit(text, arch, messages.append)
    if messages:
        raise AssemblerError(tuple(messages))
    return result


def assemble_isolated(text: str, arch: str) -> bytes:
    """`assemble` in a child process: a fatal error of LLVM's becomes an AssemblerError with what was said before it."""
    root = str(Path(__file__).resolve().parent.parent)
    start = "import sys; sys.path.insert(0, sys.argv.pop(1)); import tilec.llvm; tilec.llvm._serve(sys.argv[1])"
    try:
        child = subprocess.run([sys.executable, "-c", start, root, arch], input=text.encode("utf-8", "surrogateescape"),
                               capture_output=True, timeout=_ISOLATED_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        fault = Message(0, 0, f"the assembler did not come to an end within {_ISOLATED_SECONDS} s")
        raise AssemblerError((fault,)) from None
    if child.returncode == 0:
        return child.stdout
    messages, rest = [], []
    for line in child.stderr.decode("utf-8", "replace").splitlines():
        if line.startswith(_RECORD):
            messages.append(Message(*json.loads(line.removeprefix(_RECORD))))
        elif line.strip():
            rest.append(line.strip())
    if rest or not messages:                        # LLVM printed itself: its last words, or what its YAML reader says
        messages.append(Message(0, 0, "; ".join(rest) or f"the assembler died with status {child.returncode}"))
    raise AssemblerError(tuple(messages))


def disassemble(code: bytes, arch: str, address: int = 0) -> list[Instruction]:
    """The instructions of `code`, whose first byte lies at `address`. A dword that decodes to nothing has the text ''.

    About 3 us an instruction. Branch operands are printed as encoded: dwords from the next instruction.
    """
    library = _library()
    processor, features = _target_id(arch)
    decoder = library.LLVMCreateDisasmCPUFeatures(TRIPLE, processor, features, None, 0, None, None)
    try:
        return _decode_all(library.LLVMDisasmInstruction, decoder, code, address)
    finally:
        library.LLVMDisasmDispose(decoder)


def version() -> tuple[int, int, int]:
    """LLVM's version: (major, minor, patch)."""
    parts = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    _library().LLVMGetVersion(*map(ctypes.byref, parts))
    return parts[0].value, parts[1].value, parts[2].value


def _decode_all(step: Callable[..., int], decoder: int, code: bytes, address: int) -> list[Instruction]:
    storage = ctypes.create_string_buffer(code, len(code))
    base, size = ctypes.addressof(storage), len(code)
    line = ctypes.create_string_buffer(256)
    instructions: list[Instruction] = []
    offset = 0
    while offset < size:
        width = step(decoder, base + offset, size - offset, address + offset, line, 256)
        text = line.value.decode().strip() if width else ""
        width = width or min(4, size - offset)
        instructions.append(Instruction(address + offset, width, text))
        offset += width
    return instructions


def _emit(text: str, arch: str, report: Callable[[Message], None]) -> bytes:
    """The object of the text; each error goes to `report` as LLVM finds it (it may end the process after the first)."""
    library = _library()
    machine = _target_machine(arch)
    source = f"{text}\n\t.text\n{TEXT_END}:\n".encode("utf-8", "surrogateescape")

    @_DIAGNOSTIC_HANDLER
    def handle(info: int, _: None) -> None:
        if library.LLVMGetDiagInfoSeverity(info) == _SEVERITY_ERROR:
            description = library.LLVMGetDiagInfoDescription(info)
            report(_message(ctypes.string_at(description).decode("utf-8", "replace")))
            library.LLVMDisposeMessage(description)

    context = library.LLVMContextCreate()
    module, output, error = None, ctypes.c_void_p(), ctypes.c_void_p()
    try:
        library.LLVMContextSetDiagnosticHandler(context, handle, None)
        module = library.LLVMModuleCreateWithNameInContext(b"tilec", context)
        library.LLVMSetTarget(module, TRIPLE)
        flag = library.LLVMConstInt(library.LLVMInt32TypeInContext(context), CODE_OBJECT_VERSION, 0)
        name = b"amdhsa_code_object_version"
        library.LLVMAddModuleFlag(module, _FLAG_ERROR, name, len(name), library.LLVMValueAsMetadata(flag))
        library.LLVMSetModuleInlineAsm2(module, source, len(source))
        if library.LLVMTargetMachineEmitToMemoryBuffer(machine, module, _OBJECT_FILE, error, output):
            report(Message(0, 0, ctypes.string_at(error).decode("utf-8", "replace")))
            library.LLVMDisposeMessage(error)
            return b""
        return ctypes.string_at(library.LLVMGetBufferStart(output), library.LLVMGetBufferSize(output))
    finally:
        if output:
            library.LLVMDisposeMemoryBuffer(output)
        if module:
            library.LLVMDisposeModule(module)
        library.LLVMContextDispose(context)


def _message(description: str) -> Message:
    """LLVM's `<inline asm>:LINE:COLUMN: text`, followed by the line and a caret, which are dropped."""
    match = _DIAGNOSTIC.match(description)
    if not match:
        return Message(0, 0, description.strip())
    text = match["message"].split("\n")[0].removeprefix("error: ")
    return Message(int(match["line"]), int(match["column"] or 0), text)


def _serve(arch: str) -> None:
    """The child of `assemble_isolated`: text on stdin, object on stdout, one flushed line of stderr per message."""
    failed = False

    def report(message: Message) -> None:
        nonlocal failed
        failed = True
        print(_RECORD + json.dumps([message.line, message.column, message.text]), file=sys.stderr, flush=True)

    result = _emit(sys.stdin.buffer.read().decode("utf-8", "surrogateescape"), arch, report)
    if failed:
        sys.exit(1)
    sys.stdout.buffer.write(result)


def _target_id(arch: str) -> tuple[bytes, bytes]:
    """A target id split into processor and LLVM features: "gfx950:xnack-" gives ("gfx950", "-xnack")."""
    processor, *settings = arch.split(":")
    if processor not in PROCESSORS:                 # LLVM would take a stranger for an ancient GPU
        raise TilecError(f"no such architecture: {arch!r}", limit=f"tilec assembles for {' and '.join(PROCESSORS)}",
                         fix=f"use {PROCESSORS[-1]!r}, or {PROCESSORS[-1] + ':xnack-'!r}")
    return processor.encode(), ",".join(setting[-1] + setting[:-1] for setting in settings).encode()


@functools.cache
def _target_machine(arch: str) -> int:
    library = _library()
    target, error = ctypes.c_void_p(), ctypes.c_void_p()
    library.LLVMGetTargetFromTriple(TRIPLE, target, error)
    processor, features = _target_id(arch)
    return library.LLVMCreateTargetMachine(target, TRIPLE, processor, features,
                                           _OPTIMIZE_DEFAULT, _RELOCATION_PIC, _CODE_MODEL_DEFAULT)


_EMITTING = threading.Lock()
"""A target machine is shared by all calls for its architecture, and LLVM's are not safe to share between threads."""

_FLAG_ERROR, _OBJECT_FILE = 0, 1
_OPTIMIZE_DEFAULT, _RELOCATION_PIC, _CODE_MODEL_DEFAULT = 2, 2, 0
_POINTER, _TEXT, _INT, _SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
_OUT = ctypes.POINTER(ctypes.c_void_p)
_DIAGNOSTIC_HANDLER = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    # name: (result, arguments ...)
    "LLVMGetVersion": (None, *[ctypes.POINTER(ctypes.c_uint)] * 3),
    "LLVMContextCreate": (_POINTER,),
    "LLVMContextDispose": (None, _POINTER),
    "LLVMContextSetDiagnosticHandler": (None, _POINTER, _DIAGNOSTIC_HANDLER, _POINTER),
    "LLVMGetDiagInfoDescription": (_POINTER, _POINTER),
    "LLVMGetDiagInfoSeverity": (_INT, _POINTER),
    "LLVMDisposeMessage": (None, _POINTER),
    "LLVMModuleCreateWithNameInContext": (_POINTER, _TEXT, _POINTER),
    "LLVMDisposeModule": (None, _POINTER),
    "LLVMSetTarget": (None, _POINTER, _TEXT),
    "LLVMSetModuleInlineAsm2": (None, _POINTER, _TEXT, _SIZE),
    "LLVMAddModuleFlag": (None, _POINTER, _INT, _TEXT, _SIZE, _POINTER),
    "LLVMInt32TypeInContext": (_POINTER, _POINTER),
    "LLVMConstInt": (_POINTER, _POINTER, ctypes.c_ulonglong, _INT),
    "LLVMValueAsMetadata": (_POINTER, _POINTER),
    "LLVMGetTargetFromTriple": (_INT, _TEXT, _OUT, _OUT),
    "LLVMCreateTargetMachine": (_POINTER, _POINTER, _TEXT, _TEXT, _TEXT, _INT, _INT, _INT),
    "LLVMTargetMachineEmitToMemoryBuffer": (_INT, _POINTER, _POINTER, _INT, _OUT, _OUT),
    "LLVMGetBufferStart": (_POINTER, _POINTER),
    "LLVMGetBufferSize": (_SIZE, _POINTER),
    "LLVMDisposeMemoryBuffer": (None, _POINTER),
    "LLVMCreateDisasmCPUFeatures": (_POINTER, _TEXT, _TEXT, _TEXT, _POINTER, _INT, _POINTER, _POINTER),
    "LLVMDisasmInstruction": (_SIZE, _POINTER, _POINTER, ctypes.c_uint64, ctypes.c_uint64, _TEXT, _SIZE),
    "LLVMDisasmDispose": (None, _POINTER),
}


@functools.cache
def _library() -> ctypes.CDLL:
    # Local and deep: another LLVM in the process (torch brings one) must not answer for this one, nor the reverse.
    path = _library_path()
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    except OSError as error:
        raise TilecError(f"ROCm's LLVM does not load: {error}",
                         fix="install the system library it names (libzstd1, zlib1g, libstdc++6)") from error
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    for part in ("TargetInfo", "Target", "TargetMC", "AsmParser", "AsmPrinter", "Disassembler"):
        getattr(library, f"LLVMInitializeAMDGPU{part}")()
    return library


def _library_path() -> Path:
    try:
        found = importlib.util.find_spec("rocm.llvm")
    except ModuleNotFoundError:
        found = None
    path = Path(found.origin).with_name("librocmllvm.so") if found and found.origin else None
    if path is None or not path.exists():
        raise TilecError("ROCm's LLVM is not installed", fix="pip install rocm-llvm-python")
    return path
