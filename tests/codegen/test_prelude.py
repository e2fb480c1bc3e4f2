"""Only what a C file uses of prelude.h stands in it."""

import re

import pytest

from torchglass.codegen.prelude import _paragraphs, prelude_of, words_of


def test_every_paragraph_defines_something():
    _, paragraphs = _paragraphs()
    assert [p.text for p in paragraphs if not p.defines] == []


@pytest.mark.parametrize(
    "kernel, wanted, unwanted",
    [
        ("y[i] = x[i] * 2.0f;", [], ["tg_", "VECTOR", "INLINE"]),
        ("y[i] = tg_sigmoid_f32(x);", ["tg_sigmoid_f32", "tg_exp_f32", "tg_expm1_core", "INLINE"], ["tg_erf_f32"]),
        ("y[i] = acosf(x);", ["VECTOR_OF(acos)"], ["tg_exp_f32", "tg_bound"]),
        ("y[tg_bound(i, 3, 0, 0)];", ["tg_fail", "tg_failed[4]"], ["tg_scratch"]),
    ],
)
def test_what_a_kernel_uses_and_no_more(kernel, wanted, unwanted):
    text = prelude_of(words_of(kernel))
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert text.startswith("#include <stdint.h>")
    assert [name for name in wanted if name not in code] == []
    assert [name for name in unwanted if name in code] == []


def test_headers_are_those_of_what_is_called():
    assert "#include <math.h>" in prelude_of(words_of("y[i] = powf(x[i], 2.0f);"))
    assert "math.h" not in prelude_of(words_of("const float* restrict exp = x; y[i] = __builtin_sqrtf(exp[i]);"))
    assert prelude_of(words_of("omp_get_thread_num()")) == "#include <stdint.h>\n#include <omp.h>"
    assert "stdlib.h" in prelude_of(words_of("tg_scratch(64)"))
