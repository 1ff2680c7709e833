"""LLVM as the oracle for waits and wait states: kernels that clang compiles from LLVM IR.

The checkers must find nothing in clang's code (no false alarm), and our passes, given that code without its waits and
wait states, must put back no more of them than clang did: its counts, and its states.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest

from tests.support.assembly import program
from tests.support.clang import zig
from tilec.backend_amdgcn import hazardcheck, hazards, waitcheck, waits
from tilec.ir.machine import Immediate, Program

DECLARATIONS = """
target triple = "amdgcn-amd-amdhsa"
declare <4 x i32> @llvm.amdgcn.raw.buffer.load.v4i32(<4 x i32>, i32, i32, i32 immarg)
declare i32 @llvm.amdgcn.raw.buffer.load.i32(<4 x i32>, i32, i32, i32 immarg)
declare void @llvm.amdgcn.raw.buffer.store.v4f32(<4 x float>, <4 x i32>, i32, i32, i32 immarg)
declare void @llvm.amdgcn.raw.buffer.store.i32(i32, <4 x i32>, i32, i32, i32 immarg)
declare void @llvm.amdgcn.raw.buffer.store.f32(float, <4 x i32>, i32, i32, i32 immarg)
declare void @llvm.amdgcn.raw.buffer.load.lds(<4 x i32>, ptr addrspace(3), i32, i32, i32, i32, i32)
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half>, <4 x half>, <4 x float>, i32, i32, i32)
declare <4 x float> @llvm.amdgcn.mfma.f32.4x4x4f16(<4 x half>, <4 x half>, <4 x float>, i32, i32, i32)
declare <16 x float> @llvm.amdgcn.mfma.f32.32x32x8f16(<4 x half>, <4 x half>, <16 x float>, i32, i32, i32)
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare i32 @llvm.amdgcn.readlane.i32(i32, i32)
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)
declare void @llvm.amdgcn.s.barrier()
declare float @llvm.amdgcn.exp2.f32(float)
@lds = internal addrspace(3) global [4096 x i32] poison, align 16
attributes #0 = { "amdgpu-flat-work-group-size"="256,256" "no-builtins" }
"""

KERNELS = {
    # a loop: global load, write to and read from LDS, matrix instruction on the accumulator; then a transcendental
    "loop": """
define amdgpu_kernel void @k(<4 x i32> inreg %d, i32 %n) #0 {
entry:
  %tid = call i32 @llvm.amdgcn.workitem.id.x()
  %off = shl i32 %tid, 4
  %x = xor i32 %tid, 64
  %w = getelementptr [4096 x i32], ptr addrspace(3) @lds, i32 0, i32 %off
  %r = getelementptr [4096 x i32], ptr addrspace(3) @lds, i32 0, i32 %x
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%i2, %loop]
  %acc = phi <4 x float> [zeroinitializer, %entry], [%acc2, %loop]
  %at = add i32 %off, %i
  %a = call <4 x i32> @llvm.amdgcn.raw.buffer.load.v4i32(<4 x i32> %d, i32 %at, i32 0, i32 0)
  store <4 x i32> %a, ptr addrspace(3) %w, align 16
  call void @llvm.amdgcn.s.barrier()
  %b = load <4 x i32>, ptr addrspace(3) %r, align 16
  call void @llvm.amdgcn.s.barrier()
  %h = bitcast <4 x i32> %b to <8 x half>
  %h0 = shufflevector <8 x half> %h, <8 x half> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %h1 = shufflevector <8 x half> %h, <8 x half> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %acc2 = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half> %h0, <4 x half> %h1, <4 x float> %acc,
                                                            i32 0, i32 0, i32 0)
  %i2 = add i32 %i, 48
  %c = icmp slt i32 %i2, %n
  br i1 %c, label %loop, label %end
end:
  %e = extractelement <4 x float> %acc2, i32 0
  %ex = call float @llvm.amdgcn.exp2.f32(float %e)
  %acc3 = insertelement <4 x float> %acc2, float %ex, i32 1
  call void @llvm.amdgcn.raw.buffer.store.v4f32(<4 x float> %acc3, <4 x i32> %d, i32 %off, i32 0, i32 0)
  ret void
}""",
    # scalars from vector registers: an offset, a lane select, an operand; a cross-lane move
    "scalars": """
define amdgpu_kernel void @k(<4 x i32> inreg %d) #0 {
  %tid = call i32 @llvm.amdgcn.workitem.id.x()
  %off = shl i32 %tid, 2
  %a = call i32 @llvm.amdgcn.raw.buffer.load.i32(<4 x i32> %d, i32 %off, i32 0, i32 0)
  %s = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %a)
  %b = call i32 @llvm.amdgcn.raw.buffer.load.i32(<4 x i32> %d, i32 %off, i32 %s, i32 0)
  %sum = add i32 %b, %tid
  %lane = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %sum)
  %c = call i32 @llvm.amdgcn.readlane.i32(i32 %sum, i32 %lane)
  %e = add i32 %sum, %c
  %f = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %e, i32 257, i32 15, i32 15, i1 true)
  call void @llvm.amdgcn.raw.buffer.store.i32(i32 %f, <4 x i32> %d, i32 %off, i32 0, i32 0)
  ret void
}""",
    # division: v_div_scale, v_div_fmas with VCC from it; a conditional with two loads in flight
    "divide": """
define amdgpu_kernel void @k(<4 x i32> inreg %d, i32 %n) #0 {
entry:
  %tid = call i32 @llvm.amdgcn.workitem.id.x()
  %off = shl i32 %tid, 2
  %a = call i32 @llvm.amdgcn.raw.buffer.load.i32(<4 x i32> %d, i32 %off, i32 0, i32 0)
  %b = call i32 @llvm.amdgcn.raw.buffer.load.i32(<4 x i32> %d, i32 %off, i32 64, i32 0)
  %x = bitcast i32 %a to float
  %y = bitcast i32 %b to float
  %c = icmp sgt i32 %n, 7
  br i1 %c, label %then, label %end
then:
  %q = fdiv float %x, %y
  br label %end
end:
  %r = phi float [%x, %entry], [%q, %then]
  call void @llvm.amdgcn.raw.buffer.store.f32(float %r, <4 x i32> %d, i32 %off, i32 0, i32 0)
  ret void
}""",
    # three opcodes on one accumulator, and its use by memory
    "matrix": """
define amdgpu_kernel void @k(<4 x i32> inreg %d) #0 {
  %tid = call i32 @llvm.amdgcn.workitem.id.x()
  %off = shl i32 %tid, 4
  %a = call <4 x i32> @llvm.amdgcn.raw.buffer.load.v4i32(<4 x i32> %d, i32 %off, i32 0, i32 0)
  %h = bitcast <4 x i32> %a to <8 x half>
  %h0 = shufflevector <8 x half> %h, <8 x half> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %h1 = shufflevector <8 x half> %h, <8 x half> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %m0 = call <4 x float> @llvm.amdgcn.mfma.f32.4x4x4f16(<4 x half> %h0, <4 x half> %h1, <4 x float> zeroinitializer,
                                                       i32 0, i32 0, i32 0)
  %m1 = call <4 x float> @llvm.amdgcn.mfma.f32.4x4x4f16(<4 x half> %h1, <4 x half> %h0, <4 x float> %m0,
                                                       i32 0, i32 0, i32 0)
  %w = call <16 x float> @llvm.amdgcn.mfma.f32.32x32x8f16(<4 x half> %h0, <4 x half> %h1,
                                                         <16 x float> zeroinitializer, i32 0, i32 0, i32 0)
  %part = shufflevector <16 x float> %w, <16 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  call void @llvm.amdgcn.raw.buffer.store.v4f32(<4 x float> %m1, <4 x i32> %d, i32 %off, i32 0, i32 0)
  call void @llvm.amdgcn.raw.buffer.store.v4f32(<4 x float> %part, <4 x i32> %d, i32 %off, i32 256, i32 0)
  ret void
}""",
    # copies to LDS past the registers, which need M0
    "copies": """
define amdgpu_kernel void @k(<4 x i32> inreg %d) #0 {
  %tid = call i32 @llvm.amdgcn.workitem.id.x()
  %off = shl i32 %tid, 2
  %second = getelementptr [4096 x i32], ptr addrspace(3) @lds, i32 0, i32 512
  %r = getelementptr [4096 x i32], ptr addrspace(3) @lds, i32 0, i32 %tid
  call void @llvm.amdgcn.raw.buffer.load.lds(<4 x i32> %d, ptr addrspace(3) @lds, i32 4, i32 %off, i32 0, i32 0, i32 0)
  call void @llvm.amdgcn.raw.buffer.load.lds(<4 x i32> %d, ptr addrspace(3) %second, i32 4, i32 %off, i32 0, i32 0,
                                             i32 0)
  %b = load i32, ptr addrspace(3) %r, align 4
  call void @llvm.amdgcn.raw.buffer.store.i32(i32 %b, <4 x i32> %d, i32 %off, i32 0, i32 0)
  ret void
}""",
}

_LONGER = (     # forms that tilec does not emit, as those that it does
    (r"s_movk_i32 ", "s_mov_b32 "), (r"s_addk_i32 (\w+),", r"s_add_i32 \1, \1,"), (r"s_cmpk_(\w+) ", r"s_cmp_\1 "),
    (r"v_fmac_f32\w* (\w+), (.*)", r"v_fma_f32 \1, \2, \1"))


@cache
def compiled(name: str, arch: str) -> Program:
    """What clang makes of a kernel, as a machine program."""
    done = subprocess.run([str(zig()), "clang", "-x", "ir", "-", "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}:xnack-",
                           "-O2", "-S", "-nogpulib", "-o", "-"], input=(DECLARATIONS + KERNELS[name]).encode(),
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode().split("\nk:")[1].split(".section")[0].replace("\t", " ")
    for short, long in _LONGER:
        text = re.sub(short, long, text)
    lines = [line.split(";")[0].strip() for line in text.splitlines()]
    return program("\n".join(line for line in lines if line.startswith(".LBB") or line[:1] != "."), arch, waves=1)


def states(made: Program) -> int:
    return sum(i.src[0].value + 1 for i in made.instructions() if i.op == "s_nop" and isinstance(i.src[0], Immediate))


def counts(made: Program) -> list[tuple]:
    return [i.modifiers for i in made.instructions() if i.op == "s_waitcnt"]


MORE_BY_CLANG = {"loop": "a wait before the loop that the one in it repeats",
                 "copies": "reads of LDS wait for copies by alias, where here tokens would say so"}


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", KERNELS)
def test_clang_s_kernels(name: str, arch: str):
    made = compiled(name, arch)
    assert waitcheck.check(made) == hazardcheck.check(made) == []
    bare = made.replace(blocks=tuple(b.replace(instructions=tuple(i for i in b.instructions if i.op not in (
        "s_waitcnt", "s_nop"))) for b in made.blocks))
    assert waitcheck.check(bare) != []
    ours = waits.insert(bare)
    assert len(counts(ours)) < len(counts(made)) if name in MORE_BY_CLANG else counts(ours) == counts(made)
    done = hazards.insert(ours)
    assert (states(made) > 0) == (name != "divide")
    assert states(done) <= states(made)
    assert waitcheck.check(done) == hazardcheck.check(done) == []
