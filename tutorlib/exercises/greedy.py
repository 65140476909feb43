"""Checkers for chapter 2: greedy decoding, sequence probabilities, and where locally best is not globally best.

The models that answers are tried on are random and tiny, made anew for each check; what is right is computed beside the
answer, without a cache, and so are the usual mistakes: an answer that comes to one of them is told which.
"""

import contextlib
import functools
import itertools
import math
from collections.abc import Mapping

import torch

from ..decoders.greedy import greedy
from ..lm import LM
from ..run import run
from ..table import TableLM
from . import NOT_YET, Verdict, attempt, checker, compare, number, right, wrong

# Sequences that a counterexample may have: enough for any that can be thought out by hand.
MOST_SEQUENCES = 20_000


@checker
def check_prediction(prediction, lm, prompt, max_new_tokens) -> Verdict:
    """Judge what was predicted of ``run(greedy(lm, prompt), max_new_tokens)``.

    Parameters
    ----------
    prediction : dict
        With the keys "tokens" (how many new ones), "target_calls" and "stopped".
    """
    keys = ("tokens", "target_calls", "stopped")
    if not isinstance(prediction, Mapping) or set(prediction) != set(keys):
        return wrong(f"Expected a dict with the keys {', '.join(keys)}; got {prediction!r}.")
    if any(prediction[key] in (None, ...) for key in keys):
        return Verdict(None, NOT_YET)
    trace = run(greedy(lm, prompt), max_new_tokens)
    tokens, stopped = len(trace.tokens), trace.stopped
    if prediction["stopped"] != stopped:
        said = prediction["stopped"]
        if stopped == "stop":
            return wrong(f"Not {said!r}: greedy comes to a stop token first, so the run ends with 'stop'.")
        return wrong(f"Not {said!r}: no stop token comes, so the run ends with {stopped!r}.")
    mistakes = {max_new_tokens: f"{max_new_tokens} is the budget, the most there may be; this run ends before."}
    if stopped == "stop":
        mistakes[tokens - 1] = "You left the stop token out: it is a token, too, and the last of trace.tokens."
        mistakes[tokens + 1] = "That is one too many: nothing comes after the stop token, and the prompt is not new."
    found = compare(prediction["tokens"], tokens, mistakes, otherwise="That is not the number of new tokens.")
    if not found.ok:
        return found
    mistakes = {
        tokens + 1: "One call too many: the prompt's call gives the first new token, and the last is never fed.",
        tokens - 1: "One call too few: the prompt's call counts, too. Every token comes out of one call.",
        1: "One call gives one token's distribution. The next needs that token as input: another call.",
    }
    text = lm.decode(trace.tokens)
    why = f"The run writes {text!r}: {tokens} tokens, {trace.target_calls} calls, stopped by {stopped!r}."
    return compare(prediction["target_calls"], trace.target_calls, mistakes, why=why)


# ----------------------------------------------------------------------------------------------------------------------
# Greedy with a cache


@checker
def check_greedy(my_greedy) -> Verdict:
    """Judge a function ``my_greedy(model, prompt, max_new_tokens, stop_tokens)`` that returns the new tokens.

    It is given a transformers model, a list of ids, a budget, and a tuple of ids, and is to use the key-value cache.
    The stop token, where one comes, is the last of the tokens.
    """
    model = _small_model(seed=2)
    prompt, budget = [3, 1, 4, 1, 5, 9], 9
    tokens = _greedy_without_cache(model, prompt, budget)
    # The last token that has not been there before stops the second run: as late as can be.
    end = max(place for place, token in enumerate(tokens) if token not in tokens[:place])
    for stop in ((), (tokens[end],)):
        expected = tokens[: end + 1] if stop else tokens
        given, calls = list(prompt), []
        with _watched(model, calls):
            answer = attempt(my_greedy, model, given, budget, stop)
        if given != prompt:
            return wrong("Your function changed the list that holds the prompt: copy it first, list(prompt).")
        found = _judge_tokens(answer, expected, model, prompt, budget, stop, calls)
        if not found.ok:
            return found
    return found


def _judge_tokens(answer, expected, model, prompt, budget, stop, calls) -> Verdict:
    """Look at the tokens of one run, and at the calls that it made."""
    try:
        answer = [int(token) for token in answer]
    except (TypeError, ValueError):
        return wrong(f"Expected a list of token ids, got {answer!r}.")
    if not calls:
        return wrong("Your function never called the model: model(input_ids=..., past_key_values=..., use_cache=True).")
    if answer[: len(prompt)] == prompt and answer[len(prompt) :] == expected:
        return wrong("Give back the new tokens only: yours begin with the prompt.")
    # How the model was called says more than the tokens: it is what goes wrong first.
    for number_of_call, (fed, cached) in enumerate(calls[1:], start=2):
        if cached and fed > 1:
            return wrong(
                f"Call {number_of_call} fed {fed} tokens to a cache that already held {cached}: what is in the cache "
                "is then there twice. Feed only the token chosen last."
            )
        if not cached and fed == 1:
            return wrong(
                f"Call {number_of_call} fed one token and no cache, so the model had forgotten everything before it: "
                "pass past_key_values=output.past_key_values of the call before."
            )
    if answer != expected:
        return _judge_wrong_tokens(answer, expected, model, prompt, budget, stop)
    computed, enough = sum(fed for fed, _ in calls), len(prompt) + len(expected) - 1
    if len(calls) > 1 and not any(cached for _, cached in calls):
        return wrong(
            f"The tokens are right, but there is no cache: your calls computed {computed} positions, {enough} are "
            "enough. Keep output.past_key_values, pass it to the next call, and feed only the new token."
        )
    tokens = f"{len(expected)} tokens in {len(calls)} calls, {computed} positions computed"
    if len(calls) > len(expected):
        return right(f"{tokens}. One call could be saved: nobody asks what follows the last token.")
    return right(f"{tokens}: each computed once.")


def _judge_wrong_tokens(answer, expected, model, prompt, budget, stop) -> Verdict:
    if stop and answer == expected[:-1]:
        return wrong("You dropped the stop token: it was chosen like any other, and is the last of the new tokens.")
    if stop and answer[: len(expected)] == expected:
        return wrong(f"Your function goes on after the stop token {stop[0]}: {answer[len(expected) :]} is too much.")
    if not stop and answer == expected[:-1]:
        return wrong(f"One token too few: the budget is {budget}, and the first token comes from the prompt's call.")
    if not stop and len(answer) > budget and answer[:budget] == expected:
        return wrong(f"{len(answer)} tokens, but the budget is {budget}.")
    for choose, message in _WRONG_CHOICES:
        mistaken = _greedy_without_cache(model, prompt, budget, choose)
        if answer and answer == mistaken[: len(answer)]:
            return wrong(message)
    place = next((i for i, (own, best) in enumerate(zip(answer, expected, strict=False)) if own != best), None)
    if place is None:
        return wrong(f"Expected {len(expected)} tokens, got {len(answer)}: {answer}.")
    return wrong(
        f"New token number {place + 1} is {answer[place]}, but the likeliest after {[*prompt, *expected[:place]]} is "
        f"{expected[place]}."
    )


_FIRST_ROW = (
    "You read the first row of logits: it says what follows the prompt's first token. What follows the whole text "
    "stands in the last one, logits[0, -1]."
)
# (rows of logits, whether they are the prompt's) -> the token that a mistaken loop would choose
_WRONG_CHOICES = (
    (lambda rows, first: rows[0 if first else -1].argmax(), _FIRST_ROW),
    (lambda rows, first: rows[0].argmax(), _FIRST_ROW),
    (
        lambda rows, first: rows[-2 if first else -1].argmax(),
        "You read the row before the last: it says what follows the last token but one. Take logits[0, -1].",
    ),
    (lambda rows, first: rows[-1].argmin(), "You took the least likely token: argmin where argmax is wanted."),
    (lambda rows, first: rows[-1].topk(2).indices[1], "You took the second likeliest token each time."),
)


def _greedy_without_cache(model, prompt, count, choose=lambda rows, first: rows[-1].argmax()) -> list[int]:
    tokens = list(prompt)
    for step in range(count):
        tokens.append(int(choose(_rows(model, tokens), step == 0)))
    return tokens[len(prompt) :]


@contextlib.contextmanager
def _watched(model, calls: list):
    """While this is open, each call of the model is noted in `calls` as (tokens fed, tokens in the cache before)."""

    def note(_, args, kwargs):
        fed = args[0] if args else kwargs.get("input_ids")
        cache = kwargs.get("past_key_values")
        calls.append((0 if fed is None else fed.shape[-1], 0 if cache is None else int(cache.get_seq_length())))

    def refuse(*_, **__):
        raise RuntimeError("model.generate is what your loop is compared with: write the loop")

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    model.generate = refuse
    try:
        yield
    finally:
        hook.remove()
        del model.generate


# ----------------------------------------------------------------------------------------------------------------------
# The log-probability of a continuation


@checker
def check_log_probability(my_log_probability) -> Verdict:
    """Judge a function ``my_log_probability(lm, prompt, tokens)``: the log-probability of `tokens` after `prompt`."""
    lm = LM(_small_model(seed=3))
    for prompt, tokens in (([2, 7, 1, 8], [12, 8, 1]), ([5, 3], [11, 3, 6, 10, 3])):
        answer = number(attempt(my_log_probability, lm, list(prompt), list(tokens)))
        expected, mistakes = _log_probability_and_mistakes(lm.model, prompt, tokens)
        found = compare(
            answer,
            expected,
            mistakes,
            tolerance=1e-4,
            why=f"The tokens {tokens} after {prompt}: {expected:.3f}, a probability of {math.exp(expected):.2g}.",
            otherwise=f"For the tokens {tokens} after the prompt {prompt} expected {expected:.4f}.",
        )
        if not found.ok:
            return found
    return found


def _log_probability_and_mistakes(model, prompt, tokens) -> tuple[float, dict[float, str]]:
    logits = _rows(model, [*prompt, *tokens])
    log_probs, start = logits.log_softmax(-1), len(prompt)
    after = [float(log_probs[start + i - 1, token]) for i, token in enumerate(tokens)]  # each given all before it
    before = [float(log_probs[i, token]) for i, token in enumerate(prompt[1:])]
    late = [float(log_probs[start + i, token]) for i, token in enumerate(tokens)]
    raw = [float(logits[start + i - 1, token]) for i, token in enumerate(tokens)]
    down = logits[start - 1 : start - 1 + len(tokens)].log_softmax(0)
    down_all = logits[start - 1 :].log_softmax(0)
    best = [float(log_probs[start + i - 1].max()) for i in range(len(tokens))]
    total, probs = math.fsum(after), [math.exp(value) for value in after]
    return total, {
        math.exp(total): "That is the probability itself. Take its logarithm: a sum of log-probabilities.",
        math.fsum(probs): "You added probabilities. Probabilities of a sequence multiply: add their logarithms.",
        math.log(math.fsum(probs)): "You added, then took the logarithm. Take it of each probability, then add.",
        -total: "The sign is wrong: the logarithm of a probability is never above 0. (Yours is the surprise, -log p.)",
        total / math.log(2): "You used logarithms to base 2. In this book they are natural ones.",
        total / math.log(10): "You used logarithms to base 10. In this book they are natural ones.",
        total / len(tokens): "You took the mean over the tokens. The sequence's log-probability is their sum.",
        math.exp(-total / len(tokens)): "That is the perplexity: exp of minus the mean. The sum itself was wanted.",
        total + math.fsum(before): "You counted the prompt's tokens, too. It is given: only what follows it counts.",
        math.fsum(late): "You are one row late: row i is what follows token i, so it judges token i + 1, not itself.",
        math.fsum(after[1:]): "The first new token is missing: the row of the prompt's last token judges it.",
        math.fsum(after[:-1]): "The last token is missing.",
        math.fsum(raw): "You added raw logits. Only after log_softmax are they log-probabilities.",
        math.fsum(float(down[i, token]) for i, token in enumerate(tokens)): _WRONG_AXIS,
        math.fsum(float(down_all[i, token]) for i, token in enumerate(tokens)): _WRONG_AXIS,
        math.fsum(best): "You added each row's largest value. That is what greedy would get; look up the tokens given.",
    }


_WRONG_AXIS = "Your softmax runs over the positions. It must run over the vocabulary: log_softmax(-1)."


# ----------------------------------------------------------------------------------------------------------------------
# Locally best, globally not


@checker
def check_counterexample(table, prompt="a", length=3, factor=3.0) -> Verdict:
    """Judge a table on which some sequence is at least `factor` times as probable as greedy's.

    Parameters
    ----------
    table : dict or TableLM
        A dict becomes ``TableLM(table, ["a", "b", "c"])``.
    prompt : str
    length : int
        New tokens.
    """
    if isinstance(table, Mapping):
        try:
            table = TableLM(table, ["a", "b", "c"])
        except (ValueError, TypeError) as error:
            return wrong(f"That is not a table of probabilities: {error}.")
    if not isinstance(table, TableLM):
        return wrong(f"Expected a dict of probabilities or a TableLM, got {table!r}.")
    if table.vocab_size**length > MOST_SEQUENCES:
        return wrong(f"{table.vocab_size} tokens make {table.vocab_size**length} sequences: use fewer, three will do.")
    try:
        start = table.prompt_tokens(prompt)
    except ValueError as error:
        return wrong(f"The prompt is {prompt!r}, and your table cannot read it: {error}.")
    chosen, log_prob = [], 0.0
    for _ in range(length):
        row = table.log_probs([*start, *chosen])
        best, second = row.topk(2).values.tolist() if table.vocab_size > 1 else (float(row[0]), -math.inf)
        if math.isclose(best, second, abs_tol=1e-9):
            return wrong(
                f"After {table.decode([*start, *chosen])!r} two tokens are equally likely, so greedy's choice hangs on "
                "their ids. Make one of them a little likelier."
            )
        chosen.append(int(row.argmax()))
        log_prob += best
    sequences = _all_sequences(table, start, length)
    likeliest = max(sequences, key=sequences.get)
    own, top = math.exp(log_prob), sequences[likeliest]
    names = {"greedy": table.decode(chosen), "best": table.decode(likeliest)}
    facts = "greedy writes {greedy!r} with probability {own:.3g}, and {best!r} has {top:.3g}".format(
        **names, own=own, top=top
    )
    if list(likeliest) == chosen:
        first = math.exp(float(table.log_probs(start)[chosen[0]]))
        return wrong(
            f"Here greedy is right: of all {len(sequences)} sequences {names['greedy']!r} is the likeliest, with "
            f"{own:.3g}. Its first token has {first:.2f}. Let that choice lead to a place where the probability is "
            "spread thin, and another choice to one where it is not."
        )
    if top < factor * own * (1 - 1e-9):
        why = _why_short(table, start, chosen, likeliest)
        return wrong(f"{facts}: {top / own:.2f} times as much, {factor:g} are wanted. {why}")
    return right(f"{facts}: {top / own:.2f} times as much.".replace("greedy", "Greedy", 1))


def _why_short(table, start, chosen, likeliest) -> str:
    """What the likeliest sequence pays where it leaves greedy's, and what it gains after that."""

    def prob(tokens, i):
        return math.exp(float(table.log_probs([*start, *tokens[:i]])[tokens[i]]))

    fork = next(i for i in range(len(chosen)) if chosen[i] != likeliest[i])
    own, other = prob(chosen, fork), prob(likeliest, fork)
    own_rest = math.prod(prob(chosen, i) for i in range(fork + 1, len(chosen)))
    other_rest = math.prod(prob(likeliest, i) for i in range(fork + 1, len(chosen)))
    text = (
        f"At new token {fork + 1} greedy's has {own:.2f} and the other's {other:.2f}: the other pays a factor of "
        f"{own / other:.2f}; what comes after that has {other_rest:.2g}, and {own_rest:.2g} in greedy's"
    )
    if own / other > 1.5:
        return f"{text}. Bring the two first probabilities closer together."
    if other_rest < 0.9:
        return f"{text}. Make what follows the other token surer."
    return f"{text}. Spread what follows greedy's token over more tokens, or do so sooner."


def _all_sequences(table, start, length) -> dict[tuple[int, ...], float]:
    """The probability of every sequence that has any."""
    sequences = {}
    for tokens in itertools.product(range(table.vocab_size), repeat=length):
        log_prob = sum(float(table.log_probs([*start, *tokens[:i]])[token]) for i, token in enumerate(tokens))
        if log_prob > -math.inf:
            sequences[tokens] = math.exp(log_prob)
    return sequences


# ----------------------------------------------------------------------------------------------------------------------
# Greedy as a limit


@checker
def check_temperature(my_temperature) -> Verdict:
    """Judge a function ``my_temperature(margin, share)``.

    Of two tokens the likelier has a logit larger by `margin`; the function returns the temperature at which it is drawn
    with probability `share`.
    """
    for margin, share in ((2.0, 0.99), (0.3, 0.75)):
        answer = number(attempt(my_temperature, margin, share))
        odds = share / (1 - share)
        expected = margin / math.log(odds)
        mistakes = {
            1 / expected: "That is the temperature's inverse: the logits are divided by the temperature.",
            -expected: "The sign is wrong: the odds are share / (1 - share), not the other way round.",
            margin * math.log(odds): "You multiplied where the margin is to be divided by the logarithm of the odds.",
            margin / odds: "You divided by the odds themselves. It is exp(margin / temperature) that equals the odds.",
            margin / math.log10(odds): "You used log10. The softmax is made with exp: take the natural logarithm.",
            margin / math.log(share): _ODDS,
            -margin / math.log(share): _ODDS,
            -margin / math.log(1 - share): _ODDS,
            margin * share: "It is not a proportion: solve exp(margin / t) = share / (1 - share).",
        }
        found = compare(
            answer,
            expected,
            mistakes,
            why=f"At a margin of {margin:g} the likelier token has {share:g} at temperature {expected:.3f}.",
            otherwise=f"For margin {margin:g} and share {share:g}: solve exp(margin / t) = share / (1 - share) for t.",
        )
        if not found.ok:
            return found
    return found


_ODDS = "What the margin fixes is the ratio of both probabilities: take the logarithm of share / (1 - share)."


# ----------------------------------------------------------------------------------------------------------------------
# A model to try answers on


@functools.cache
def _small_model(seed: int):
    """A random two-layer Llama of 13 tokens: it understands nothing, but one context is unlike another to it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=13,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        initializer_range=0.4,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def _rows(model, tokens) -> torch.Tensor:
    """All rows of logits of a text, computed without a cache: (tokens, vocab), float64."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens])).logits[0].double()
