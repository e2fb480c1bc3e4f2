"""The constructs that capture promises, word by word, each with the programs and tests that hold it to its word.

A name stands in the first table below that has it; ``file:test`` is a test function in a room of ``tests/capture``, and
``construct:name`` one of ``tests/semantics/test_constructs.py``, which runs with a tensor and with a number.
"""

import importlib
from pathlib import Path

import pytest
from tests.semantics.test_constructs import CONSTRUCTS

from . import test_messages
from .entry import test_breaks
from .meanings.library_calls import ROWS
from .test_programs import BREAKING, WHOLE
from .test_user_programs import PROGRAMS

PYTHON = """
loops (unrolled): loops construct:for_else_break_continue construct:loops_left_from_inside
while: construct:while_else branch_on_value
for/else: construct:for_else_break_continue
break/continue: construct:loops_left_from_inside
comprehensions: comprehensions construct:comprehensions comprehension_breaks
generators: generators construct:generators_and_yield_from generator_methods generator_protocol
yield from: construct:generators_and_yield_from yield_from_and_return loop_over_yield_from
with: contexts construct:with_several_managers construct:with_that_swallows nested_with
torch.no_grad: in_no_grad grad_mode_in_all_ways
enable_grad: grad_mode_in_all_ways
autocast: autocast autocast_dis in_autocast mixed_precision
inference_mode: inference_mode_block inference_mode_decorator
device context managers: device_ctx with_device_and_default_dtype
user-written context managers: in_own_manager own_manager_swallows generator_manager
try/except/else/finally: construct:try_except_else_finally construct:return_in_finally in_try in_finally
raise: raises construct:uncaught_exceptions raising_and_chaining
exception chaining: construct:exception_chaining context_is_chained test_breaks:raises_from
bare raise: construct:bare_raise_and_reraise reraise_in_handler
except star: construct:except_star except_star_groups
assert: construct:f_strings_and_assert assertion_with_message assertion_on_values
match: matching construct:match_patterns match_statements match_on_value
walrus: construct:walrus walrus_and_chained walrus_loop
unpacking: unpacking construct:unpacking_and_stars star_unpacking
star-args: construct:unpacking_and_stars star_expr star_call_across
keyword-only and positional-only: construct:keyword_only_and_positional_only calling
f-strings: construct:f_strings_and_assert formatting f_string_across
closures: closures construct:nonlocal_and_closures closure_across closures_late_binding
nonlocal: construct:nonlocal_and_closures nonlocal_counter
global writes: construct:global_writes global_write globals_written
super(): construct:super_in_several_bases super_many class_with_super super_after_a_break
decorators: decorators construct:decorators_lambdas_partials decorators_with_state
lambdas: partials_and_lambdas construct:decorators_lambdas_partials
partials: partials partials_and_lambdas partial_across
class bodies made inside: class_inside construct:classes_made_inside class_body_with_a_break
del: deletion construct:deletion del_and_rebind
"""

OBJECTS = """
properties: property_with_setter construct:properties_and_operators property_that_counts
descriptors: descriptors descriptors_with_set_name descriptors_by_super
slots: slots slots_global class_with_slots dataclass_with_slots slots_of_modules
__getattr__: getattr_hooks getattribute_hook
__call__: construct:properties_and_operators
__getitem__: construct:properties_and_operators
__iter__: classes
__contains__: construct:properties_and_operators
operators: operators_of_classes class_with_operators
__torch_function__: torch_function_of_a_class torch_function_mode
dataclasses: dataclass_made_inside dataclass_frozen dataclass_config dataclass_kw
namedtuples: namedtuples namedtuple_inside named_tuple_made_inside
enums: enums enum_made_inside enum_flags str_enum_dispatch
OrderedDict: ordered_dict
defaultdict: default_dict
deque: deques defaultdict_counter_deque
Counter: counter counter_subtract
sets: set_ops set_updates sets_and_frozensets
ranges: ranges
slices: slices
transformers' ModelOutput, configs and decorators: test_model_outputs
nn.Module with hooks: hooks_mod hooks_kw forward_hooks full_backward_hook hook_removed
ModuleList/Dict: moduledict modules
Sequential: modules
ParameterList: parameter_containers
buffers changed in forward (BatchNorm): buffers batch_norm_training buffers_replaced
parametrizations: parametrizations own_parametrization parametrize_
torch.autograd.Function: af_plain af_default af_setup autograd_function_inside
torch.utils.checkpoint: ckpt ckpt_re test_checkpoint
torch.func.grad/vmap: func_grad func_vmap func_grad_vmap per_sample_gradients
custom ops (torch.library): custom_op custom_op_mut custom_lib
NumPy calls on constants: np_array_const np_linspace numpy_arrays
math: library:math
itertools: library:itertools itertools_all
functools: library:functools functools_zoo
operator: library:operator operators_all
collections: library:collections
copy: library:copy copies_of_every_kind copies_of_objects
typing: library:typing typing_things
inspect.signature: library:inspect signatures
warnings: library:warnings warn warnings_caught
logging: library:logging logs logging_and_printing
"""

EFFECTS = """
attribute writes: property_that_counts class_attribute_counter
item, list, dict, set writes: lists_and_dicts set_updates list_of_tensors_mutated
global writes: globals_written global_write
closure writes: nonlocal_counter closure_across
buffer writes: buffers buffers_replaced buf_write
objects made inside and returned: returned_objects returns_of_many_kinds
aliasing kept: aliasing_of_results test_no_alias_guards:test_two_lists_or_one
"""

TENSORS = """
views: in_place_on_views
in-place operations on inputs: in_place inputs_written
requires_grad inputs: requires_grad_attr test_requires_grad
.data: data_attr data_set
.grad reads: grad_reads
item() (break): number item_and_print
tolist() (break): numbers
shape arithmetic: shapes sizes_added
boolean masks and nonzero (break): nonzero_and_masks masks choices
torch.Size: sizes sizes_added
dtype: dtypes dtypes_
device: devices device_ctx
generator objects: gen_obj gen_global seeds_and_generators
RNG with eager's streams: rng_streams rng_many fork_rng manual_seed
subclasses (nn.Parameter; others break): tensor_subclass tensor_subclass_as_input inplace_param
nested inputs: nested_in nested_structures
tensors held by globals and closures: module_attributes_and_globals class_reads_tensors_around_it
scalars of Python and NumPy: python_scalars np_scalars np_global
"""

BREAKS = """
a value-dependent branch: branch branch_on_value
an unsupported call: disabled
print of a tensor: item_and_print
breakpoint(): test_compiler_functions:test_breakpoint_stops_in_the_users_function
.item(): number
I/O: json_and_paths
inside loops: loop_with_breaks nested_loops_with_breaks while_with_break_inside test_loops
inside with: in_no_grad nested_with in_for_in_with
inside try: in_try in_finally break_in_try handler_of_a_break
inside nested calls: break_in_call nested_functions_break test_called:test_a_break_inside_nested_calls_costs_only_that
inside comprehensions: comprehension_breaks
inside generators: loop_over_generator loop_over_generator_expression generator_with_break_inside
every instruction that may break: test_break_kinds
where the block cannot be re-entered: dictionaries_while_iterated
reason, line, hint: test_messages:test_message
fullgraph=True: test_messages:test_message test_break_kinds
tg.graph_break(): asked_for test_compiler_functions:test_graph_break_and_disable_split_the_graph
tg.disable: disabled compiler_disable test_called:test_disabled_functions_and_what_they_call_stay_plain
tg.allow_in_graph: test_compiler_functions:test_an_allowed_function_is_one_node
tg.is_compiling: test_compiler_functions:test_is_compiling_only_inside
tg.reset: test_compiler_functions:test_reset_compiles_anew test_called:test_reset_forgets_the_functions_called
frames called from a broken region: test_called:test_each_has_its_folder_and_entries
only there: test_called:test_tracing_tools_see_the_user_frames
threads: test_threads:test_one_function_is_compiled_once test_threads:test_each_thread_its_shapes_and_breaks
a hook error never kills the interpreter: test_called:test_a_defect_of_ours_runs_the_function_plainly
"""

GUARDS = """
a changed value that was read recompiles: test_guards:test_a_change_of_what_was_read_compiles_again
one that was not read does not: test_guards:test_a_change_of_what_was_not_read_does_not
object identity, types, constants, lengths, keys, tensor metadata: test_guards:KINDS
global state: test_guards:test_global_state
module structure: test_module_changes:test_module_changed test_module_changes:test_module_changed_after_many_calls
a recompile names guard, values and line: test_guards:test_a_recompile_names_the_guard_the_values_and_the_line
most recently hit first: test_guards:test_entries_are_tried_latest_hit_first
past 64: test_guards:test_past_the_limit_it_says_once_what_kept_failing
entries die with what they refer to: test_guards:test_nothing_keeps_a_compiled_closure_alive
parameters replaced, .data=, .to, requires_grad_, hooks, submodules: test_module_changes:test_module_changed
"""

TABLES = {"python": PYTHON, "objects": OBJECTS, "effects": EFFECTS, "tensors": TENSORS, "breaks": BREAKS,
          "guards": GUARDS}  # fmt: skip
HERE = Path(__file__).parent
FILES = {p.stem: "." + ".".join(p.relative_to(HERE).with_suffix("").parts) for p in HERE.rglob("test_*.py")}
PROGRAM_NAMES = (
    {name.partition(" of ")[0] for name in (*WHOLE, *BREAKING, *PROGRAMS)}
    | {function.__name__ for function in test_breaks.PROGRAMS}
    | {name for name, value in vars(test_messages).items() if hasattr(value, "__code__")}
)


def exists(name):
    kind, _, inner = name.partition(":")
    if kind == "construct":
        return inner in CONSTRUCTS
    if kind == "library":
        return inner in ROWS
    if not kind.startswith("test_"):
        return name in PROGRAM_NAMES
    module = importlib.import_module(FILES[kind], __package__)
    return hasattr(module, inner) if inner else True


@pytest.mark.parametrize(
    ("construct", "tests"),
    [line.rsplit(": ", 1) for table in TABLES.values() for line in table.strip().splitlines()],
)
def test_is_held_to_its_word(construct, tests):
    missing = [name for name in tests.split() if not exists(name)]
    assert not missing
