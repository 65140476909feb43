"""The exercises of chapter 2: predicting a run, the longest loop, log-probabilities, how wrong greedy can be.

Functions are tried on tiny random models. The right result is computed separately, without a cache.
"""

import functools
import itertools
import math
from collections.abc import Mapping

import torch

from ...decoders.greedy import greedy
from ...model.lm import LM
from ...model.table import TableLM
from ...running.decoding import run
from .answers import expect, filled, judge_number
from .judge import Exercise, checker
from .verdicts import Ended, Verdict, right, wrong

MOST_SEQUENCES = 20_000  # most that a counterexample may have: enough for any that can be worked out by hand


@checker
def check_prediction(prediction, lm, prompt, max_new_tokens) -> Verdict:
    """Judge a prediction of ``run(greedy(lm, prompt), max_new_tokens)``."""
    prediction = filled(prediction, ("tokens", "target_calls", "stopped"))
    trace = run(greedy(lm, prompt), max_new_tokens)
    tokens, stopped, said = len(trace.tokens), trace.stopped, prediction["stopped"]
    if said != stopped:
        why = "greedy reaches a stop token first" if stopped == "stop" else "greedy does not reach a stop token"
        return wrong(f"It is not {said!r}: {why}, so the run ends with {stopped!r}.")
    mistakes = {
        max_new_tokens: f"{max_new_tokens} is the budget, the largest number there may be. This run ends earlier."
    }
    if stopped == "stop":
        mistakes[tokens - 1] = "You left the stop token out. It is a token too, the last one in trace.tokens."
        mistakes[tokens + 1] = "One too many: nothing comes after the stop token, and the prompt's tokens are not new."
    hint = "That is not the number of new tokens. Follow greedy's choices one by one."
    expect(prediction["tokens"], tokens, mistakes, otherwise=hint)
    mistakes = {
        tokens + 1: "One call too many: the prompt's call gives the first new token, and the last one is never fed.",
        tokens - 1: "One call too few: the prompt's call counts too. Every new token takes one call.",
        1: "One call gives one token's distribution. The next token needs another call, with this token as input.",
    }
    why = f"The run writes {trace.text!r}: {tokens} tokens, {trace.target_calls} calls, and it ends with {stopped!r}."
    return judge_number(prediction["target_calls"], trace.target_calls, mistakes, why=why)


# ----------------------------------------------------------------------------------------------------------------------
# The log-probability of a continuation


@functools.cache
def _small_model(seed: int):
    """A random two-layer Llama with 13 tokens. It understands nothing, but its output depends on the context."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=13, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, initializer_range=0.4, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def rows_of(model, tokens) -> torch.Tensor:
    """All rows of logits of a text, computed without a key-value cache: (tokens, vocab), float64."""
    return _rows_of(model, tuple(tokens))


@functools.lru_cache(maxsize=500)
def _rows_of(model, tokens) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens])).logits[0].double()


def log_probs_of(lm, prompt, tokens, late=0, of=lambda rows: rows.log_softmax(-1)):
    """The log-probability of each token after all before it; `late` takes a later row, `of` another function."""
    rows = of(rows_of(lm.model, [*prompt, *tokens]))
    return [float(rows[len(prompt) + i - 1 + late, token]) for i, token in enumerate(tokens)]


def log_probability(lm, prompt, tokens):
    return math.fsum(log_probs_of(lm, prompt, tokens))


check_log_probability = Exercise(
    """Judge ``my_log_probability(lm, prompt, tokens)``: the log-probability of `tokens` after `prompt`.""",
    # The model is made when the first answer is checked, not when the chapter imports its exercises.
    lambda: [(LM(_small_model(seed=3)), *texts) for texts in (([2, 7, 1, 8], [12, 8, 1]), ([5, 3], [11, 3, 6, 10, 3]))],
    log_probability,
    {
        "You returned a probability, or you added probabilities. The probabilities of a sequence multiply, so add "
        "their logarithms.": (
            lambda *given: math.exp(log_probability(*given)),
            lambda *given: math.fsum(map(math.exp, log_probs_of(*given))),
            lambda *given: math.log(math.fsum(map(math.exp, log_probs_of(*given)))),
        ),
        "The sign is wrong: the logarithm of a probability is never above 0.": lambda *given: -log_probability(*given),
        "You took the mean over the tokens. The log-probability of the sequence is their sum.": (
            lambda lm, prompt, tokens: log_probability(lm, prompt, tokens) / len(tokens)
        ),
        "You are one row late: row i predicts the token after token i, so look up token i + 1 in it.": (
            lambda lm, prompt, tokens: math.fsum(log_probs_of(lm, prompt, tokens, late=1))
        ),
        "You counted the prompt's tokens too. The prompt is given, so only the tokens after it count.": (
            lambda lm, prompt, tokens: log_probability(lm, prompt[:1], [*prompt[1:], *tokens])
        ),
    },
    show=lambda lm, prompt, tokens: f"the tokens {tokens} after the prompt {prompt}",
    tolerance=1e-4,
    why="Each row predicts the token after it, and the log-probabilities of the tokens add up.",
    hint="Take log_softmax over the vocabulary. Then look up each new token in the row before it.",
)


# ----------------------------------------------------------------------------------------------------------------------
# Best at each step, but not in the end


@checker
def check_counterexample(table, prompt="a", length=3, factor=3.0) -> Verdict:
    """Judge a table on which some sequence is at least `factor` times as probable as greedy's."""
    table, start = table_and_prompt(table, prompt, length)
    chosen = _choices(table, start, length)
    sequences = all_sequences(table, start, length)
    best, own = max(sequences, key=sequences.__getitem__), sequences[tuple(chosen)]
    top, written, better = sequences[best], table.decode(chosen), table.decode(best)
    if list(best) == chosen:
        return wrong(
            f"Here greedy is right: of all {len(sequences)} sequences, {written!r} is the most likely, with "
            f"probability {own:.3g}. After greedy's first token, spread the probability over several tokens. After "
            "another first token, make one token nearly certain."
        )
    facts = f"Greedy writes {written!r} with probability {own:.3g}, and {better!r} has {top:.3g}: {top / own:.2f} times"
    if top >= factor * own * (1 - 1e-9):
        return right(f"{facts} as much.")
    fork = next(i for i in range(length) if chosen[i] != best[i])
    first, other = (math.exp(float(table.log_probs([*start, *best[:fork]])[t[fork]])) for t in (chosen, best))
    return wrong(
        f"{facts} as much, but you need {factor:g} times. The two texts differ from new token {fork + 1} on, where "
        f"greedy's token has {first:.2f} and the other {other:.2f}. Bring these two closer together, spread the "
        "probability after greedy's token over more tokens, or make the continuation of the other token more certain."
    )


@checker
def check_cycle(table, prompt="aa", period=4) -> Verdict:
    """Judge a table over two tokens with which greedy repeats itself every `period` tokens, and not sooner."""
    table, start = table_and_prompt(table, prompt, 1, vocab="ab")
    chosen = _choices(table, start, 48)
    text, tail = table.decode(chosen), chosen[-24:]
    found = next((n for n in range(1, 24) if tail[n:] == tail[:-n]), len(tail))
    shown = f"Greedy writes {text[:16]!r} ..."
    if found == period:
        return right(f"{shown}: the same {period} tokens again and again. All four pairs of tokens occur in them.")
    after = f"and repeats itself every {found} tokens" if found > 1 else "and repeats one token"
    return wrong(
        f"{shown} {after}. The next token depends on the last two, so let greedy visit all four pairs (aa, ab, ba, bb) "
        "before one of them occurs again."
    )


def _choices(table, start, length) -> list[int]:
    """The tokens that greedy chooses; the checker ends with a ✗ if two are equally likely."""
    chosen = []
    for _ in range(length):
        row = table.log_probs([*start, *chosen])
        best, second = row.topk(2).values.tolist() if table.vocab_size > 1 else (float(row[0]), -math.inf)
        if math.isclose(best, second, abs_tol=1e-9):
            after = table.decode([*start, *chosen])
            raise Ended(
                wrong(f"After {after!r}, two tokens are equally likely. Make one of them a little more likely.")
            )
        chosen.append(int(row.argmax()))
    return chosen


def table_and_prompt(table, prompt, length, vocab="abc") -> tuple[TableLM, list[int]]:
    """A reader's table as a `TableLM`, and the prompt's tokens; if it is not a table, the checker ends with a ✗."""
    if isinstance(table, Mapping):
        try:
            table = TableLM(table, list(vocab))
        except (ValueError, TypeError) as error:
            raise Ended(wrong(f"That is not a table of probabilities: {error}.")) from error
    if not isinstance(table, TableLM):
        raise Ended(wrong(f"Expected a dict of probabilities or a TableLM, got {table!r}."))
    if table.vocab_size**length > MOST_SEQUENCES:
        said = (
            f"{table.vocab_size} tokens make {table.vocab_size**length} sequences, too many: use fewer, three are "
            "enough."
        )
        raise Ended(wrong(said))
    try:
        return table, table.prompt_tokens(prompt)
    except ValueError as error:
        raise Ended(wrong(f"The prompt is {prompt!r}, and your table cannot read it: {error}.")) from error


def all_sequences(table, start, length) -> dict[tuple[int, ...], float]:
    """The probability of every sequence that is not impossible."""
    sequences = {}
    for tokens in itertools.product(range(table.vocab_size), repeat=length):
        log_prob = sum(float(table.log_probs([*start, *tokens[:i]])[token]) for i, token in enumerate(tokens))
        if log_prob > -math.inf:
            sequences[tokens] = math.exp(log_prob)
    return sequences


def log_odds(share):
    return math.log(share / (1 - share))


check_temperature = Exercise(
    """Judge ``my_temperature(margin, share)``: the temperature that gives the token ahead by `margin` this `share`.""",
    [(2.0, 0.99), (0.3, 0.75)],
    lambda margin, share: margin / log_odds(share),
    {
        "That is the temperature's inverse: the logits are divided by the temperature.": (
            lambda margin, share: log_odds(share) / margin
        ),
        "The sign is wrong: the odds are share / (1 - share), not the other way round.": (
            lambda margin, share: -margin / log_odds(share)
        ),
        "You multiplied. Divide the margin by the logarithm of the odds.": lambda margin, share: (
            margin * log_odds(share)
        ),
        "You divided by the odds themselves. The odds equal exp(margin / temperature), so take a logarithm first.": (
            lambda margin, share: margin * (1 - share) / share
        ),
        "The margin determines the ratio of the two probabilities: take the logarithm of share / (1 - share).": (
            lambda margin, share: margin / math.log(share),
            lambda margin, share: -margin / math.log(share),
            lambda margin, share: -margin / math.log(1 - share),
        ),
    },
    why="The margin divided by the temperature is the logarithm of the odds.",
    hint="Solve exp(margin / t) = share / (1 - share) for t.",
)
