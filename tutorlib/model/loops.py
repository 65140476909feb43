"""A whole Llama on one screen, in loops that a compiler turns into machine code.

A call of a model reads all its weights from memory, and that takes most of its time. A matrix product of PyTorch reads
them quickly for one token, and slowly for a few: it is made for many rows, and rearranges the weights for them in every
call. `product` below reads each weight once and uses it for all rows of the call. So a second token costs little, which
is what speculative decoding lives on.

The sum behind each number has the same order whatever else is in the call, so a token's logits have the same bits
alone, in a draft, in a tree and in a batch. (Engines call that batch invariance.)

The functions here know arrays and nothing else; `llama.py` gives them a model's weights and a cache. They are compiled
by numba at their first use, and kept for later processes. All of them are in this file because numba looks at this file
alone to find out whether what it kept is still right.

Sources: Touvron et al. (2023), "LLaMA: Open and Efficient Foundation Language Models", section 2.2; Zhang and Sennrich
(2019), "Root Mean Square Layer Normalization", eq. 4; Su et al. (2021), "RoFormer: Enhanced Transformer with Rotary
Position Embedding", eq. 34; Shazeer (2020), "GLU Variants Improve Transformer", eq. 6; Ainslie et al. (2023), "GQA",
section 2.2 (heads that share keys and values).
"""

# No postponed annotations here: numba reads this file's functions as they are.

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

WIDE = 16  # how many numbers are multiplied and added at once; sizes of weights must be multiples of it
_FLOATS = ir.VectorType(ir.FloatType(), WIDE)


def compiled(function):
    """Compile a function at its first call, and keep what was compiled, if there is a folder that can be written to."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no such folder
        return numba.njit(**options)(function)


# ---- one token or a few through one layer -------------------------------------------------------------------------


@compiled
def layer(x, norms, heads, weights, scales, extras, eps, keys, values, cos, sin, row, slot, before, parent):
    """One layer of a Llama, for all tokens of a call.

    Parameters
    ----------
    x : (tokens, width) array of float32
        What the layer reads, and in the end what it has made.
    norms : two (width,) arrays
        The weights of the two norms.
    heads : (int, int)
        How many heads there are for queries, and for keys and values.
    weights : seven arrays of float32, or of int8
        The matrices for queries, keys, values, output, gate, up and down, (out, in) each.
    scales : seven arrays (out,) of float32, or seven times None
        By what each row of a matrix of int8 is multiplied.
    extras : five arrays of float32, or None in place of any of them
        What is added to queries, keys and values (Qwen2), and the norms of each head's queries and keys (Qwen3).
    eps : float
    keys, values : (rows, heads, slots, size) arrays of float32
        The cache; the new tokens are written into their slots.
    cos, sin : (tokens, size) arrays of float32
        The rotation of each token, which depends on its position.
    row, slot : (tokens,) arrays of int
        Where each token goes in the cache.
    before : (tokens,) array of int
        How many slots each token sees from the beginning of its row, besides its ancestors and itself.
    parent : (tokens,) array of int
        Each token's parent among the tokens of this call; -1 if it follows what `before` counts.
    """
    h = np.empty_like(x)
    norm(x, norms[0], eps, h)
    layer_from(x, h, norms[1], heads, weights, scales, extras, eps, keys, values, cos, sin, row, slot, before, parent)


@compiled
def layer_from(x, read, weight, heads, weights, scales, extras, eps, keys, values, cos, sin, row, slot, before, parent):
    """The same where the attention reads something else than x after a norm: `read`, (tokens, any width).

    `weight` is that of the norm after the attention. `slot` and `parent` may be longer than the call, so that tokens
    have ancestors from earlier calls.
    """
    tokens, width = x.shape
    size = keys.shape[3]
    wq, wk, wv, wo, w_gate, w_up, w_down = weights
    sq, sk, sv, so, s_gate, s_up, s_down = scales
    more_q, more_k, more_v, norm_q, norm_k = extras
    h = np.empty((tokens, width), np.float32)
    q = np.empty((tokens, heads[0] * size), np.float32)
    k, v = np.empty((tokens, heads[1] * size), np.float32), np.empty((tokens, heads[1] * size), np.float32)
    seen = np.empty((tokens, heads[0] * size), np.float32)
    gate, up = np.empty((tokens, w_up.shape[0]), np.float32), np.empty((tokens, w_up.shape[0]), np.float32)

    product(read, wq, sq, more_q, q)
    product(read, wk, sk, more_k, k)
    product(read, wv, sv, more_v, v)
    turn(q, norm_q, eps, cos, sin)
    turn(k, norm_k, eps, cos, sin)
    store(k, keys, row, slot)
    store(v, values, row, slot)
    attend(q, keys, values, row, slot, before, parent, seen)
    product(seen, wo, so, None, h)
    add(x, h)
    norm(x, weight, eps, h)
    product(h, w_gate, s_gate, None, gate)
    product(h, w_up, s_up, None, up)
    for t in range(tokens):
        for i in range(gate.shape[1]):
            gate[t, i] = gate[t, i] / (np.float32(1) + np.exp(-gate[t, i])) * up[t, i]
    product(gate, w_down, s_down, None, h)
    add(x, h)


@compiled
def product(x, weight, scale, more, y):
    """y = x weightᵀ, (tokens, in) times (out, in): each weight is read from memory once and used for every token.

    Four tokens at a time: their sums stay in the processor's registers, and the row of weights in its nearest cache.
    """
    tokens, width = x.shape
    for j in range(weight.shape[0]):
        times = np.float32(1) if scale is None else scale[j]
        plus = np.float32(0) if more is None else more[j]
        t = 0
        while t + 4 <= tokens:
            a, b, c, d = zeros(), zeros(), zeros(), zeros()
            for i in range(0, width, WIDE):
                w = load(weight, j, i)
                a, b = multiply_add(w, load(x, t, i), a), multiply_add(w, load(x, t + 1, i), b)
                c, d = multiply_add(w, load(x, t + 2, i), c), multiply_add(w, load(x, t + 3, i), d)
            y[t, j], y[t + 1, j] = total(a) * times + plus, total(b) * times + plus
            y[t + 2, j], y[t + 3, j] = total(c) * times + plus, total(d) * times + plus
            t += 4
        if t + 2 <= tokens:
            a, b = zeros(), zeros()
            for i in range(0, width, WIDE):
                w = load(weight, j, i)
                a, b = multiply_add(w, load(x, t, i), a), multiply_add(w, load(x, t + 1, i), b)
            y[t, j], y[t + 1, j] = total(a) * times + plus, total(b) * times + plus
            t += 2
        if t < tokens:
            a = zeros()
            for i in range(0, width, WIDE):
                a = multiply_add(load(weight, j, i), load(x, t, i), a)
            y[t, j] = total(a) * times + plus


@compiled
def norm(x, weight, eps, y):
    """y = x divided by its root mean square, times `weight`."""
    for t in range(x.shape[0]):
        squares = zeros()
        for i in range(0, x.shape[1], WIDE):
            squares = multiply_add(load(x, t, i), load(x, t, i), squares)
        factor = np.float32(1) / np.sqrt(total(squares) / np.float32(x.shape[1]) + eps)
        for i in range(x.shape[1]):
            y[t, i] = weight[i] * (x[t, i] * factor)


@compiled
def turn(x, weight, eps, cos, sin):
    """Rotate each head of x, (tokens, heads times size), by its position; normalise it first if there is a weight."""
    size = cos.shape[1]
    half = size // 2
    for t in range(x.shape[0]):
        heads = x[t].reshape(-1, size)
        if weight is not None:
            norm(heads, weight, eps, heads)
        for h in range(heads.shape[0]):
            for i in range(half):
                one, other = heads[h, i], heads[h, half + i]
                heads[h, i] = one * cos[t, i] - other * sin[t, i]
                heads[h, half + i] = other * cos[t, half + i] + one * sin[t, half + i]


@compiled
def store(new, states, row, slot):
    """Write the keys or values of the new tokens into their slots."""
    size = states.shape[3]
    for t in range(new.shape[0]):
        for h in range(states.shape[1]):
            states[row[t], h, slot[t]] = new[t, h * size : (h + 1) * size]


@compiled
def attend(q, keys, values, row, slot, before, parent, y):
    """y = the values that each token sees, weighted by how well their keys agree with its query.

    A token sees the first slots of its row, its ancestors among the new tokens, and itself, in this order.
    """
    size = keys.shape[3]
    heads, group = q.shape[1] // size, q.shape[1] // size // keys.shape[1]
    root = np.float32(1 / np.sqrt(size))
    deepest = 0
    for t in range(q.shape[0]):
        deepest = max(deepest, before[t] + len(slot))
    places, weights = np.empty(deepest, np.int64), np.empty(deepest, np.float32)
    for t in range(q.shape[0]):
        count, node = before[t], t
        while node >= 0:
            count, node = count + 1, parent[node]
        for s in range(before[t]):
            places[s] = s
        last, node = count - 1, t
        while node >= 0:
            places[last] = slot[node]
            last, node = last - 1, parent[node]
        for h in range(heads):
            k, v = keys[row[t], h // group], values[row[t], h // group]
            most = np.float32(-np.inf)
            for s in range(count):
                agreement = zeros()
                for i in range(0, size, WIDE):
                    agreement = multiply_add(load(q, t, h * size + i), load(k, places[s], i), agreement)
                weights[s] = total(agreement) * root
                most = max(most, weights[s])
            whole = np.float32(0)
            for s in range(count):
                weights[s] = np.exp(weights[s] - most)
                whole += weights[s]
            for i in range(0, size, WIDE):
                mixed = zeros()
                for s in range(count):
                    mixed = multiply_add(spread(weights[s] / whole), load(v, places[s], i), mixed)
                save(mixed, y, t, h * size + i)


@compiled
def add(x, y):
    for t in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[t, i] += y[t, i]


# ---- sixteen numbers at a time -------------------------------------------------------------------------------------


class _Lanes(types.Type):
    """Sixteen float32 side by side, which the processor multiplies and adds together."""

    def __init__(self):
        super().__init__(name="sixteen float32")


_LANES = _Lanes()


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _FLOATS)


@intrinsic
def zeros(context):
    """Sixteen zeros."""

    def write(context, builder, signature, args):
        return ir.Constant(_FLOATS, [0.0] * WIDE)

    return _LANES(), write


@intrinsic
def spread(context, number):
    """Sixteen times the same number."""

    def write(context, builder, signature, args):
        one = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), args[0], ir.Constant(ir.IntType(32), 0))
        first = ir.Constant(ir.VectorType(ir.IntType(32), WIDE), [0] * WIDE)
        return builder.shuffle_vector(one, ir.Constant(_FLOATS, ir.Undefined), first)

    return _LANES(types.float32), write


@intrinsic
def load(context, array, row, column):
    """Sixteen numbers of a row, from `column` on, as float32. The numbers of a row must lie side by side."""

    def write(context, builder, signature, args):
        short = signature.args[0].dtype == types.int8
        stored = ir.VectorType(ir.IntType(8), WIDE) if short else _FLOATS
        numbers = builder.load(_place(context, builder, signature.args[0], args, stored))
        numbers.align = 1 if short else 4  # a row may begin anywhere
        if not short:
            return numbers
        return builder.sitofp(builder.sext(numbers, ir.VectorType(ir.IntType(32), WIDE)), _FLOATS)

    return _LANES(array, types.intp, types.intp), write


@intrinsic
def save(context, lanes, array, row, column):
    """Write the sixteen into a row of float32, from `column` on."""

    def write(context, builder, signature, args):
        builder.store(args[0], _place(context, builder, signature.args[1], args[1:], _FLOATS)).align = 4
        return context.get_dummy_value()

    return types.void(_LANES, array, types.intp, types.intp), write


def _place(context, builder, kind, args, stored):
    """The address of `args`, an array and the numbers of a row and a column, as that of a `stored`."""
    array = context.make_array(kind)(context, builder, args[0])
    return builder.bitcast(cgutils.get_item_pointer(context, builder, kind, array, args[1:]), stored.as_pointer())


@intrinsic
def multiply_add(context, one, other, plus):
    """one * other + plus, rounded once."""

    def write(context, builder, signature, args):
        kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{WIDE}f32"), args)

    return _LANES(_LANES, _LANES, _LANES), write


@intrinsic
def total(context, lanes):
    """The sum of the sixteen, always in the same order: halves are added to halves."""

    def write(context, builder, signature, args):
        sums, count = args[0], WIDE
        while count > 1:
            count //= 2
            halves = [
                builder.shuffle_vector(
                    sums,
                    ir.Constant(sums.type, ir.Undefined),
                    ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(first, first + count))),
                )
                for first in (0, count)
            ]
            sums = builder.fadd(*halves)
        return builder.extract_element(sums, ir.Constant(ir.IntType(32), 0))

    return types.float32(_LANES), write
