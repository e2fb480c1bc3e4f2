"""Which of CPython's tests ``cpython.py`` runs, and which cannot hold for a compiled function, and why.

Other modules of the ``test`` package may be named on the command line; what they find has not been gone through.
"""

from __future__ import annotations

MODULES = (
    "test_list", "test_tuple", "test_dict", "test_set", "test_range", "test_iter", "test_generators",
    "test_collections", "test_operator", "test_contextlib", "test_with", "test_exceptions", "test_raise",
    "test_patma", "test_property", "test_class", "test_super", "test_scope", "test_unpack",
    "test_userlist", "test_userdict", "test_deque", "test_defaultdict", "test_dataclasses",
)  # fmt: skip


def _each(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


# Each is a limit that docs/limits.md names, or asks what no compiled function can have.
EXCUSED: dict[str, str] = {
    **_each(
        "asks when an object is freed: entry code holds what it has made until it returns",
        """
        test_dict.DictTest.test_container_iterator test_dict.DictTest.test_oob_indexing_dictiter_iternextitem
        test_set.TestSet.test_container_iterator test_set.TestSetSubclass.test_container_iterator
        test_set.TestFrozenSet.test_container_iterator test_set.TestFrozenSetSubclass.test_container_iterator
        test_set.TestSet.test_weakref test_set.TestSetSubclass.test_weakref
        test_functools.TestPartialC.test_weakref test_functools.TestPartialPy.test_weakref
        test_functools.TestPartialCSubclass.test_weakref test_functools.TestPartialPySubclass.test_weakref
        test_functools.TestLRUPy.test_lru_cache_weakrefable test_functools.TestLRUC.test_lru_cache_weakrefable
        test_iter.TestCase.test_ref_counting_behavior test_contextlib.ContextManagerTestCase.test_nokeepref
        test_exceptions.ExceptionTests.testExceptionCleanupState test_scope.ScopeTests.testCellLeak
        test_exceptions.ExceptionTests.test_memory_error_cleanup test_class.ClassTests.testDel
        test_deque.TestBasic.test_container_iterator test_deque.TestSubclass.test_weakref
        test_generators.FinalizationTest.test_frame_resurrect test_generators.FinalizationTest.test_refcycle
        """,
    ),
    **_each(
        "asks whether C code hands out one tuple again when nobody else holds it",
        """
        test_itertools.TestBasicOps.test_combinations_tuple_reuse test_itertools.TestBasicOps.test_product_tuple_reuse
        test_itertools.TestBasicOps.test_combinations_with_replacement_tuple_reuse
        test_itertools.TestBasicOps.test_permutations_tuple_reuse test_itertools.TestBasicOps.test_zip_tuple_reuse
        test_itertools.TestBasicOps.test_zip_longest_tuple_reuse
        """,
    ),
    **_each(
        "copies, pickles or sets the state of an iterator in C, which is a generator where it was made inside",
        """
        test_iter.TestCase.test_iter_callable test_iter.TestCase.test_iter_neg_setstate
        test_iter.TestCase.test_iter_overflow test_iter.TestCase.test_mutating_seq_class_iter_pickle
        test_iter.TestCase.test_seq_class_iter test_itertools.TestBasicOps.test_accumulate
        test_itertools.TestBasicOps.test_chain_reducible test_itertools.TestBasicOps.test_chain_setstate
        test_itertools.TestBasicOps.test_cycle_copy_pickle test_itertools.TestBasicOps.test_cycle_setstate
        test_itertools.TestBasicOps.test_dropwhile test_itertools.TestBasicOps.test_islice
        test_itertools.TestBasicOps.test_product_issue_25021 test_itertools.TestBasicOps.test_product_pickling
        test_itertools.TestBasicOps.test_starmap test_itertools.TestBasicOps.test_takewhile
        test_itertools.TestBasicOps.test_tee test_itertools.TestBasicOps.test_zip_longest_pickling
        test_itertools.TestExamples.test_accumulate_reducible
        test_itertools.TestExamples.test_accumulate_reducible_none
        test_itertools.TestBasicOps.test_repeat_with_negative_times
        """,
    ),
    **_each(
        "counts calls of __hash__, or lets it fail later: containers made inside are built anew by the entry",
        """
        test_dict.DictTest.test_setdefault_atomic test_dict.DictTest.test_setitem_atomic_at_resize
        test_dict.DictTest.test_pop test_dict.DictTest.test_setdefault
        test_set.TestSet.test_do_not_rehash_dict_keys test_set.TestSetSubclass.test_do_not_rehash_dict_keys
        test_set.TestFrozenSet.test_do_not_rehash_dict_keys
        test_set.TestFrozenSetSubclass.test_do_not_rehash_dict_keys
        """,
    ),
    **_each(
        "measures the memory of a dictionary, which is built anew by the entry",
        "test_dict.DictTest.test_splittable_popitem",
    ),
    **_each(
        "takes over 40 s: the collector a hundred times, an entry for each round of a random loop, deep nesting",
        "test_tuple.TupleTest.test_bug7466 test_dict.DictTest.test_copy_fuzz "
        "test_range.RangeTest.test_range_iterators test_contextlib.TestExitStack.test_excessive_nesting",
    ),
    **_each(
        "is about the interpreter's own frames and hooks: signals, gi_frame, lost exceptions",
        """
        test_generators.SignalAndYieldFromTest.test_raise_and_yield_from
        test_generators.GeneratorTest.test_handle_frame_object_in_creation
        test_exceptions.ExceptionTests.test_unraisable test_exceptions.ExceptionTests.test_3114
        """,
    ),
    **_each(
        "reads the frames or the text of a traceback, in which entry code stands for the function's own",
        """
        test_raise.TestTraceback.test_accepts_traceback test_raise.TestTracebackType.test_attrs
        test_contextlib.ContextManagerTestCase.test_contextmanager_traceback
        test_contextlib.TestExitStack.test_exit_exception_traceback test_exceptions.ExceptionTests.test_unhandled
        test_exceptions.NameErrorTests.test_name_error_suggestions
        test_exceptions.NameErrorTests.test_name_error_suggestions_from_globals
        test_exceptions.AttributeErrorTests.test_attribute_error_inside_nested_getattr
        test_exceptions.AttributeErrorTests.test_getattr_suggestions
        test_exceptions.AttributeErrorTests.test_getattr_suggestions_invalid_args
        test_exceptions.AttributeErrorTests.test_getattr_suggestions_no_args
        """,
    ),
}

# Wrong, and not yet mended: what is known of the cause.
KNOWN: dict[str, str] = {
    **_each(
        "a descriptor of a class that was made inside, read and written to, is the capture's own and not the entry's",
        "test_collections.TestNamedTuple.test_field_doc test_collections.TestNamedTuple.test_field_repr",
    ),
    **_each(
        "objects in the fields of a dataclass that was made inside are stand-ins: what is written to them is not seen",
        """
        test_dataclasses.TestCase.test_field_metadata_mapping test_dataclasses.TestDescriptors.test_non_descriptor
        """,
    ),
}
