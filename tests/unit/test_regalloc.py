"""The allocator: copies that vanish, files, alignment, pins, budgets; and what is refused, with the whole message."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.machine_text import parse
from tilec.backend_amdgcn.budget import Budget
from tilec.backend_amdgcn.regalloc import Allocation, allocate
from tilec.backend_amdgcn.regcheck import check
from tilec.errors import InternalError, TilecError
from tilec.ir.machine import Immediate, Instruction, Physical, Register
from tilec.target import target


def allocated(text: str, **fields) -> tuple[Allocation, dict[str, Register]]:
    """The allocation of a checked program. `base`, if not defined there, is a buffer descriptor."""
    head = "s_load_dwordx4 base:s4 <- s[0:1], 0\n" if "base" in text and "base:" not in text else ""
    program, registers = parse(head + text.lstrip("\n"), **fields)
    result = allocate(program)
    check(program, result.program)
    return result, registers


def printed(allocation: Allocation, block: int = 0) -> list[str]:
    return [say(i) for i in allocation.program.blocks[block].instructions]


def say(i: Instruction) -> str:
    dst, src = (", ".join(str(o.value if isinstance(o, Immediate) else o) for o in side) for side in (i.dst, i.src))
    return f"{i.op} {dst} <- {src}"


def moves(allocation: Allocation) -> Counter[str]:
    return Counter(i.op for i in allocation.program.instructions() if "mov" in i.op or "accvgpr" in i.op)


def gemm(m: int, n: int, waves: int, depth: int = 1, epilogue: str = "valu") -> str:
    """A loop over m x n accumulators of 4 dwords, fragments read from LDS `depth` times a trip."""
    lines = ["entry:", "copy base:s4 <- 0", "copy trips:s <- 9", "copy lane:v <- v0"]
    lines += [f"copy acc{k}:va4 <- 0" for k in range(m * n)] + ["loop 1:"]
    for d in range(depth):
        lines += [f"ds_read_b128 a{d}_{i}:va4 <- lane" for i in range(m)]
        lines += [f"ds_read_b128 b{d}_{j}:va4 <- lane" for j in range(n)]
        for k in range(m * n):
            lines.append(f"v_mfma_f32_16x16x32_bf16 acc{k} <- a{d}_{k // n}, b{d}_{k % n}, acc{k}")
    lines += ["s_sub_u32 trips <- trips, 1", "s_cmp_lg_u32 trips, 0", "s_cbranch_scc1 ->loop", "end:"]
    for k in range(m * n):
        if epilogue == "valu":
            lines += [f"v_cvt_pk_bf16_f32 out{k}:v <- acc{k}[0], acc{k}[1]",
                      f"buffer_store_dword out{k}, lane, base, 0"]
        else:
            lines += [f"buffer_store_dwordx4 acc{k}, lane, base, 0"]
    return "\n".join([*lines, "s_endpgm"])


# -- copies -----------------------------------------------------------------------------------------------------------


def test_parts_grow_in_place():
    result, r = allocated("""
        buffer_load_dwordx4 low:va4 <- v0, base, 0
        buffer_load_dwordx4 high:va4 <- v0, base, 0
        copy big:va8[0:4] <- low
        copy big[4:8] <- high
        v_mfma_f32_16x16x32_bf16 d:va4 <- big[0:4], big[4:8], 0
        buffer_store_dwordx4 d, v0, base, 0
        s_endpgm""")
    assert not moves(result)
    at = {name: result.assignment[register].index for name, register in r.items()}
    assert at["low"] == at["big"] and at["high"] == at["big"] + 4 and at["big"] % 2 == 0


def test_a_copy_stays_where_both_live_on():
    result, r = allocated("""
        v_mov_b32 x:v <- 1
        copy y:v <- x
        v_add_u32 y <- y, y
        v_add_u32 x <- x, y
        buffer_store_dword x, v0, base, 0
        s_endpgm""")
    assert result.assignment[r["x"]] != result.assignment[r["y"]]
    assert moves(result) == {"v_mov_b32": 2}


def test_copies_in_loops_are_removed_before_others():
    """Either copy can vanish, not both: the value before the loop lives on."""
    result, _ = allocated("""
          s_mov_b32 n:s <- 3
          v_mov_b32 first:v <- 1
          copy carried:v <- first
        loop 1:
          v_add_u32 next:v <- carried, first
          copy carried <- next
          s_sub_u32 n <- n, 1
          s_cmp_lg_u32 n, 0
          s_cbranch_scc1 ->loop
        end:
          v_add_u32 sum:v <- carried, first
          buffer_store_dword sum, v0, base, 0
          s_endpgm""")
    assert [i.op for i in result.program.blocks[1].instructions][:2] == ["v_add_u32", "s_sub_u32"]


@pytest.mark.parametrize("size", [2, 4, 16])
def test_tuples_swapped_in_a_loop(size: int):               # BL-24
    result, _ = allocated(f"""
          copy n:s <- 3
          copy one:v{size} <- 1
          copy two:v{size} <- 2
        loop 1:
          copy saved:v{size} <- one
          copy one <- two
          copy two <- saved
          s_sub_u32 n <- n, 1
          s_cmp_lg_u32 n, 0
          s_cbranch_scc1 ->loop
        end:
          buffer_store_dwordx2 one[{size - 2}:{size}], v0, base, 0
          buffer_store_dwordx2 two[0:2], v0, base, 0
          s_endpgm""")
    in_loop = [i for i in result.program.blocks[1].instructions if i.op == "v_mov_b32"]
    assert len(in_loop) == 3 * size                         # nothing can be saved, nothing may be lost


def test_what_arrives_stays_where_it_is():
    result, r = allocated("""
        copy arguments:s2 <- s[0:1]
        copy group:s <- s2
        copy item:v <- v0
        s_load_dwordx4 base:s4 <- arguments, 0
        s_load_dwordx4 other:s4 <- arguments, 16
        v_add_u32 x:v <- group, item
        buffer_store_dword x, item, base, 0
        buffer_store_dword x, item, other, 0
        s_endpgm""")
    assert not moves(result)
    assert result.assignment[r["arguments"]] == Physical("s", 0, 2) and result.assignment[r["item"]] == Physical("v", 0)


def test_the_hardware_arguments_are_not_overwritten():
    """s2 is read at the very end: nothing may use it before."""
    result, _ = allocated("\n".join([
        *(f"s_mov_b32 x{k}:s <- {k}" for k in range(8)), *(f"s_add_u32 x0 <- x0, x{k}" for k in range(8)),
        "s_add_u32 x0 <- x0, s2", "v_mov_b32 y:v <- x0", "buffer_store_dword y, v0, base, 0", "s_endpgm"]))
    assert Physical("s", 2) not in {o for i in result.program.instructions() for o in i.dst}


def test_an_accumulator_in_new_registers_stays_in_place():
    result, r = allocated("""
        buffer_load_dwordx4 a:va4 <- v0, base, 0
        v_mfma_f32_32x32x16_bf16 c1:va16 <- a, a, 0
        v_mfma_f32_32x32x16_bf16 c2:va16 <- a, a, c1
        v_mfma_f32_32x32x16_bf16 c3:va16 <- a, a, c2
        buffer_store_dwordx4 c3[0:4], v0, base, 0
        s_endpgm""")
    assert len({result.assignment[r[n]] for n in ("c1", "c2", "c3")}) == 1
    assert result.program.resources.vgpr == 22


# -- constraints ------------------------------------------------------------------------------------------------------


def test_scalar_tuples_start_where_the_assembler_wants():
    result, r = allocated("""
        s_load_dword x:s <- s[0:1], 0
        s_load_dwordx2 two:s2 <- s[0:1], 8
        s_load_dwordx4 four:s4 <- s[0:1], 16
        s_load_dwordx8 eight:s8 <- s[0:1], 32
        s_load_dwordx4 part:s6[2:6] <- s[0:1], 64
        s_add_u32 x <- x, two[0]
        s_add_u32 x <- x, four[0]
        s_add_u32 x <- x, eight[0]
        s_add_u32 x <- x, part[2]
        v_mov_b32 y:v <- x
        buffer_store_dword y, v0, base, 0
        s_endpgm""")
    at = {name: result.assignment[register].index for name, register in r.items() if register.kind == "s"}
    assert at["two"] % 2 == 0 and at["four"] % 4 == 0 and at["eight"] % 4 == 0 and (at["part"] + 2) % 4 == 0


def test_parts_at_odd_and_even_places_of_one_tuple():
    result, _ = allocated("""
        copy t:v6 <- 0
        buffer_load_dwordx2 t[1:3] <- v0, base, 0
        buffer_load_dwordx4 t[2:6] <- v0, base, 0
        buffer_store_dwordx2 t[0:2], v0, base, 0
        s_endpgm""")
    assert moves(result)["v_mov_b32"] > 6                   # one of them went through a register of its own


def test_a_swap_of_other_registers_is_tied_with_copies():
    result, _ = allocated("""
        v_mov_b32 a:v <- 1
        v_mov_b32 b:v <- 2
        v_permlane32_swap_b32 x:v, y:v <- a, b
        v_add_u32 z:v <- x, a
        v_add_u32 z <- z, y
        v_add_u32 z <- z, b
        buffer_store_dword z, v0, base, 0
        s_endpgm""")
    swap = next(i for i in result.program.instructions() if "swap" in i.op)
    assert swap.dst == swap.src


def test_an_early_clobber_lies_apart_from_its_sources():
    result, r = allocated("""
        buffer_load_dwordx4 a:va4 <- v0, base, 0
        v_mfma_f32_32x32x16_bf16 d:va16 <- a, a, 0
        buffer_store_dwordx4 d[0:4], v0, base, 0
        s_endpgm""")
    a, d = (result.assignment[r[n]] for n in "ad")
    assert not set(range(a.index, a.index + 4)) & set(range(d.index, d.index + 16))


def test_vector_values_do_not_go_to_scalars_by_copy():
    with pytest.raises(InternalError, match="no instruction copies v"):
        allocated("copy x:s <- v0\nv_mov_b32 y:v <- x\nbuffer_store_dword y, v0, base, 0\ns_endpgm")


def test_a_scalar_where_a_vector_must_stand_is_refused():
    with pytest.raises(InternalError, match="base of kind 'v' stands where 's' is asked for"):
        allocated("copy base:v4 <- 0\nbuffer_load_dword x:v <- v0, base, 0\ns_endpgm")


# -- files ------------------------------------------------------------------------------------------------------------


def test_all_in_vgprs_while_they_suffice():
    result, _ = allocated(gemm(8, 4, 8))
    assert result.program.resources.agpr == 0 and result.program.resources.vgpr <= 180


@pytest.mark.parametrize("epilogue, reads", [("valu", 2 * 64), ("store", 0)])
def test_accumulators_move_to_agprs_without_moves_in_the_loop(epilogue: str, reads: int):   # BL-22, BL-26
    result, _ = allocated(gemm(8, 8, 4, epilogue=epilogue))
    used = result.program.resources
    assert used.vgpr <= 256 and 0 < used.agpr <= 256 and used.scratch == 0 and used.waves_per_simd == 1   # BL-23, BL-29
    assert [i.op for i in result.program.blocks[1].instructions if "accvgpr" in i.op] == []
    assert moves(result)["v_accvgpr_read_b32"] <= reads


def test_tiles_that_need_no_moves_go_first():
    """Fragments go from LDS to the matrix pipe: they can be AGPRs for nothing, the accumulators cannot."""
    text = gemm(8, 7, 4).replace("entry:", "entry:\ncopy x:v20 <- 0").replace(
        "end:", "end:\n" + "\n".join(f"buffer_store_dwordx4 x[{k}:{k + 4}], lane, base, 0" for k in range(0, 20, 4)))
    result, r = allocated(text)
    assert {result.assignment[r[n]].file for n in r if n.startswith("acc")} == {"v"}
    assert moves(result)["v_accvgpr_read_b32"] == 0 and result.program.resources.agpr > 0


def test_valu_in_a_loop_keeps_a_tile_out_of_agprs():
    text = gemm(8, 8, 4).replace("s_sub_u32", "v_mul_f32 acc0[1] <- acc0[1], acc0[2]\ns_sub_u32")
    result, r = allocated(text)
    assert result.assignment[r["acc0"]].file == "v" and result.program.resources.agpr > 0
    assert [i.op for i in result.program.blocks[1].instructions if "accvgpr" in i.op] == []


def test_c_and_d_share_a_file():
    result, r = allocated("""
        copy c:a4 <- 1.0
        buffer_load_dwordx4 a:va4 <- v0, base, 0
        v_mfma_f32_16x16x32_bf16 d:va4 <- a, a, c
        buffer_store_dwordx4 d, v0, base, 0
        buffer_store_dwordx4 c, v0, base, 0
        s_endpgm""".replace("1.0", "1"))
    assert result.assignment[r["d"]].file == "a" and result.assignment[r["a"]].file == "v"


def test_a_literal_reaches_agprs_through_a_vgpr():
    result, _ = allocated("""
        copy c:a2 <- 1000
        buffer_store_dwordx2 c, v0, base, 0
        s_endpgm""")
    writes = [f"v_accvgpr_write_b32 a{k} <- v1" for k in range(2)]
    assert printed(result)[1:4] == ["v_mov_b32 v1 <- 1000", *writes]


READS = """
    copy c:a4 <- 1
    v_add_u32 x:v <- 1, c0
    v_add_u32 y:v <- 2, c0
    {between}
    v_add_u32 z:v <- 3, c0
    buffer_store_dword x, v0, base, 0
    buffer_store_dword y, v0, base, 0
    buffer_store_dword z, v0, base, 0
    buffer_store_dwordx4 c, v0, base, 0
    s_endpgm""".replace("c0", "c[0]")


@pytest.mark.parametrize("between, reads", [
    ("", 1),
    ("copy c[0] <- 2", 2),                                  # what was read before is stale
    ("copy c[1] <- 2", 2),                                  # (any write of the tile counts)
    ("\n".join(["v_add_u32 x <- 1, x"] * 40), 2),           # too far: it would hold a VGPR all the while
    ("s_mov_exec <- -1", 2),                                # copied for other lanes
    ("s_branch <- ->next\nnext:", 2),                       # another block
])
def test_an_agpr_that_valu_reads_is_copied_once_for_close_readers(between: str, reads: int):
    result, _ = allocated(READS.format(between=between))
    assert moves(result)["v_accvgpr_read_b32"] == reads


# -- pins -------------------------------------------------------------------------------------------------------------


def test_pins_are_honoured():
    result, r = allocated("""
        buffer_load_dwordx4 a:va4@a8 <- v0, base, 0
        copy acc:va4@a128 <- 0
        v_mfma_f32_16x16x32_bf16 acc <- a, a, acc
        copy out:v4@v40 <- acc
        buffer_store_dwordx4 out, v0, base, 0
        s_endpgm""")
    assert result.assignment[r["a"]] == Physical("a", 8, 4) and result.assignment[r["acc"]] == Physical("a", 128, 4)
    assert result.assignment[r["out"]] == Physical("v", 40, 4)
    assert result.program.resources.agpr == 132 and result.program.resources.vgpr == 44
    assert moves(result) == {"v_accvgpr_write_b32": 4, "v_accvgpr_read_b32": 4}


def test_two_pinned_tiles_share_registers_when_they_never_live_together():
    result, r = allocated("""
        buffer_load_dwordx4 first:v4@v8 <- v0, base, 0
        buffer_store_dwordx4 first, v0, base, 0
        buffer_load_dwordx4 second:v4@v10 <- v0, base, 0
        buffer_store_dwordx4 second, v0, base, 0
        s_endpgm""")
    assert result.assignment[r["second"]].index == 10


@pytest.mark.parametrize("text, message", [
    ("""
        buffer_load_dwordx4 first:v4@v8 <- v0, base, 0
        buffer_load_dwordx4 second:v4@v10 <- v0, base, 0
        buffer_store_dwordx4 first, v0, base, 0
        buffer_store_dwordx4 second, v0, base, 0
        s_endpgm""", """\
kernel.py:3: second and first are both pinned to v10 and live together
  limit: second takes v[10:13], first takes v[8:11]
  try: pin one of them elsewhere"""),
    ("""
        buffer_load_dwordx4 t:v4@v9 <- v0, base, 0
        s_endpgm""", """\
kernel.py:2: t is pinned to v[9:12], where its tuples are misaligned
  limit: the first must be 0 modulo 2
  try: pin it to v10"""),
    ("""
        buffer_load_dwordx4 t:v4@v254 <- v0, base, 0
        s_endpgm""", """\
kernel.py:2: t is pinned to v[254:257], which is not in the file
  limit: it takes 4 registers, and the last is v255
  try: pin it to v252 or below"""),
    ("""
        copy t:v4@a0 <- 0
        s_endpgm""", """\
kernel.py:1: t is pinned to a[0:3], but it must be in VGPRs
  limit: its instructions take VGPRs there
  try: pin it to VGPRs, or leave the choice to the compiler"""),
    ("""
        entry:
          copy t:va2@a0 <- 0
        loop 1:
          v_add_f32 t[0] <- t[1], t[0]
          s_cbranch_scc1 ->loop
        end:
          s_endpgm""", """\
kernel.py:4: t is pinned to AGPRs, which v_add_f32 in a loop cannot name
  limit: ordinary vector instructions read and write VGPRs only
  try: pin it to VGPRs, or leave the choice to the compiler"""),
    ("""
        copy x:v@v0 <- 1
        v_add_u32 y:v <- x, v0
        s_endpgm""", """\
kernel.py:1: x and v0 are both pinned to v0 and live together
  limit: x takes v0, v0 takes v0
  try: pin one of them elsewhere"""),
])
def test_pins_that_cannot_be_kept(text: str, message: str):
    with pytest.raises(TilecError) as caught:
        allocated(text)
    assert str(caught.value) == message


# -- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waves, vector, vgprs", [
    (1, 512, 256), (4, 512, 256), (5, 256, 256), (8, 256, 256), (12, 168, 168), (16, 128, 128)])
def test_waves_share_the_registers_of_a_simd(waves: int, vector: int, vgprs: int):
    budget = Budget(target("gfx950"), waves)
    assert (budget.vector, budget.limit("v")) == (vector, vgprs)
    assert budget.target.waves_per_simd(*((vector, 0) if vector <= 256 else (256, 256))) >= budget.waves_per_simd
    assert budget.limit("v", 120) == min(vgprs, vector - 120)


def test_over_budget_names_the_tiles():                     # BL-26, BL-27
    with pytest.raises(TilecError) as caught:
        allocated(gemm(8, 8, 8), waves=8)
    assert str(caught.value) == """\
kernel.py:85: kernel needs 321 vector registers at once
  limit: a wave has 256 vector registers with 8 waves in a workgroup (2 on each SIMD): up to 256 VGPRs and 256 AGPRs; \
live here: acc0 4 (kernel.py:5), acc1 4 (kernel.py:6), acc2 4 (kernel.py:7), acc3 4 (kernel.py:8), \
acc4 4 (kernel.py:9), acc5 4 (kernel.py:10), others 297
  try: make acc0 smaller, use fewer waves, or keep fewer copies in flight"""


def test_the_registers_of_a_tile_are_counted_together():
    lines = [f"copy t{k}:v8 <- {k}" for k in range(40)] + [f"ds_write_b128 v0, t{k}[0:4]" for k in range(40)]
    program, registers = parse("\n".join([*lines, "s_endpgm"]), waves=16)
    for register in registers.values():
        object.__setattr__(register, "name", "tile")
    with pytest.raises(TilecError, match=r"live here: tile 164 \(kernel.py:1\), v0 1"):
        allocate(program)


def pressed(kind: str) -> str:
    """Tiles of 300 registers that VALU works on in a loop."""
    names = [f"t{k}" for k in range(75)]
    loop = [f"v_add_f32 {n}[1] <- {n}[0], {n}[2]" for n in names] + ["s_cmp_lg_u32 s2, 0", "s_cbranch_scc1 ->loop"]
    return "\n".join(["entry:", *(f"copy {n}:{kind}4 <- 0" for n in names), "loop 1:", *loop,
                      "end:", *(f"ds_write_b128 v0, {n}" for n in names), "s_endpgm"])


def test_moves_in_a_loop_are_the_last_resort():
    result, _ = allocated(pressed("va"))
    in_loop = Counter(i.op for i in result.program.blocks[1].instructions)
    tiles = result.program.resources.agpr // 4
    assert 12 <= tiles and in_loop["v_accvgpr_read_b32"] == 2 * tiles and in_loop["v_accvgpr_write_b32"] == tiles


def test_a_file_that_runs_out_before_the_total():
    with pytest.raises(TilecError, match="needs 301 .* at once, and no placement was found: VGPRs run out"):
        allocated(pressed("v"))


def test_scalars_over_budget():
    lines = [f"s_mov_b32 x{k}:s <- {k}" for k in range(110)] + [f"s_add_u32 x0 <- x0, x{k}" for k in range(110)]
    with pytest.raises(TilecError) as caught:
        allocated("\n".join([*lines, "s_endpgm"]))
    assert "kernel needs 110 SGPRs at once\n  limit: a wave has 102 SGPRs; live here: x0 1 (kernel.py:1)" in \
        str(caught.value)
    assert "try: pass fewer tensors, or compute scalars where they are used" in str(caught.value)


def test_the_same_program_is_allocated_the_same_way():
    first, second = allocated(gemm(8, 8, 4)), allocated(gemm(8, 8, 4))
    for a, b in zip(first[0].program.instructions(), second[0].program.instructions(), strict=True):
        assert (a.op, a.dst, a.src) == (b.op, b.dst, b.src)


def test_only_virtual_programs_are_taken():
    result, _ = allocated("s_endpgm")
    with pytest.raises(InternalError, match="in form 'virtual', not 'allocated'"):
        allocate(result.program)


def test_tokens_stay():
    program, r = parse("ds_write_b32 v0, v0\ncopy b:t <- a:t\ns_barrier b\ns_endpgm")
    result = allocate(program).program
    check(program, result)
    assert [i.op for i in result.instructions()] == ["ds_write_b32", "token", "s_barrier", "s_endpgm"]
    assert list(result.instructions())[1].dst[0].register is r["b"]     # type: ignore[union-attr]
