"""Standardization of advantages. Loop twin: `reference.returns.normalize`."""

from loopless.arrays import checks
from loopless.arrays.dispatch import as_numpy_on_cpu, empty, flat
from loopless.arrays.library import NUMPY


@as_numpy_on_cpu
def normalize(x, valid=None, *, min_std=1e-8):
    """Return x with mean 0 and standard deviation 1 over its valid entries.

        (x − mean) / max(std, min_std)

    The standard deviation is the population's, and `min_std` is its floor: a constant input gives
    0, and a floor of 0.1 keeps nearly constant advantages small. Entries with `valid` false may
    hold anything, NaN included, and come back 0; so does everything if no entry is valid. Sums are
    in float64 on NumPy arrays, in float32 at least elsewhere.

    Loop twin: `reference.returns.normalize`.
    """
    function = "normalize"
    arguments = checks.Arguments(function, "x", x)
    library, dtype = arguments.library, arguments.floats({"x": x})
    min_std = checks.positive(function, "min_std", min_std)
    if valid is not None:
        valid = arguments.flag("valid", valid)
    if library is NUMPY:
        from loopless.compiled import losses as compiled_losses

        wide = library.wide(dtype)
        out = empty(x.shape, wide)
        flags = None if valid is None else flat(valid, valid.dtype)
        compiled_losses.normalize(flat(x, wide), flags, float(min_std), out.ravel())
        return out.astype(dtype, copy=False)
    xp = library.xp
    wide = library.cast(x, library.wide(dtype))
    if wide.size == 0 if library.name == "jax" else wide.numel() == 0:
        return x + 0
    entries = wide.reshape(-1)
    # Differences from one entry: a constant input then has mean and spread exactly 0.
    if valid is None:
        difference = wide - entries[0]
        count = entries.shape[0]
    else:
        first = xp.argmax(library.cast(valid.reshape(-1), xp.int32))
        wide = xp.where(valid, wide, 0)
        difference = xp.where(valid, wide - xp.take(wide.reshape(-1), first), 0)
        count = library.cast(valid, wide.dtype).sum()
        count = xp.where(count > 1, count, 1)
    centred = difference - difference.sum() / count
    if valid is not None:
        centred = xp.where(valid, centred, 0)
    # Squares are taken in units of the largest difference, so that none overflows.
    largest = abs(centred).max()
    unit = xp.where(largest == 0, 1, largest)
    variance = ((centred / unit) ** 2).sum() / count
    # The root's derivative at 0 is infinite, so the variance stays above 0. A comparison with NaN
    # is false, so that NaN passes every `where` below.
    smallest = xp.finfo(wide.dtype).tiny
    deviation = unit * xp.sqrt(xp.where(variance < smallest, smallest, variance))
    floor = max(min_std, smallest)
    out = centred / xp.where(deviation < floor, floor, deviation)
    if valid is not None:
        out = xp.where(valid, out, 0)
    return library.cast(out, dtype)
