"""What a call of a language model should cost, by counting, and what speculation should gain, by calculating.

Plain formulas on plain numbers; no model is asked. A decoder-only transformer is described by how many parameters its
matrices have, and by its layers' attention: how many layers, how wide their queries are (heads × head size), and how
wide their keys are (key-value heads × head size). `tutorlib.cost` measures the same things, and `shape_of` there reads
these numbers off a model. Counted are the matrix products, which are all but a few per cent of the work: norms,
activations and positions are left out.

Of speculation, two things are known: alpha, the probability that a drafted token is accepted, and what calls cost. The
formulas take acceptances to be independent of each other, which real texts only come near to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .arguments import check_whole_number, is_number, takes_iterators

# ----------------------------------------------------------------------------------------------------------------------
# What a call costs


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


# ----------------------------------------------------------------------------------------------------------------------
# What speculation gains


@takes_iterators
def acceptance_rate(target_probs: Sequence[float], draft_probs: Sequence[float]) -> float:
    """How probable it is that a token drawn from the draft's distribution is accepted: Σ min(p, q).

    One less the total variation of the two. Its mean over the places of a text is alpha.

    Source: Leviathan et al. (2023), theorem 3.5 and corollary 3.6.

    Parameters
    ----------
    target_probs, draft_probs : sequences of floats, of one length
        Probabilities of every token at one place, each summing to 1.

    Examples
    --------
    >>> acceptance_rate([0.5, 0.5], [0.75, 0.25])
    0.75
    """
    if len(target_probs) != len(draft_probs):
        raise ValueError(f"both must be as long as the vocabulary, got {len(target_probs)} and {len(draft_probs)}")
    return math.fsum(min(float(p), float(q)) for p, q in zip(target_probs, draft_probs, strict=True))


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens that one round gives on average: 1 + α + α² + ... + α^γ = (1 - α^(γ+1)) / (1 - α).

    The token that the target adds itself is the 1; the i-th drafted one is there when it and all before it are
    accepted.

    Source: Leviathan et al. (2023), section 3.1, equation 1.

    Parameters
    ----------
    alpha : float
        The probability that a drafted token is accepted, from 0 (every round gives one token) to 1 (γ + 1).
    gamma : int
        Tokens drafted in each round, 0 or more.

    Raises
    ------
    ValueError
        For an `alpha` that is no probability or a `gamma` that is no whole number.

    Examples
    --------
    >>> expected_tokens(0.5, 2)
    1.75
    """
    _check_speculation(alpha, gamma)
    # Summed term by term: near alpha = 1 the closed form divides one rounding error by another.
    return math.fsum(alpha**place for place in range(gamma + 1))


def walltime_factor(alpha: float, gamma: int, c: float) -> float:
    """How much faster than the plain loop speculation is, if a target call costs the same however wide it is.

    (1 - α^(γ+1)) / ((1 - α)(γc + 1)): a round gives `expected_tokens`, and costs γ draft calls and one target call.

    Source: Leviathan et al. (2023), theorem 3.8. Where the width does matter, see `measured_factor`.

    Parameters
    ----------
    alpha, gamma
        As for `expected_tokens`.
    c : float
        Time of one draft call over that of one target call, 0 or more.

    Examples
    --------
    >>> walltime_factor(0.5, 2, 0.0), walltime_factor(0.0, 4, 0.25)
    (1.75, 0.5)
    """
    _check_not_negative("c, the time of a draft call over that of a target call,", c)
    return expected_tokens(alpha, gamma) / (gamma * c + 1)


def operations_factor(alpha: float, gamma: int, c_operations: float) -> float:
    """How many times the operations of the plain loop speculation does: (1 - α)(γĉ + γ + 1) / (1 - α^(γ+1)).

    A round computes γ + 1 tokens on the target and γ on the draft, and keeps `expected_tokens` of them. This is what
    speed is bought with: nothing where operations are free, all of it where they are not (a large batch, say).

    Source: Leviathan et al. (2023), theorem 3.11.

    Parameters
    ----------
    alpha, gamma
        As for `expected_tokens`.
    c_operations : float
        The paper's ĉ: the draft's operations for one token over the target's, 0 or more.

    Examples
    --------
    >>> operations_factor(1.0, 4, 0.0), operations_factor(0.0, 4, 0.0)
    (1.0, 5.0)
    """
    _check_not_negative("c_operations, the draft's operations over the target's,", c_operations)
    return (gamma * c_operations + gamma + 1) / expected_tokens(alpha, gamma)


@takes_iterators
def measured_factor(alpha: float, gamma: int, call_seconds: Sequence[float], draft_seconds: float) -> float:
    """How much faster than the plain loop speculation is, by what calls were measured to cost.

    `walltime_factor` with a target call that costs more, the more tokens are in it: a round takes γ draft calls and one
    target call of γ + 1 tokens, and gives `expected_tokens`; the plain loop takes a call of one token for each.

    Parameters
    ----------
    alpha, gamma
        As for `expected_tokens`.
    call_seconds : sequence of floats
        Time of a target call with 1, 2, 3, ... tokens, up to gamma + 1 at least. For instance
        ``cost.call_times(target, range(1, 10)).seconds``. Any unit will do.
    draft_seconds : float
        Time of a draft call with one token, in the same unit.

    Raises
    ------
    ValueError
        For a `gamma` that `call_seconds` says nothing of, and for times that are not above 0.

    Examples
    --------
    >>> measured_factor(0.8, 1, [2.0, 2.5], 0.5)
    1.2
    """
    tokens = expected_tokens(alpha, gamma)
    if len(call_seconds) < gamma + 1:
        raise ValueError(
            f"gamma = {gamma} needs the time of a call with {gamma + 1} tokens, but call_seconds has "
            f"{len(call_seconds)} times: those of 1, 2, 3, ... tokens"
        )
    _check_not_negative("draft_seconds", draft_seconds)
    one, wide = float(call_seconds[0]), float(call_seconds[gamma])
    if not (0 < one < math.inf and 0 < wide < math.inf):
        raise ValueError(f"call_seconds must be finite and above 0, got {one} for 1 token, {wide} for {gamma + 1}")
    return tokens * one / (gamma * draft_seconds + wide)


@takes_iterators
def estimated_alpha(rounds: Sequence[tuple[int, int]]) -> float:
    """Alpha as rounds show it: accepted tokens over judged ones.

    After the first token that is rejected the others are not judged. So a round that drafted more than it accepted
    judged one more than it accepted. This is the most likely alpha, if acceptances are independent. `Trace.acceptance`
    is the same for a run, whose drafts may be trees.

    Parameters
    ----------
    rounds : sequence of (drafted, accepted)

    Returns
    -------
    float
        NaN where nothing was drafted.

    Examples
    --------
    >>> estimated_alpha([(4, 4), (4, 2)])       # 4 of 4, then 2 of 3
    0.8571428571428571
    """
    judged = sum(min(accepted + 1, drafted) for drafted, accepted in rounds)
    return sum(accepted for _, accepted in rounds) / judged if judged else math.nan


@takes_iterators
def rounds_factor(
    rounds: Sequence[tuple[int, int, int]], call_seconds: Sequence[float], draft_seconds: float = 0.0
) -> float:
    """How much faster than the plain loop some rounds are, by what calls were measured to cost.

    Like `measured_factor`, but for rounds as they were, in which drafts may have differed in length, or been trees: a
    round takes its draft calls and one target call, of as many tokens as were drafted and one more. The prompt's calls,
    which both have, are left out.

    Parameters
    ----------
    rounds : sequence of (drafted, draft calls, emitted)
        How many tokens were drafted, in how many calls of what drafts them, and how many came out.
    call_seconds : sequence of floats
        Time of a target call with 1, 2, 3, ... tokens.
    draft_seconds : float
        Time of a draft call; 0 for tokens that were looked up.

    Raises
    ------
    ValueError
        For a draft that `call_seconds` says nothing of, no rounds, and times that are not above 0.

    Examples
    --------
    >>> rounds_factor([(1, 1, 2), (1, 1, 1)], [2.0, 2.5], 0.5)
    1.0
    """
    _check_not_negative("draft_seconds", draft_seconds)
    widest = max((drafted for drafted, _, _ in rounds), default=0) + 1
    if not rounds or len(call_seconds) < widest:
        raise ValueError(
            f"need rounds, and the time of a call with up to {widest} tokens; got {len(rounds)} rounds and "
            f"{len(call_seconds)} times: those of 1, 2, 3, ... tokens"
        )
    if not all(0 < float(seconds) < math.inf for seconds in call_seconds):
        raise ValueError(f"call_seconds must be finite and above 0, got {list(call_seconds)}")
    seconds = math.fsum(calls * draft_seconds + float(call_seconds[drafted]) for drafted, calls, _ in rounds)
    return sum(emitted for _, _, emitted in rounds) * float(call_seconds[0]) / seconds


def best_gamma(alpha: float, c: float, most: int) -> int:
    """The γ up to `most` with the highest `walltime_factor`; 0 where nothing beats the plain loop, the least of equals.

    Drafting pays when alpha > c (Leviathan et al. 2023, corollary 3.9).

    Examples
    --------
    >>> best_gamma(0.8, 0.05, most=16), best_gamma(0.1, 0.2, most=16)
    (8, 0)
    """
    return _best(lambda gamma: walltime_factor(alpha, gamma, c), most)


@takes_iterators
def best_measured_gamma(alpha: float, call_seconds: Sequence[float], draft_seconds: float, most: int) -> int:
    """The same by `measured_factor`, whose `call_seconds` must go up to ``most + 1`` tokens.

    Examples
    --------
    >>> best_measured_gamma(0.8, [1.0, 1.1, 1.2, 1.3, 9.0], 0.1, most=4)
    3
    """
    return _best(lambda gamma: measured_factor(alpha, gamma, call_seconds, draft_seconds), most)


def _best(factor: Callable[[int], float], most: int) -> int:
    check_whole_number(most, 0, "most is the largest gamma to look at")
    return max(range(most + 1), key=factor)


def _check_speculation(alpha, gamma) -> None:
    if not is_number(alpha) or not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be the probability that a drafted token is accepted, from 0 to 1, got {alpha!r}")
    check_whole_number(gamma, 0, "gamma is how many tokens are drafted in a round")


def _check_not_negative(name: str, value) -> None:
    if not is_number(value) or value < 0:
        raise ValueError(f"{name} must be a finite number of 0 or more, got {value!r}")
