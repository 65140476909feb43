"""A whole Llama on one screen, in loops that a compiler turns into machine code.

A call of a model reads all its weights from memory, and that takes most of its time. A matrix product of PyTorch reads
them quickly for one token, and slowly for a few: it is made for many rows, and rearranges the weights for them in every
call. `product` below reads each weight once and uses it for all rows of the call. So a second token costs little, which
is what speculative decoding lives on.

The sum behind each number has the same order whatever else is in the call, so a token's logits have the same bits
alone, in a draft, in a tree and in a batch, by one thread or by several. (Engines call that batch invariance.)

The functions here know arrays and nothing else; `llama.py` gives them a model's weights and a cache. They are compiled
by numba at their first use, and kept for later processes. All of them are in this file because numba looks at this file
alone to find out whether what it kept is still right.

Sources: Touvron et al. (2023), "LLaMA: Open and Efficient Foundation Language Models", section 2.2; Zhang and Sennrich
(2019), "Root Mean Square Layer Normalization", eq. 4; Cody and Waite (1980), "Software Manual for the Elementary
Functions", chapter 6 (the exponential); Su et al. (2021), "RoFormer: Enhanced Transformer with Rotary
Position Embedding", eq. 34; Shazeer (2020), "GLU Variants Improve Transformer", eq. 6; Ainslie et al. (2023), "GQA",
section 2.2 (heads that share keys and values).
"""

# No postponed annotations here: numba reads this file's functions as they are.

import math

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

from .team import CAN_GIVE_WAY

WIDE = 16  # how many numbers are multiplied and added at once; sizes of weights must be multiples of it
_FLOATS = ir.VectorType(ir.FloatType(), WIDE)
AHEAD = 8192  # how many bytes of weights are asked for before they are needed
ROUND = np.float32(1.5 * 2**23)  # a float32 of this size has no bits for what lies after the point
_LN2 = np.float32(np.log(2))
_LN2_REST = np.float32(np.log(2) - float(_LN2))
_SERIES = tuple(np.float32(1 / math.factorial(n)) for n in range(7, -1, -1))  # of e to the power x
_ONE = ir.Constant(ir.IntType(64), 1)


def compiled(function):
    """Compile a function at its first call, and keep what was compiled, if there is a folder that can be written to."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no such folder
        return numba.njit(**options)(function)


# ---- one token or a few through one layer -------------------------------------------------------------------------


@compiled
def layer(
    x, norms, heads, weights, scales, extras, eps, keys, values, cos, sin, row, slot, before, parent, made, team
):  # fmt: skip
    """One layer of a Llama, for all tokens of a call; or a thread's share of it, if several compute it together.

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
    made : seven (tokens, out) arrays of float32
        Room for what the matrices make, which the threads share.
    team : (int, int, (1,) array of int64)
        The number of this thread, how many there are, and how often they have met; see `alone`.
    """
    h = room_like(x)
    norm(x, norms[0], eps, h)
    layer_from(
        x, h, norms[1], heads, weights, scales, extras, eps, keys, values, cos, sin, row, slot, before, parent, made,
        team,
    )  # fmt: skip


@compiled
def layer_from(
    x, read, weight, heads, weights, scales, extras, eps, keys, values, cos, sin, row, slot, before, parent, made, team
):  # fmt: skip
    """The same where the attention reads something else than x after a norm: `read`, (tokens, any width).

    `weight` is that of the norm after the attention. `slot` and `parent` may be longer than the call, so that tokens
    have ancestors from earlier calls.
    """
    wq, wk, wv, wo, w_gate, w_up, w_down = weights
    sq, sk, sv, so, s_gate, s_up, s_down = scales
    more_q, more_k, more_v, norm_q, norm_k = extras
    q, k, v, out, gate, up, down = made
    h = room_like(x)

    product(read, wq, sq, more_q, q, team)
    product(read, wk, sk, more_k, k, team)
    product(read, wv, sv, more_v, v, team)
    meet(team)
    turn(q, norm_q, eps, cos, sin, share(heads[0], team))
    turn(k, norm_k, eps, cos, sin, share(heads[1], team))
    store(k, keys, row, slot, share(heads[1], team))
    store(v, values, row, slot, share(heads[1], team))
    meet(team)
    attend(q, keys, values, row, slot, before, parent, share(heads[0], team), q)
    meet(team)
    product(q, wo, so, None, out, team)
    add(x, out, team)
    meet(team)
    norm(x, weight, eps, h)
    product(h, w_gate, s_gate, None, gate, team)
    product(h, w_up, s_up, None, up, team)
    meet(team)
    first, last = share(gate.shape[1] // WIDE, team)
    for t in range(gate.shape[0]):
        for i in range(first * WIDE, last * WIDE, WIDE):
            g = load(gate, t, i)
            below = plus(exponential(times(g, spread(np.float32(-1)))), spread(np.float32(1)))
            save(divided(times(g, load(up, t, i)), below), gate, t, i)
    meet(team)
    product(gate, w_down, s_down, None, down, team)
    add(x, down, team)
    meet(team)


@compiled
def product(x, weight, scale, more, y, team):
    """y = x weightᵀ, (tokens, in) times (out, in): each weight is read from memory once and used for every token.

    Sums stay in the processor's registers, and rows of weights in its nearest cache. While one row is multiplied, the
    next ones are already asked for.
    """
    tokens, width = x.shape
    first, last = share(weight.shape[0], team)
    if tokens > 2:
        pairs_of_rows(x, weight, scale, more, y, first, last)
        first = last
    for j in range(first, last):
        times, plus = factor(scale, j), term(more, j)
        if tokens == 1:
            a = zeros()
            for i in range(0, width, WIDE):
                ask_ahead(weight, j, i)
                a = multiply_add(load(weight, j, i), load(x, 0, i), a)
            y[0, j] = total(a) * times + plus
        elif tokens == 2:
            a, b = zeros(), zeros()
            for i in range(0, width, WIDE):
                ask_ahead(weight, j, i)
                w = load(weight, j, i)
                a, b = multiply_add(w, load(x, 0, i), a), multiply_add(w, load(x, 1, i), b)
            y[0, j], y[1, j] = total(a) * times + plus, total(b) * times + plus


@compiled
def pairs_of_rows(x, weight, scale, more, y, first, last):
    """The same product for three tokens or more: two rows for three tokens at a time need few loads for each
    multiplication, and fit into the registers of most processors.
    """
    tokens, width = x.shape
    for j in range(first, last, 2):
        k = min(j + 1, last - 1)
        for t in range(0, tokens, 3):
            t2, t3 = min(t + 1, tokens - 1), min(t + 2, tokens - 1)
            a, b, c, d, e, f = zeros(), zeros(), zeros(), zeros(), zeros(), zeros()
            for i in range(0, width, WIDE):
                ask_ahead(weight, j, i)
                ask_ahead(weight, k, i)
                v, w = load(weight, j, i), load(weight, k, i)
                n = load(x, t, i)
                a, d = multiply_add(v, n, a), multiply_add(w, n, d)
                n = load(x, t2, i)
                b, e = multiply_add(v, n, b), multiply_add(w, n, e)
                n = load(x, t3, i)
                c, f = multiply_add(v, n, c), multiply_add(w, n, f)
            times, plus = factor(scale, j), term(more, j)
            y[t, j], y[t2, j], y[t3, j] = total(a) * times + plus, total(b) * times + plus, total(c) * times + plus
            times, plus = factor(scale, k), term(more, k)
            y[t, k], y[t2, k], y[t3, k] = total(d) * times + plus, total(e) * times + plus, total(f) * times + plus


@compiled
def room_like(x):
    """An array like x that begins at a multiple of 64 bytes: so no load of sixteen numbers needs two accesses."""
    room = np.empty(x.size + WIDE, np.float32)
    first = (-room.ctypes.data // 4) % WIDE
    return room[first : first + x.size].reshape(x.shape)


@compiled
def factor(scale, row):
    return np.float32(1) if scale is None else scale[row]


@compiled
def term(more, row):
    return np.float32(0) if more is None else more[row]


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
def turn(x, weight, eps, cos, sin, some):
    """Rotate some heads of x, (tokens, heads times size), by their position, after a norm if there is a weight."""
    size = cos.shape[1]
    half = size // 2
    for t in range(x.shape[0]):
        heads = x[t][some[0] * size : some[1] * size].reshape(-1, size)
        if weight is not None:
            norm(heads, weight, eps, heads)
        for h in range(heads.shape[0]):
            for i in range(half):
                one, other = heads[h, i], heads[h, half + i]
                heads[h, i] = one * cos[t, i] - other * sin[t, i]
                heads[h, half + i] = other * cos[t, half + i] + one * sin[t, half + i]


@compiled
def store(new, states, row, slot, some):
    """Write the keys or values of the new tokens, of some heads, into their slots."""
    size = states.shape[3]
    for t in range(new.shape[0]):
        for h in range(some[0], some[1]):
            states[row[t], h, slot[t]] = new[t, h * size : (h + 1) * size]


@compiled
def attend(q, keys, values, row, slot, before, parent, some, y):
    """y = the values that each token sees, weighted by how well their keys agree with its query, for some heads.

    A token sees the first slots of its row, its ancestors among the new tokens, and itself, in this order. `y` may
    be `q`.
    """
    size = keys.shape[3]
    group = q.shape[1] // size // keys.shape[1]
    root = np.float32(1 / np.sqrt(size))
    deepest = 0
    for t in range(q.shape[0]):
        deepest = max(deepest, before[t] + len(slot))
    places, weights = np.empty(deepest, np.int64), np.empty((1, deepest + WIDE), np.float32)
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
        for h in range(some[0], some[1]):
            k, v = keys[row[t], h // group], values[row[t], h // group]
            most = np.float32(-np.inf)
            for s in range(count):
                agreement = zeros()
                for i in range(0, size, WIDE):
                    agreement = multiply_add(load(q, t, h * size + i), load(k, places[s], i), agreement)
                weights[0, s] = total(agreement) * root
                most = max(most, weights[0, s])
            weights[0, count : count + WIDE] = -np.inf  # for the last sixteen below
            whole = zeros()
            for s in range(0, count, WIDE):
                weight = exponential(plus(load(weights, 0, s), spread(-most)))
                save(weight, weights, 0, s)
                whole = plus(whole, weight)
            part = spread(np.float32(1) / total(whole))
            for i in range(0, size, 2 * WIDE):
                j = min(i + WIDE, size - WIDE)
                mixed, others = zeros(), zeros()
                for s in range(count):
                    weight = spread(weights[0, s])
                    mixed = multiply_add(weight, load(v, places[s], i), mixed)
                    others = multiply_add(weight, load(v, places[s], j), others)
                save(times(mixed, part), y, t, h * size + i)
                save(times(others, part), y, t, h * size + j)


@compiled
def add(x, y, team):
    first, last = share(x.shape[1], team)
    for t in range(x.shape[0]):
        for i in range(first, last):
            x[t, i] += y[t, i]


# ---- several threads ------------------------------------------------------------------------------------------------


def alone():
    """The team of a thread that computes everything itself."""
    return 0, 1, np.zeros(1, np.int64)


@compiled
def share(count, team):
    """From where to where, of so many rows or heads, is this thread's share."""
    return count * team[0] // team[1], count * (team[0] + 1) // team[1]


@compiled
def meet(team):
    """Wait until all threads have come here: what each of them has written, all may read then."""
    _, threads, arrived = team
    if threads > 1:
        needed = (count_up(arrived) // threads + 1) * threads
        waited, now = 0, needed - 1
        while 0 <= now < needed:  # below 0: called off
            waited, now = waited + 1, counted(arrived)
            if waited > 2000:  # another program may need this core
                give_way()


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
def ask_ahead(context, array, row, column):
    """Let the memory begin to deliver what lies 8 KB after this number, so that it is there when it is needed."""

    def write(context, builder, signature, args):
        place = builder.ptrtoint(_place(context, builder, signature.args[0], args, ir.IntType(8)), ir.IntType(64))
        pointer = builder.inttoptr(builder.add(place, ir.Constant(ir.IntType(64), AHEAD)), ir.IntType(8).as_pointer())
        numbers = [ir.Constant(ir.IntType(32), number) for number in (0, 3, 1)]  # to read, to keep, data
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, *(number.type for number in numbers)])
        builder.call(builder.module.declare_intrinsic("llvm.prefetch", (pointer.type,), kind), [pointer, *numbers])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), write


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


def _of_two(instruction):
    """A function of twice sixteen numbers, from what LLVM calls it."""

    @intrinsic
    def act(context, one, other):
        def write(context, builder, signature, args):
            return getattr(builder, instruction)(*args)

        return _LANES(_LANES, _LANES), write

    return act


plus, times, divided = _of_two("fadd"), _of_two("fmul"), _of_two("fdiv")


@intrinsic
def within(context, lanes, least, most):
    """The sixteen, or what they may be at least or at most."""

    def write(context, builder, signature, args):
        lanes = builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[1], args[0])  # NaN stays what it is
        return builder.select(builder.fcmp_ordered(">", lanes, args[2]), args[2], lanes)

    return _LANES(_LANES, _LANES, _LANES), write


@intrinsic
def power_of_two(context, lanes):
    """Two to the whole numbers that were added to `ROUND`, which are the last bits of the sums."""

    def write(context, builder, signature, args):
        whole = ir.VectorType(ir.IntType(32), WIDE)
        bits = builder.shl(builder.bitcast(args[0], whole), ir.Constant(whole, [23] * WIDE))
        return builder.bitcast(builder.add(bits, ir.Constant(whole, [127 << 23] * WIDE)), _FLOATS)

    return _LANES(_LANES), write


@compiled
def exponential(x):
    """e to the power of each of the sixteen, with an error of about one unit in the last place.

    x is n ln 2 and a rest that is at most half of ln 2, so the result is two to the power n, times e to the power of
    the rest, for which the first terms of its series are enough. Below -87 and above 88 float32 could not hold the
    result: it is as at these ends.
    """
    x = within(x, spread(np.float32(-87)), spread(np.float32(88)))
    shifted = multiply_add(x, spread(np.float32(1 / np.log(2))), spread(ROUND))
    n = plus(shifted, spread(-ROUND))
    rest = multiply_add(n, spread(-_LN2_REST), multiply_add(n, spread(-_LN2), x))
    series = zeros()
    for coefficient in _SERIES:
        series = multiply_add(series, rest, spread(coefficient))
    return times(series, power_of_two(shifted))


@intrinsic
def count_up(context, array):
    """Add 1 to the first number of an array, in one step for all threads; returns what it was."""

    def write(context, builder, signature, args):
        return builder.atomic_rmw("add", _first(context, builder, signature.args[0], args[0]), _ONE, "seq_cst")

    return types.int64(array), write


@intrinsic
def counted(context, array):
    """The first number of an array, as the last thread has left it."""

    def write(context, builder, signature, args):
        return builder.load_atomic(_first(context, builder, signature.args[0], args[0]), "seq_cst", 8)

    return types.int64(array), write


@intrinsic
def give_way(context):
    """Let another thread have this core, if one waits for it."""

    def write(context, builder, signature, args):
        if CAN_GIVE_WAY:
            kind = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), write


def _first(context, builder, kind, array):
    return context.make_array(kind)(context, builder, array).data


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
