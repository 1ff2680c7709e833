"""compile, run and dump on a small kernel of a file of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.test_cli import tilec
from tilec.backend_amdgcn.assemble import assemble
from tilec.backend_amdgcn.kernel_text import KernelArgument, KernelInfo, kernel_text
from tilec.cli_values import load_kernel
from tilec.emulator.elf import load_object
from tilec.frontend.jit import Kernel
from tilec.ir.abi import argument_slots
from tilec.runtime.arguments import Executable
from tilec.trial import lds_conflicts

SOURCE = '''\
import numpy as np
import tilec as tc

@tc.kernel(waves=1)
def scale(X: tc.Tensor, Y: tc.Tensor, factor: tc.f32, BN: tc.Const = 256):
    Xt, Yt = X.tiles(BN), Y.tiles(BN)
    i = tc.program_id(Yt.grid[0])
    Yt[i] = (Xt[i].to(tc.f32) * factor).to(Y.dtype)

def defaults():
    return {"X": tc.spec("f32", (1000,)), "Y": tc.spec("f32", (1000,)), "factor": 2.5}

def reference(X, Y, factor, **_):
    return {"Y": X.astype(np.float64) * factor}

@tc.kernel
def total(X: tc.Tensor, Y: tc.Tensor, BN: tc.Const = 256):
    s = tc.scalar(0.0)
    for k in tc.range(X.tiles(BN).grid[0]):
        s = s + X.tiles(BN)[k].sum(axis=0)
    Y.tiles(1)[0] = tc.full(1, s)

def defaults_total():
    return {"X": tc.spec("f32", (1000,)), "Y": tc.spec("f32", (1,))}

def reference_total(X, Y, **_):
    return {"Y": X.sum(dtype=np.float64).reshape(1) + 0.0}
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scaling.py"
    path.write_text(SOURCE)
    return path


def test_compile(file: Path, tmp_path: Path):
    out = tmp_path / "out"
    result = tilec("compile", f"{file}:scale", "--arch", "gfx942", "-o", out)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("; scale for gfx942: ") and " 0 B scratch, 8 waves per SIMD, " in lines[0]
    assert lines[-2:] == [f"assembly: {out}/scale.s", f"object: {out}/scale.hsaco"]
    assert load_object((out / "scale.hsaco").read_bytes()).arch == "gfx942"
    assert ".amdhsa_kernel scale" in (out / "scale.s").read_text()


def test_compile_json(file: Path, tmp_path: Path):
    result = tilec("compile", f"{file}:total", "--json", "-o", tmp_path)
    value = json.loads(result.stdout)
    assert set(value) == {"kernel", "arch", "resources", "seconds", "loops", "histogram", "compromises",
                          "assembly", "object"}
    assert (value["kernel"], value["arch"]) == ("total", "gfx950")
    assert set(value["resources"]) == {"vgpr", "agpr", "sgpr", "lds", "scratch", "waves_per_simd", "code_bytes"}
    assert value["resources"]["code_bytes"] > 100 and value["resources"]["vgpr"] > 0
    assert {"layouts", "registers", "waits", "assemble"} < set(value["seconds"])
    loop = value["loops"][0]
    assert sum(loop["histogram"].values()) == loop["instructions"] > 5
    assert loop["waits"] and all("vmcnt" in wait or "lgkmcnt" in wait for wait in loop["waits"])
    (kernel,) = json.loads(tilec("disasm", value["object"], "--json").stdout)["kernels"]
    assert kernel["resources"] == value["resources"] and kernel["histogram"] == value["histogram"]


@pytest.mark.parametrize("options", [
    [], ["--arch", "gfx942"], ["--const", "BN=64"], ["--arg", "factor=-3"], ["--data", "integers"],
    ["--checks", "none"], ["--schedule", "simple"], ["--landing", "random", "--seed", "7"],
    ["--arg", "X=f16[5]", "--arg", "Y=bf16[5]"], ["--arg", "X=f32[0]", "--arg", "Y=f32[0]"],
])
def test_run_matches(file: Path, options: list[str]):
    result = tilec("run", f"{file}:scale", *options)
    assert result.exit_code == 0, result.output
    assert "passed: 0 mismatches, 0 findings" in result.stdout and "elements match" in result.stdout


def test_run_json(file: Path):
    value = json.loads(tilec("run", f"{file}:total", "--json").stdout)
    assert value["passed"] and value["findings"] == [] and value["wave_instructions"] > 50
    assert value["outputs"]["Y"]["elements"] == 1 and value["outputs"]["Y"]["wrong"] == 0


def test_run_that_does_not_match(file: Path):
    file.write_text(SOURCE.replace("* factor}", "* factor + (np.arange(X.size) == 700)}"))
    result = tilec("run", f"{file}:scale", "--data", "integers", "--seed", 1)
    assert result.exit_code == 1
    assert "mismatch: Y: 1 of 1000 elements are wrong, the first at [700]: " in result.stdout
    assert "FAILED: 1 mismatches, 0 findings" in result.stdout
    value = json.loads(tilec("run", f"{file}:scale", "--json").stdout)
    assert not value["passed"] and value["outputs"]["Y"]["wrong"] == 1


def test_dump(file: Path):
    listing = tilec("dump", f"{file}:scale").stdout
    assert listing.startswith("traced       traced\n") and listing.endswith("asm          text\n")
    assert tilec("dump", f"{file}:scale", "--stage", "traced").stdout.startswith("tile scale(%X: tensor<f32, 1")
    virtual = tilec("dump", f"{file}:scale", "--stage", "virtual").stdout
    assert virtual.startswith("machine scale for gfx950 form=virtual waves=1 lds=0\n") and "%lane.v" in virtual
    assert ".amdhsa_kernel scale" in tilec("dump", f"{file}:scale", "--stage", "asm").stdout
    value = json.loads(tilec("dump", f"{file}:scale", "--stage", "traced", "--json").stdout)
    assert list(value) == ["traced"]


def test_dump_diff(file: Path):
    diff = tilec("dump", f"{file}:scale", "--diff", "registers", "waits").stdout.splitlines()
    assert diff[:2] == ["--- registers", "+++ waits"]
    assert any(line.startswith("+") and "s_waitcnt" in line for line in diff)
    assert not any(line.startswith("-  s_waitcnt") for line in diff)


@pytest.mark.parametrize("command, message", [
    (["dump", "{file}:scale", "--stage", "laid"],
     "there is no stage 'laid'\n  limit: passes: traced, grid_order, simplify,"),
    (["compile", "{file}:scale", "--arg", "Z=f32[4]"], "kernel scale: "),
    (["compile", "{file}:scale", "--arch", "gfx90a"], "unknown architecture 'gfx90a'"),
    (["compile", "{file}:scale", "--schedule", "fast"], "no schedule is called 'fast'"),
    (["run", "{file}:scale", "--checks", "everything"], "no such check: everything"),
    (["run", "{file}"], "{file} has several kernels\n  try: one of {file}:scale, {file}:total"),
])
def test_faults(file: Path, command: list[str], message: str):
    result = tilec(*(part.format(file=file) for part in command))
    assert result.exit_code == 2 and not result.stdout, result.output
    assert message.format(file=file) in result.stderr and result.stderr.startswith("tilec: ")


def test_run_without_a_reference(file: Path):
    file.write_text(SOURCE.partition("def reference")[0])
    result = tilec("run", f"{file}:scale")
    assert result.exit_code == 2
    assert result.stderr == (f"tilec: {file} has no reference for scale\n"
                             "  try: define reference(**arguments) beside the kernel; it returns {name: array}\n")


def test_a_reference_of_other_tensors(file: Path):
    file.write_text(SOURCE.replace('{"Y": X.astype', '{"X": X.astype'))
    result = tilec("run", f"{file}:scale")
    assert result.exit_code == 2
    assert result.stderr == "tilec: the reference of scale gives X\n  limit: the kernel writes Y\n"


def test_stage_and_diff_exclude_each_other(file: Path):
    result = tilec("dump", f"{file}:scale", "--stage", "traced", "--diff", "traced", "final")
    assert result.exit_code == 2 and "exclude each other" in result.stderr


# -- bank conflicts --------------------------------------------------------------------------------------------------

CONFLICTING = """\
\tv_lshlrev_b32_e32 v1, 7, v0
\tv_lshlrev_b32_e32 v2, 2, v0
\tv_mov_b32_e32 v3, 0
\tds_write_b32 v1, v3
\tds_write_b32 v2, v3
\tds_read_b32 v4, v3
\ts_waitcnt lgkmcnt(0)
\ts_endpgm
"""


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_conflicts_are_those_of_the_object(file: Path, arch: str):
    """Lanes 128 bytes apart meet in one bank, lanes 4 bytes apart in none, and lanes that read one dword share it."""
    kernel, module = load_kernel(f"{file}:scale", lambda value: isinstance(value, Kernel))
    arguments = module.defaults()
    program = kernel.trace(**arguments, arch=arch)
    slots, size = argument_slots(program)
    info = KernelInfo("scale", arch, vgprs=5, agprs=0, accum_offset=8, sgprs=8, lds_bytes=8192, kernarg_bytes=size,
                      arguments=tuple(KernelArgument(s.parameter, s.offset, s.size, "by_value") for s in slots),
                      workgroup_size=(64, 1, 1))
    executable = Executable(program, assemble(kernel_text(info, CONFLICTING), arch), arch)
    cycles = lds_conflicts(executable, kernel.signature.bind((), arguments).values)
    accesses = [i.address for i in executable.code.instructions if i.text.startswith("ds_")]
    assert cycles[accesses[0]] >= 31 and [cycles[address] for address in accesses[1:]] == [0, 0]


def test_without_the_scalars_nothing_is_measured(file: Path):
    file.write_text(SOURCE.replace(', "factor": 2.5', ""))
    assert tilec("compile", f"{file}:scale").exit_code == 0
    result = tilec("run", f"{file}:scale")
    assert result.exit_code == 2 and "argument 'factor' is missing" in result.stderr


def test_compile_measures_the_loop(tmp_path: Path):
    path = tmp_path / "turned.py"
    path.write_text('''\
import tilec as tc

@tc.kernel
def turned(A: tc.Tensor, B: tc.Tensor, N: tc.Const = 64):
    At, Bt = A.tiles(N, N), B.tiles(N, N)
    for k in tc.range(At.grid[0]):
        Bt[0, k] = At[k, 0].T

def defaults():
    return {"A": tc.spec("f32", (256, 64)), "B": tc.spec("f32", (64, 256))}
''')
    value = json.loads(tilec("compile", f"{path}:turned", "--json").stdout)
    measured = [access for loop in value["loops"] for access in loop["conflict_cycles"] if access["cycles"] is not None]
    assert {access["mnemonic"][:3] for access in measured} == {"ds_"} and value["resources"]["lds"] > 0
    assert all(access["cycles"] >= 0 for access in measured)
