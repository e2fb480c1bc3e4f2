"""The processor's instruction sets, as far as a C compiler uses them where it may use all that there are.

    instruction_sets()          # {"avx2", "fma", "sse4_2", ...}: a library made for a part of them runs here
    level({"avx2", ...})        # "x86-64-v3": a name for people

What else the system says of a processor (what a hypervisor hides, which faults are mended) differs between machines on
which the same code runs.
"""

from __future__ import annotations

import functools
import re

from . import toolchain

_OF_COMPILERS = re.compile(
    r"(?:cmov|cx8|fxsr|mmx|sse|pni|ssse3|cx16|sahf|lahf|popcnt|avx|f16c|fma|bmi|abm|lzcnt|movbe|xsave|osxsave|aes|vaes"
    r"|pclmul|vpclmul|sha|sm[34]|gfni|amx|adx|fsgsbase|rdrand|rdseed|rdpid|rdtsc|3dnow|prefetch|clflush|clwb|clzero"
    r"|cldemote|movdir|enqcmd|serialize|waitpkg|wbnoinvd|ptwrite|pku|ospke|tbm|xop|lwp|hle|rtm|shstk|user_shstk|uintr"
    r"|hreset|kl|widekl|aeskle|cmpccxadd|raoint|apx|user_msr|usermsr|invpcid|mwait|syscall|lm)\w*"
)

_LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"},
    "x86-64-v2": {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"},
    "x86-64": {"cmov", "cx8", "fxsr", "mmx", "sse", "sse2"},
}
"""What a level has beside those below it."""


@functools.cache
def instruction_sets() -> frozenset[str]:
    """Those of this machine; of one that is no x86 all that is known of it, its model too."""
    words = toolchain.cpu_flags().partition(":")[2].split()
    known = frozenset(word for word in words if _OF_COMPILERS.fullmatch(word))
    return known if "sse2" in known else frozenset(words)


def level(sets: frozenset[str]) -> str:
    """The highest level all of which is there; "" of other processors."""
    levels = [*_LEVELS]
    whole = (name for name in levels if all(_LEVELS[one] <= sets for one in levels[levels.index(name) :]))
    return next(whole, "")
