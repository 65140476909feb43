"""Calculate what a call of a language model should cost, and what speculative decoding should gain.

These are plain formulas on plain numbers, without a model. A decoder-only transformer is described by the number of
parameters in its matrices, the number of its layers, the width of its queries (heads × head size) and the width of its
keys (key-value heads × head size). `cost.model_size` finds these numbers for a model, and `cost` measures what is
calculated here. Only matrix products are counted: norms, activations and positions are a few per cent.

The formulas for speculative decoding need two things: alpha, the probability that a drafted token is accepted, and the
costs of calls. They assume that acceptances are independent of each other, which is only approximately true of real
texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..arguments import check_whole_number, is_number, takes_iterators

# ----------------------------------------------------------------------------------------------------------------------
# What a call costs


def call_operations(parameters: int, tokens: int, *, cached: int = 0, layers: int = 0, query_width: int = 0) -> int:
    """Floating-point operations of one call.

    For each new token, every parameter of the matrices takes one multiplication and one addition. The attention of each
    layer also combines the token with the key and the value of every token before it and of itself. For each of these
    tokens it takes 2 operations per number of the query with the key, and as many with the value.

    Parameters
    ----------
    parameters : int
        Parameters of all matrices that a token is multiplied with, including the output head. The input embedding does
        not count, because it is only looked up.
    tokens : int
        New tokens in the call.
    cached : int
        Tokens before them, already in the cache.
    layers, query_width : int
        Number of layers; numbers in one token's query in one layer.

    Returns
    -------
    int
        This assumes that logits are computed for every new token.

    Examples
    --------
    >>> call_operations(10, tokens=3)
    60
    >>> call_operations(0, tokens=1, cached=9, layers=2, query_width=8)     # 10 keys and 10 values in each layer
    640
    """
    pairs = tokens * cached + tokens * (tokens + 1) // 2  # pairs of tokens of which one attends to the other
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

    The matrices are read once, however many tokens are in the call. That is why checking five tokens costs little more
    than generating one. The keys and values of earlier tokens are read, and those of the new tokens are written. The
    outputs of the layers are left out, because they are small and stay in the processor's caches.

    Parameters
    ----------
    parameters, tokens, cached, layers
        As for `call_operations`.
    key_width : int
        Numbers in one token's key in one layer (key-value heads × head size). Its value has the same size.
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

    A processor has a limit of its own: its peak operations per second divided by its memory bandwidth. If the intensity
    of a call is below this limit, the call has to wait for memory. A call with one token in float32 has an intensity of
    about 0.5 for any model.

    Raises
    ------
    ValueError
        If no bytes are moved.
    """
    if bytes_moved <= 0:
        raise ValueError(f"bytes_moved must be above 0, got {bytes_moved}")
    return operations / bytes_moved


def roofline_seconds(operations: float, bytes_moved: float, *, peak_operations: float, bandwidth: float) -> float:
    """The shortest time a call can take: that of moving its bytes or of doing its operations, whichever is longer.

    This is the "roofline" model of Williams, Waterman and Patterson (2009).

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
    """The probability that a token drawn from the draft's distribution is accepted: Σ min(p, q).

    This is 1 minus the total variation distance of the two. Its mean over the positions of a text is alpha.

    Source: Leviathan et al. (2023), theorem 3.5 and corollary 3.6.

    Parameters
    ----------
    target_probs, draft_probs : sequences of floats, of one length
        Probabilities of all tokens at one position. Each sequence sums to 1.

    Examples
    --------
    >>> acceptance_rate([0.5, 0.5], [0.75, 0.25])
    0.75
    """
    if len(target_probs) != len(draft_probs):
        raise ValueError(f"both must be as long as the vocabulary, got {len(target_probs)} and {len(draft_probs)}")
    return math.fsum(min(float(p), float(q)) for p, q in zip(target_probs, draft_probs, strict=True))


def expected_tokens(alpha: float, gamma: int) -> float:
    """The average number of tokens from one round: 1 + α + α² + ... + α^γ = (1 - α^(γ+1)) / (1 - α).

    The 1 stands for the token that the target adds. The term α^i is the probability that the i-th drafted token is
    accepted, together with all before it.

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
        If `alpha` is not a probability, or `gamma` is not a whole number of at least 0.

    Examples
    --------
    >>> expected_tokens(0.5, 2)
    1.75
    """
    _check_speculation(alpha, gamma)
    # Summed term by term: near alpha = 1 the closed form divides one rounding error by another.
    return math.fsum(alpha**place for place in range(gamma + 1))


def walltime_factor(alpha: float, gamma: int, c: float) -> float:
    """How much faster speculative decoding is than plain decoding, if a target call takes the same time for any width.

    (1 - α^(γ+1)) / ((1 - α)(γc + 1)): a round gives `expected_tokens`, and takes γ draft calls and one target call.

    Source: Leviathan et al. (2023), theorem 3.8. If the time depends on the number of tokens in the call, use
    `measured_factor`.

    Parameters
    ----------
    alpha, gamma
        As for `expected_tokens`.
    c : float
        Time of one draft call divided by that of one target call, 0 or more.

    Examples
    --------
    >>> walltime_factor(0.5, 2, 0.0), walltime_factor(0.0, 4, 0.25)
    (1.75, 0.5)
    """
    _check_not_negative("c, the time of a draft call over that of a target call,", c)
    return expected_tokens(alpha, gamma) / (gamma * c + 1)


@takes_iterators
def measured_factor(alpha: float, gamma: int, call_seconds: Sequence[float], draft_seconds: float) -> float:
    """How much faster speculative decoding is than plain decoding, from measured times of calls.

    Like `walltime_factor`, but the time of a target call depends on how many tokens it has. A round takes γ draft calls
    and one target call of γ + 1 tokens, and gives `expected_tokens`. Plain decoding takes a call of one token for each
    token.

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
        If `call_seconds` has no time for this `gamma`, or a time is not above 0.

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
    """Estimate alpha from rounds: the number of accepted tokens divided by the number of checked tokens.

    Tokens after the first rejected one are not checked. So if a round drafted more tokens than it accepted, it checked
    one more than it accepted. If acceptances are independent, this is the maximum likelihood estimate of alpha.
    `Trace.acceptance` is the same for a run, whose drafts may be trees.

    Parameters
    ----------
    rounds : sequence of (drafted, accepted)

    Returns
    -------
    float
        NaN if nothing was drafted.

    Examples
    --------
    >>> estimated_alpha([(4, 4), (4, 2)])       # 4 of 4, then 2 of 3
    0.8571428571428571
    """
    checked = sum(min(accepted + 1, drafted) for drafted, accepted in rounds)
    return sum(accepted for _, accepted in rounds) / checked if checked else math.nan


@takes_iterators
def rounds_factor(
    rounds: Sequence[tuple[int, int, int]], call_seconds: Sequence[float], draft_seconds: float = 0.0
) -> float:
    """How much faster given rounds are than plain decoding, from measured times of calls.

    Like `measured_factor`, but for actual rounds, whose drafts may have different lengths or be trees. A round takes
    its draft calls and one target call, which has one token more than were drafted. The calls that read the prompt are
    left out, because both methods need them.

    Parameters
    ----------
    rounds : sequence of (drafted, draft calls, emitted)
        For each round: the number of drafted tokens, the number of calls that drafted them, and the number of new
        tokens.
    call_seconds : sequence of floats
        Time of a target call with 1, 2, 3, ... tokens.
    draft_seconds : float
        Time of a draft call; 0 if the tokens were looked up.

    Raises
    ------
    ValueError
        If `call_seconds` has no time for one of the drafts, if there are no rounds, or if a time is not above 0.

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
    """The γ up to `most` with the highest `walltime_factor`; the smallest of equals, and 0 if no γ beats plain
    decoding.

    Drafting pays when alpha > c (Leviathan et al. 2023, corollary 3.9).

    Examples
    --------
    >>> best_gamma(0.8, 0.05, most=16), best_gamma(0.1, 0.2, most=16)
    (8, 0)
    """
    return _best(lambda gamma: walltime_factor(alpha, gamma, c), most)


@takes_iterators
def best_measured_gamma(alpha: float, call_seconds: Sequence[float], draft_seconds: float, most: int) -> int:
    """Like `best_gamma`, but with `measured_factor`. `call_seconds` must go up to ``most + 1`` tokens.

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
