"""What a call of a language model should cost, by counting: bytes moved and operations done.

Plain formulas on plain numbers; no model is asked. A decoder-only transformer is described by how many parameters its
matrices have, and by its layers' attention: how many layers, how wide their queries are (heads × head size), and how
wide their keys are (key-value heads × head size). `tutorlib.cost` measures the same things, and `shape_of` there reads
these numbers off a model. Counted are the matrix products, which are all but a few per cent of the work: norms,
activations and positions are left out.
"""

from __future__ import annotations


def call_operations(parameters: int, tokens: int, *, cached: int = 0, layers: int = 0, query_width: int = 0) -> int:
    """Floating-point operations of one call.

    Each new token meets each parameter of the matrices in one multiplication and one addition. In the attention of each
    layer it also meets the key and the value of each token before it and of itself: 2 operations for each number of
    the query, twice.

    Parameters
    ----------
    parameters : int
        Parameters of the matrices that a token passes, the output head among them; the input embedding is looked up,
        not multiplied.
    tokens : int
        New tokens in the call.
    cached : int
        Tokens before them, already in the cache.
    layers, query_width : int
        Number of layers; numbers in one token's query in one layer.

    Returns
    -------
    int
        Every new token is taken to be given a row of logits.

    Examples
    --------
    >>> call_operations(10, tokens=3)
    60
    >>> call_operations(0, tokens=1, cached=9, layers=2, query_width=8)     # 10 keys and 10 values in each layer
    640
    """
    pairs = tokens * cached + tokens * (tokens + 1) // 2  # which token looks at which
    return 2 * parameters * tokens + 4 * layers * query_width * pairs


def cache_bytes(tokens: int, *, layers: int, key_width: int, bytes_each: int = 4) -> int:
    """Bytes of the key-value cache: a key and a value of `key_width` numbers for each token, in each layer.

    Examples
    --------
    >>> cache_bytes(100, layers=12, key_width=256)
    2457600
    """
    return 2 * layers * key_width * tokens * bytes_each


def call_bytes(
    parameters: int, tokens: int, *, cached: int = 0, layers: int = 0, key_width: int = 0, bytes_each: int = 4
) -> int:
    """Bytes that one call has to move between memory and processor.

    The matrices are read once, however many tokens are in the call: that is why checking five costs little more than
    making one. The keys and values of the tokens before are read, those of the new ones written. What the layers hand
    to each other is left out; it is small and stays in the processor's caches.

    Parameters
    ----------
    parameters, tokens, cached, layers
        As for `call_operations`.
    key_width : int
        Numbers in one token's key in one layer (key-value heads × head size); its value has as many.
    bytes_each : int
        Bytes of one number: 4 in float32, 2 in float16 and bfloat16.

    Examples
    --------
    >>> call_bytes(1000, tokens=1), call_bytes(1000, tokens=5)
    (4000, 4000)
    """
    return parameters * bytes_each + cache_bytes(
        cached + tokens, layers=layers, key_width=key_width, bytes_each=bytes_each
    )


def arithmetic_intensity(operations: float, bytes_moved: float) -> float:
    """Operations for each byte moved.

    Below what the processor can do in the time that memory takes to deliver a byte (its peak operations per second
    over its bandwidth), a call waits for memory. One token in float32 has about 0.5, whatever the model.

    Raises
    ------
    ValueError
        When no bytes are moved.
    """
    if bytes_moved <= 0:
        raise ValueError(f"bytes_moved must be above 0, got {bytes_moved}")
    return operations / bytes_moved


def roofline_seconds(operations: float, bytes_moved: float, *, peak_operations: float, bandwidth: float) -> float:
    """The least time a call can take: moving its bytes or doing its operations, whichever is longer.

    The "roofline" of Williams, Waterman and Patterson (2009).

    Parameters
    ----------
    operations, bytes_moved : float
        Of the call.
    peak_operations : float
        Operations per second that the processor can do.
    bandwidth : float
        Bytes per second that its memory can deliver.

    Raises
    ------
    ValueError
        When a rate is not above 0.

    Examples
    --------
    >>> roofline_seconds(10, 100, peak_operations=10, bandwidth=50)
    2.0
    """
    for name, rate in (("peak_operations", peak_operations), ("bandwidth", bandwidth)):
        if not rate > 0:
            raise ValueError(f"{name} must be above 0, got {rate}")
    return max(bytes_moved / bandwidth, operations / peak_operations)
