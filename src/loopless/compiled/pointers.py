"""Pointers to memory inside compiled code: of arrays, and of tensors that arrive as addresses."""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from loopless.compiled.jit import overload


@intrinsic
def prefetch(typing_context, pointer, i):
    """Ask the processor for the cache line of pointer[i], which is about to be written."""

    def codegen(context, builder, signature, args):
        i32, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        signature_ = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, signature_, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(args[0], [args[1]]), byte)
        builder.call(function, [address, i32(1), i32(3), i32(1)])  # write, keep, data
        return context.get_dummy_value()

    return types.void(pointer, i), codegen


@intrinsic
def _memory_of(typing_context, array):
    """Return a pointer to the elements of an array."""

    def codegen(context, builder, signature, args):
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), codegen


@intrinsic
def _memory_at(typing_context, address, like):
    """Return an address as a pointer to elements of `like`'s dtype, or to booleans beside None."""
    dtype = types.boolean if isinstance(like, types.NoneType) else like.dtype

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_data_type(dtype).as_pointer())

    return types.CPointer(dtype)(address, like), codegen


def pointer(field, like):
    """Return a pointer to an array's memory, or to an address as in `_memory_at`; None stays None.

    Numba counts references to arrays wherever a tuple of them is passed on, but not to pointers.
    """
    raise AssertionError("compiled code only")


@overload(pointer)
def _pointer_typed(field, like):
    if isinstance(field, types.Array):
        return lambda field, like: _memory_of(field)
    if isinstance(field, types.NoneType):
        return lambda field, like: None
    return lambda field, like: _memory_at(field, like)


def pointers(fields, like):
    """Return `pointer` of each field, as a tuple."""
    raise AssertionError("compiled code only")


@overload(pointers)
def _pointers_typed(fields, like):
    if len(fields) == 0:
        return lambda fields, like: ()
    return lambda fields, like: (pointer(fields[0], like), *pointers(fields[1:], like))


def results(outs):
    """Return pointers to arrays, or to the addresses that follow an array of their dtype."""
    raise AssertionError("compiled code only")


@overload(results)
def _results_typed(outs):
    if len(outs) > 1 and isinstance(outs[1], types.Integer):
        return lambda outs: pointers(outs[1:], _memory_of(outs[0]))
    return lambda outs: pointers(outs, None)


def numbers_like(numbers, like):
    """Return each number in the dtype of the pointer `like`, as a tuple; pointers to arrays."""
    raise AssertionError("compiled code only")


@overload(numbers_like)
def _numbers_typed(numbers, like):
    if len(numbers) == 0:
        return lambda numbers, like: ()
    if isinstance(numbers[0], types.Array):
        return lambda numbers, like: (_memory_of(numbers[0]), *numbers_like(numbers[1:], like))
    dtype = like.dtype
    return lambda numbers, like: (dtype(numbers[0]), *numbers_like(numbers[1:], like))
