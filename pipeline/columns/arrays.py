"""Arrays of Arrow made from buffers of numpy's, without pandas.

`pyarrow.array` and `pyarrow.scalar` import pandas to see whether they were given something of it.
That is a third of a second of CPU in each new Python process of Spark's, and nothing here needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray


def array(
    numbers: NDArray[Any], type_: pa.DataType, absent: NDArray[np.bool_] | None = None
) -> pa.Array:
    """The numbers, of a type of fixed width; null where they are `absent`. Copied only where they
    lie apart or have another width."""
    fitting = np.ascontiguousarray(numbers, type_.to_pandas_dtype())
    nulls = 0 if absent is None else int(np.count_nonzero(absent))
    bits = validity(absent) if absent is not None and nulls else None
    return pa.Array.from_buffers(type_, fitting.size, [bits, pa.py_buffer(fitting)], nulls)


def booleans(values: NDArray[np.bool_]) -> pa.Array:
    """The values, a bit each."""
    return pa.Array.from_buffers(pa.bool_(), values.size, [None, validity(~values)])


def validity(absent: NDArray[np.bool_]) -> pa.Buffer:
    """The bitmap of an array that is null where something is absent."""
    return pa.py_buffer(np.packbits(~absent, bitorder="little"))


def repeated_text(text: str, count: int) -> pa.Array:
    """A string as often as there are rows."""
    data = text.encode()
    ends = np.array([0, len(data)], np.int32)
    one = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    return pa.repeat(one[0], count)
