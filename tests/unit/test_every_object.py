"""The watch over all objects that tests compile: it sees each once, and a run fails where one is not clang's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tilec as tc
from kernels.vector_add import vector_add
from tests.support.every_object import Watch

ROOT = Path(__file__).parents[2]
S_ENDPGM = bytes.fromhex("000081bf")
ONE_BYTE_OFF = '''
from kernels.vector_add import defaults, vector_add
from tilec.backend_amdgcn import assemble

def test_compiles(monkeypatch):
    link = assemble.link

    def off(relocatable):
        made = bytearray(link(relocatable))
        made[made.index({part})] ^= 1
        return bytes(made)
    monkeypatch.setattr(assemble, "link", off)
    assert vector_add.compile(**defaults(), arch="gfx950").object

def test_compiles_rightly():
    assert vector_add.compile(**defaults(), arch="gfx942").object
'''


@pytest.mark.parametrize("part, section", [(b"amdhsa.kernels", ".note"), (S_ENDPGM, ".text")])
def test_a_run_fails_where_an_object_is_off_by_a_byte(part: bytes, section: str, tmp_path: Path):
    (tmp_path / "test_off.py").write_text(ONE_BYTE_OFF.format(part=part))
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--with-clang", "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "2 passed, 1 error" in done.stdout, done.stdout
    assert "2 of 2 objects compared" in done.stdout
    assert f"{section} differs from clang's" in done.stdout


def test_each_object_is_compared_once_and_wrong_ones_are_named():
    kernel = vector_add.compile(*[tc.spec("f32", (100,))] * 3, arch="gfx950")
    watch = Watch(one_in=1)
    for _ in range(2):
        watch.note(kernel.asm, "gfx950", kernel.object)
        watch.compare()
    assert len(watch.made) == watch.compared == 1
    watch.note(kernel.asm.replace("s_endpgm", "s_nop 0"), "gfx950", kernel.object)
    with pytest.raises(AssertionError, match=".text differs from clang's"):
        watch.compare()


def test_a_sample_is_chosen_by_content():
    few, again = Watch(one_in=4), Watch(one_in=4)
    for number in range(200):
        few.note(str(number), "gfx950", b"")
        again.note(str(199 - number), "gfx950", b"")
    assert set(few._waiting) == set(again._waiting) and 25 < len(few._waiting) < 75
