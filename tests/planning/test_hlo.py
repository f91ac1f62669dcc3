"""Counting in a program's text: loops, calls, asynchronous collectives, dots."""

import pytest

from nd_jax.planning.hlo import count

HLO = """
HloModule jit_step

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%body (state: (s32[], f32[8,16])) -> (s32[], f32[8,16]) {
  %state = (s32[], f32[8,16]{1,0}) parameter(0)
  %shard = bf16[2,16]{1,0} constant({...})
  %whole = bf16[8,16]{1,0} all-gather(%shard), dimensions={0}
  %left = f32[8,4]{1,0} constant({...})
  %right = f32[4,16]{1,0} constant({...})
  %product = f32[8,16]{1,0} dot(%left, %right), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %next = (s32[], f32[8,16]{1,0}) tuple(%state, %product)
}

%cond (state.1: (s32[], f32[8,16])) -> pred[] {
  %state.1 = (s32[], f32[8,16]{1,0}) parameter(0)
  ROOT %more = pred[] constant(true)
}

ENTRY %main (a: f32[8,16]) -> f32[8,16] {
  %a = f32[8,16]{1,0:T(8,128)} parameter(0)
  %start = (f32[8,16]{1,0}, f32[32,16]{1,0}) all-gather-start(%a), dimensions={0}
  %done = f32[32,16]{1,0} all-gather-done(%start)
  %both = (f32[8,16]{1,0}, /*index=1*/f32[]) all-reduce(%a, %a), to_apply=%add
  %part = f32[2,16]{1,0} reduce-scatter(%a), to_apply=%add
  %loop = (s32[], f32[8,16]{1,0}) while(%a), condition=%cond, body=%body, backend_config={KNOWN}
  ROOT %result = f32[8,16]{1,0} get-tuple-element(%loop), index=1
}
"""
KNOWN = '"known_trip_count":{"n":"5"}'


def test_operations_in_loops_count_as_often_as_they_run():
    counts = count(HLO.replace("KNOWN", KNOWN))
    gathered = counts.collectives["all-gather"]
    assert (gathered.count, gathered.bytes) == (1 + 5, 32 * 16 * 4 + 5 * 8 * 16 * 2)
    assert counts.collectives["all-reduce"].bytes == 2 * 8 * 16 * 4  # its operands: a twice
    assert (
        counts.collectives["reduce-scatter"].bytes == 8 * 16 * 4
    )  # what goes in, not the part that comes out
    assert counts.matmul_flops == 5 * 2 * 8 * 16 * 4
    assert counts.unknown_loops == 0


def test_a_loop_of_unknown_length_is_told():
    counts = count(HLO.replace("KNOWN", ""))
    assert counts.unknown_loops == 1
    assert counts.matmul_flops == 2 * 8 * 16 * 4


@pytest.mark.parametrize("text", ["", "HloModule nothing"])
def test_a_text_without_a_program_is_an_error(text):
    with pytest.raises(KeyError):
        count(text)
