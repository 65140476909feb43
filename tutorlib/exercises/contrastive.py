"""Checkers for chapter 6: the plausibility cut, the contrastive score, a step without gradients, and its relatives.

Answers are tried on rows made for the purpose, in which every usual mistake comes to another result than the right one;
an answer that equals one of them is told which. What is right is computed here from the papers' formulas, in numpy, not
with `tutorlib.decoders`.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from . import NOT_YET, Verdict, as_array, attempt, checker, compare, number, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# Where the cut falls


@checker
def check_thresholds(prediction, expert: Mapping[str, float], amateur: Mapping[str, float]) -> Verdict:
    """Judge at which alpha the cut begins to take out two tokens, told by their texts.

    Parameters
    ----------
    prediction : dict
        From the texts of tokens to the largest alpha that leaves them in.
    expert, amateur : mappings from texts to probabilities
        What the two models say; the amateur plays no part in the right answer.
    """
    if not isinstance(prediction, Mapping) or not set(prediction) <= set(expert):
        return wrong(f"Expected a dict with texts of tokens as its keys; got {prediction!r}.")
    if any(value in (None, ...) for value in prediction.values()):
        return Verdict(None, NOT_YET)
    best, best_of_amateur = max(expert.values()), max(amateur.values())
    for token, value in prediction.items():
        prob = expert[token]
        mistakes = {
            prob: "That is the token's own probability. The bar is alpha *times* the best one's, so divide by that.",
            prob / best_of_amateur: "You divided by the amateur's best probability: the cut asks the expert alone.",
            amateur[token] / best_of_amateur: "You asked the amateur twice: what is plausible the expert says.",
            amateur[token] / best: "You took the amateur's probability of the token: the cut asks the expert alone.",
            math.log(prob) / math.log(best): "You compared logarithms. The cut is a share of a probability.",
            best / prob: "The wrong way round: alpha is at most 1.",
            prob / sum(expert.values()) if sum(expert.values()) != 1 else math.nan: "The rest of the vocabulary has "
            "probability too, and the bar is relative to the best token, not to a sum.",
        }
        found = compare(
            value, prob / best, mistakes, tolerance=0.01, otherwise=f"({token}) Solve alpha · {best:g} = {prob:g}."
        )
        if not found.ok:
            return found
    return right("A token stays as long as alpha is at most its share of the expert's best probability.")


# ----------------------------------------------------------------------------------------------------------------------
# The cut, and the score

# Found by trying at random: every usual mistake keeps other tokens than the right cut, and than the other mistakes.
UNEVEN = (2.4, 2.5, 2.6, -0.5, -1.9, -3.9, 0.8, 1.4)  # at alpha 0.3
EXPERT = (2.7, -3.2, 1.4, -1.0, 1.7, 3.2, 2.5, 0.7)
AMATEUR = (2.1, 3.5, 0.4, -1.8, -0.9, -2.9, 3.3, 2.5)
ALPHAS = ((0.3, 1.0), (0.2, 0.5), (0.1, 2.0))  # with the amateur temperatures
POWERS_OF_TWO = (-2.0, 0.0, -1.0, -3.0)  # times log 2: every share is exact


@checker
def check_cut(my_cut) -> Verdict:
    """Judge ``my_cut(expert_logits, alpha)``: a boolean tensor, True for the plausible tokens.

    `expert_logits` is a tensor, shape (vocab,).
    """
    exact = np.array(POWERS_OF_TWO) * math.log(2)
    rows = np.array(UNEVEN), np.array(AMATEUR)
    cases = ((rows[0], 0.3), (rows[1], 0.6), (exact, 0.5), (rows[1], 0.0))
    for logits, alpha in cases:
        given = torch.tensor(logits)
        answer = attempt(my_cut, given, alpha)
        if not torch.equal(given, torch.tensor(logits)):
            return wrong("Your function changed the tensor that it was given: work on a copy, logits.clone().")
        answer = as_array(answer, (len(logits),), f"True or False for each of the {len(logits)} tokens")
        if not np.isin(answer, (0, 1)).all():
            return wrong("Expected True or False for each token; you gave back numbers. Which tokens stay?")
        kept, should = answer.astype(bool), _plausible(logits, alpha)
        if np.array_equal(kept, should):
            continue
        said = f"For alpha = {alpha:g} and these logits you keep {_ids(kept)}, and not {_ids(should)}."
        ties = np.isclose(_softmax(logits), alpha * _softmax(logits).max())
        if np.array_equal(kept | ties, should | ties):
            return wrong(f"A token that has exactly alpha times the best probability stays: `>=`, not `>`. {said}")
        for mistaken, message in CUT_MISTAKES:
            if np.array_equal(kept, mistaken(logits, alpha)):
                return wrong(f"{message} {said}")
        return wrong(said)
    return right("A share of the best token's probability: the surer the expert, the fewer tokens are plausible.")


def _softmax(logits) -> np.ndarray:
    weights = np.exp(logits - np.max(logits))
    return weights / weights.sum()


def _log_softmax(logits) -> np.ndarray:
    return logits - np.max(logits) - math.log(np.exp(logits - np.max(logits)).sum())


def _twice(logits) -> np.ndarray:
    """The logarithm of a softmax of a softmax."""
    return _log_softmax(_softmax(logits))


def _plausible(logits, alpha) -> np.ndarray:
    # A hair below, as exp and log round.
    return _softmax(logits) >= alpha * _softmax(logits).max() * (1 - 1e-12)


_LOG_CUT = (
    "You compare log p with alpha times the largest log p. The logarithm of alpha times a probability is a *sum*, "
    "log alpha + log p; and log p is negative, so that alpha times it is the higher bar."
)
_LOGIT_CUT = "You compare logits with alpha times the largest logit. Alpha is a share of a probability: softmax first."

CUT_MISTAKES: Sequence[tuple[Callable, str]] = (
    (lambda z, alpha: _log_softmax(z) >= alpha * _log_softmax(z).max(), _LOG_CUT),
    (lambda z, alpha: z >= alpha * z.max(), _LOGIT_CUT),
    (
        lambda z, alpha: _softmax(z) >= alpha,
        "You compare with alpha itself. The bar is relative: alpha times the probability of the likeliest token.",
    ),
    (
        lambda z, alpha: _softmax(_softmax(z)) >= alpha * _softmax(_softmax(z)).max(),
        "Nothing is cut. Did you take the softmax of a softmax? Its probabilities differ by a factor of e at most.",
    ),
    (lambda z, alpha: ~_plausible(z, alpha), "The mask is the wrong way round: True is what stays."),
    (
        lambda z, alpha: _softmax(z) >= (1 - alpha) * _softmax(z).max(),
        "Your bar is 1 - alpha times the best probability.",
    ),
    (
        lambda z, alpha: _softmax(z).cumsum() <= alpha,
        "A running sum makes top-p. This cut looks at one token at a time.",
    ),
)


@checker
def check_scores(my_scores) -> Verdict:
    """Judge ``my_scores(expert_logits, amateur_logits, alpha, amateur_temperature)``: a row of scores, shape (vocab,).

    Both logits are tensors, shape (vocab,). What the cut takes out scores -inf.
    """
    for alpha, heat in ALPHAS:
        given = [torch.tensor(EXPERT, dtype=torch.float64), torch.tensor(AMATEUR, dtype=torch.float64)]
        answer = attempt(my_scores, *given, alpha, heat)
        if [row.tolist() for row in given] != [list(EXPERT), list(AMATEUR)]:
            return wrong("Your function changed a tensor that it was given: work on a copy, logits.clone().")
        answer = as_array(answer, (len(EXPERT),), f"one score for each of the {len(EXPERT)} tokens")
        verdict = _judge_scores(answer, np.array(EXPERT), np.array(AMATEUR), alpha, heat)
        if not verdict.ok:
            return verdict
    return right("Of plausible tokens the one that the expert likes more than the amateur does; of others none.")


def _judge_scores(answer, expert, amateur, alpha, heat) -> Verdict:
    cut = _plausible(expert, alpha)
    ours, theirs = _log_softmax(expert), _log_softmax(amateur / heat)
    expected = np.where(cut, ours - theirs, -math.inf)
    if _same(answer, expected):
        return right("")
    if np.allclose(answer[cut], expected[cut]) and (answer[~cut] == 0).all():
        return wrong("What the cut takes out scores 0 with you. That may be the best score of all: use -inf.")
    if np.isnan(answer).any():
        return wrong(f"Some scores are NaN: {answer.round(3).tolist()}. -inf minus -inf is; cut last, not first.")
    # Differences of scores first, then the cut: either may be wrong.
    differences = [
        (ours - theirs, None),
        (theirs - ours, "The sign is wrong: you reward what the amateur likes. Expert minus amateur."),
        (
            _twice(expert) - _twice(amateur / heat),
            "You took the softmax twice before the logarithm (log_softmax of probabilities?). Once is enough: a second "
            "one makes everything nearly equal.",
        ),
        (_softmax(expert) - _softmax(amateur / heat), "You subtract probabilities. Subtract their logarithms."),
        (np.exp(ours - theirs), "That is the ratio of the probabilities. Take its logarithm: a difference of logs."),
        (
            expert - amateur / heat,
            "You subtract logits as they are. The choice is the same, for each row is off by a constant, but scores of "
            "different steps (in a beam search) cannot be added up: take log_softmax of both.",
        ),
        (ours, "You left out the amateur: that is the expert's log-probability."),
    ]
    if heat != 1:
        differences += [
            (_log_softmax(expert / heat) - _log_softmax(amateur), _ON_THE_EXPERT),
            (
                _log_softmax(expert / heat) - theirs,
                "You heated both models. The temperature is the amateur's alone.",
            ),
            (
                ours - _log_softmax(amateur * heat),
                "You multiplied by the temperature: logits are *divided* by it.",
            ),
            (
                ours - _log_softmax(amateur) / heat,
                "You divided log-probabilities by the temperature, and they no longer belong to a distribution: divide "
                "the logits, then take log_softmax.",
            ),
            (ours - _log_softmax(amateur), "The amateur temperature is missing."),
        ]
    cuts = [
        (cut, None),
        (
            _plausible(amateur, alpha),
            "You cut by what the *amateur* finds plausible. It is the expert who says that, or the amateur's "
            "blind spots become yours.",
        ),
        (_plausible(amateur / heat, alpha), "You cut by what the *amateur* finds plausible: ask the expert."),
        (cut & _plausible(amateur, alpha), "You ask both models what is plausible: ask the expert alone."),
        (_log_softmax(expert) >= alpha * _log_softmax(expert).max(), _LOG_CUT),
        (expert >= alpha * expert.max(), _LOGIT_CUT),
        (_softmax(expert) >= alpha, "You cut at alpha itself, and not at alpha times the best probability."),
        (_plausible(expert / heat, alpha), _ON_THE_EXPERT),
        (
            np.ones_like(cut),
            "Nothing is cut: the cut is missing, or comes after a second softmax, whose probabilities are too much "
            "alike. Every token has a score, however implausible to the expert.",
        ),
    ]
    for difference, about_difference in differences:
        for kept, about_cut in cuts:
            if _same(answer, np.where(kept, difference, -math.inf)):
                return wrong(" ".join(said for said in (about_difference, about_cut) if said))
    token = int(np.argmax(~np.isclose(answer, expected)))
    return wrong(
        f"With alpha = {alpha:g} and amateur temperature {heat:g}, token {token} scores {answer[token]:.3f} with you; "
        f"expected {expected[token]:.3f}: log p is {ours[token]:.3f} by the expert, {theirs[token]:.3f} by the amateur."
    )


_ON_THE_EXPERT = "The temperature landed on the expert: only the *amateur's* logits are divided by it."


# ----------------------------------------------------------------------------------------------------------------------
# A step, without gradients


class _Toy(torch.nn.Module):
    """A model in miniature: logits for each token of a text, from its weights; notes whether gradients were on."""

    def __init__(self, rows):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(rows, dtype=torch.float64))
        self.calls, self.recorded, self.trained = 0, False, False

    def forward(self, tokens):
        self.calls += 1
        self.recorded |= torch.is_grad_enabled()
        self.trained |= not self.weight.requires_grad
        return self.weight[tokens]


# After token 2 the right choice is 1. Every other token is the choice of a mistake, see `check_step`.
TOY_EXPERT = ((0.0,) * 6 + (5.0,), (0.0,) * 7, (3.0, 2.5, 2.0, -4.0, 0.4, -2.0, -6.0))
TOY_AMATEUR = ((5.0,) + (0.0,) * 6, (0.0,) * 7, (1.0, 0.0, 4.0, -9.0, 1.8, 1.0, -6.0))


@checker
def check_step(my_step) -> Verdict:
    """Judge ``my_step(expert, amateur, tokens, alpha)``: the next token of contrastive decoding, without a cache.

    `expert` and `amateur` are modules: called with `tokens`, shape (1, n), they return logits (1, n, vocab). `alpha` is
    the cut. The answer is the id of a token, or the scores of all.
    """
    expert, amateur = _Toy(TOY_EXPERT), _Toy(TOY_AMATEUR)
    tokens, alpha = torch.tensor([[0, 1, 2]]), 0.1
    answer = attempt(my_step, expert, amateur, tokens, alpha)
    if isinstance(answer, torch.Tensor) and answer.numel() > 1:
        return wrong(f"Expected one token, got a tensor of shape {tuple(answer.shape)}: take the argmax of the scores.")
    token = number(answer)
    rows = [np.array(model[2]) for model in (TOY_EXPERT, TOY_AMATEUR)]
    first = [np.array(model[0]) for model in (TOY_EXPERT, TOY_AMATEUR)]
    expected, cut = _choice(*rows, alpha), _plausible(rows[0], alpha)
    mistakes = {
        int(rows[0].argmax()): "That is the expert's own favourite. Was the amateur's score subtracted? Is the cut a "
        "share of a probability, and not of its logarithm?",
        int((rows[0] - rows[1]).argmax()): "The cut is missing: the expert finds that token next to impossible.",
        int((rows[1] - rows[0]).argmax()): "The sign is wrong, and the cut is missing: expert minus amateur.",
        int(np.where(cut, rows[1] - rows[0], -math.inf).argmax()): "Of the plausible tokens the amateur likes that one "
        "most. The sign is wrong, or both models were asked what is plausible.",
        int(np.where(_plausible(rows[1], alpha), rows[0] - rows[1], -math.inf).argmax()): "You cut by what the "
        "*amateur* finds plausible: ask the expert.",
        _choice(*first, alpha): "You read the logits of the first token. What follows the text stands in the last row.",
    }
    if token != expected:
        about = mistakes.get(token, f"After the last token the best score is that of token {expected}.")
        return wrong(f"You gave token {token}. {about}")
    if expert.calls != 1 or amateur.calls != 1:
        return wrong(
            f"The right token, but {expert.calls} calls of the expert and {amateur.calls} of the amateur: one of each "
            "is enough."
        )
    which = [name for name, model in (("expert", expert), ("amateur", amateur)) if model.recorded]
    if which:
        detached = " A detach, or an item(), afterwards comes too late." if not _has_graph(answer) else ""
        return wrong(
            f"The right token, but gradients were left on in the call of the {' and the '.join(which)}. Each call then "
            "keeps everything that a backward pass would need, and there is none: memory for nothing. Put both calls "
            f"under `with torch.no_grad():` (or inference_mode).{detached}"
        )
    if expert.trained or amateur.trained:
        return wrong("You switched requires_grad off in the models themselves, and they stay so: use torch.no_grad().")
    return right("One call of each, no gradients kept, and the row after the last token.")


def _choice(expert, amateur, alpha) -> int:
    scores = np.where(_plausible(expert, alpha), _log_softmax(expert) - _log_softmax(amateur), -math.inf)
    return int(scores.argmax())


def _has_graph(answer) -> bool:
    return isinstance(answer, torch.Tensor) and answer.requires_grad


# ----------------------------------------------------------------------------------------------------------------------
# Contrastive search

PROBS = (0.55, 0.30, 0.10)
STATES = ((2.0, 0.0, 1.0), (0.0, 3.0, 0.5), (-1.0, 0.5, 0.2))  # of the candidates
PAST = ((4.0, 0.5, 1.0), (0.2, 0.8, -0.4), (-0.3, 0.1, 2.5), (1.0, 1.0, 0.0))


@checker
def check_search_scores(my_scores) -> Verdict:
    """Judge ``my_scores(probs, states, past, penalty)``: the scores of contrastive search's candidates, shape (k,).

    `probs` (k,) are their probabilities, `states` (k, width) their hidden states, `past` (n, width) those of all tokens
    before them.
    """
    for penalty in (0.6, 0.25, 0.0):
        given = [torch.tensor(rows, dtype=torch.float64) for rows in (PROBS, STATES, PAST)]
        answer = attempt(my_scores, *given, penalty)
        if not all(row.tolist() == torch.tensor(rows, dtype=torch.float64).tolist() for row, rows in _pairs(given)):
            return wrong("Your function changed a tensor that it was given: work on copies.")
        answer = as_array(answer, (len(PROBS),), f"one score for each of the {len(PROBS)} candidates")
        probs, states, past = (np.array(rows) for rows in (PROBS, STATES, PAST))
        cosines = _directions(states) @ _directions(past).T
        expected = (1 - penalty) * probs - penalty * cosines.max(1)
        if np.allclose(answer, expected):
            continue
        for mistaken, message in _search_mistakes(probs, states, past, cosines, penalty):
            if np.allclose(answer, mistaken):
                return wrong(message)
        return wrong(
            f"With penalty {penalty:g} you gave {answer.round(4).tolist()}; expected {expected.round(4).tolist()}. The "
            f"largest cosines are {cosines.max(1).round(4).tolist()}."
        )
    return right("Likely, and unlike whatever came before it that it resembles most. Penalty 0 leaves greedy.")


def _pairs(given):
    return zip(given, (PROBS, STATES, PAST), strict=True)


def _directions(states) -> np.ndarray:
    return states / np.linalg.norm(states, axis=-1, keepdims=True)


def _search_mistakes(probs, states, past, cosines, penalty):
    def score(similarity, probs=probs, weight=penalty):
        return (1 - weight) * probs - weight * similarity

    own = _directions(states) @ _directions(np.concatenate([past, states])).T
    wrong_way = states / np.linalg.norm(states, axis=0) @ (past / np.linalg.norm(past, axis=0)).T
    return [
        (
            score(own.max(1)),
            "You count the candidates' own states among the past. Each is like itself, with a cosine of 1, and so the "
            "penalty is the same for all.",
        ),
        (score((states @ past.T).max(1)), "You did not normalise: that is a dot product, in which long vectors win."),
        (
            score((_directions(states) @ past.T).max(1)),
            "You normalised the candidates' states only: the past's have lengths, too.",
        ),
        (score((states @ _directions(past).T).max(1)), "You normalised the past's states only, not the candidates'."),
        (
            score(wrong_way.max(1)),
            "You normalised along the wrong dimension: each *row* is a state, and gets length 1.",
        ),
        (
            score(cosines.mean(1)),
            "You take the mean of the similarities. In a long text nearly everything is unlike, and a mean would not "
            "see the one sentence that is said again: take the largest.",
        ),
        (score(cosines.min(1)), "You take the smallest similarity. A repetition resembles *one* place: the largest."),
        (score(cosines.sum(1)), "You add the similarities up: that grows with the text. Take the largest."),
        (score(cosines[:, -1]), "You compare with the last token only: with all that came before."),
        (score(-cosines.max(1)), "The sign is wrong: you reward what resembles the past."),
        (
            score(cosines.max(1), weight=1 - penalty),
            "The weights are swapped: (1 - penalty) belongs to the probability.",
        ),
        (
            probs - penalty * cosines.max(1),
            "The factor (1 - penalty) before the probability is missing.",
        ),
        (
            score(cosines.max(1), np.log(probs)),
            "You took log-probabilities. Here it is the probability itself that is weighed against a cosine.",
        ),
        (score(cosines.max(0)[: len(probs)]), "The maximum runs over the wrong dimension: one for each candidate."),
    ]


# ----------------------------------------------------------------------------------------------------------------------
# The Jensen-Shannon divergence

PAIRS = (
    ((0.6, 0.3, 0.1), (0.2, 0.5, 0.3)),
    ((0.5, 0.25, 0.125, 0.125), (0.125, 0.125, 0.25, 0.5)),
    ((0.7, 0.3, 0.0), (0.0, 0.4, 0.6)),
    ((1.0, 0.0), (0.0, 1.0)),
    ((0.2, 0.8), (0.2, 0.8)),
)


@checker
def check_jsd(my_jsd) -> Verdict:
    """Judge ``my_jsd(p, q)``: the Jensen-Shannon divergence of two distributions (tensors of shape (vocab,)), in nats.

    Probabilities may be 0.
    """
    for one, other in PAIRS:
        given = [torch.tensor(row, dtype=torch.float64) for row in (one, other)]
        answer = number(attempt(my_jsd, *given))
        p, q = np.array(one), np.array(other)
        expected, said = _jsd(p, q), f"For {list(one)} and {list(other)}"
        if abs(answer - expected) < 1e-9:
            continue
        if math.isnan(answer) or math.isinf(answer):
            infinite = "KL(p || q) is infinite where q is 0 and p is not; against the mean it never is. "
            why = infinite if math.isinf(answer) else "0 · log 0 counts as 0, but a computer makes it NaN: nansum. "
            return wrong(f"{said} you gave {answer}. {why}Expected {expected:.4f}.")
        for mistaken, message in _jsd_mistakes(p, q):
            if abs(answer - mistaken) < 1e-9:
                return wrong(f"{said} you gave {answer:.4f}. {message}")
        return wrong(f"{said} you gave {answer:.4f}; expected {expected:.4f}.")
    return right("Symmetric, never infinite: 0 for equal distributions, log 2 for those that have nothing in common.")


def _kl(p, q) -> float:
    """KL(p || q) in nats; infinite where q is 0 and p is not."""
    some = p > 0
    with np.errstate(divide="ignore"):
        return float((p[some] * (np.log(p[some]) - np.log(q[some]))).sum())


def _jsd(p, q) -> float:
    mean = (p + q) / 2
    return (_kl(p, mean) + _kl(q, mean)) / 2


def _jsd_mistakes(p, q):
    mean, total = (p + q) / 2, _jsd(p, q)
    geometric = np.sqrt(p * q)
    mistakes = [
        (total / math.log(2), "That is in bits, with log2: in nats it is the natural logarithm."),
        (2 * total, "You added the two divergences from the mean; their *average* is asked for."),
        (_kl(p, q), "That is KL(p || q), which compares one with the other. Compare both with their mean."),
        (_kl(q, p), "That is KL(q || p), which compares one with the other. Compare both with their mean."),
        ((_kl(p, q) + _kl(q, p)) / 2, "You averaged KL(p || q) and KL(q || p). Compare each with the mean of both."),
        (_kl(p, q) + _kl(q, p), "You added KL(p || q) and KL(q || p). Compare each with the mean of both."),
        (
            (_kl(mean, p) + _kl(mean, q)) / 2,
            "You have KL(mean || p) and KL(mean || q): the mean comes second. (DoLa's published code has it so, too.)",
        ),
        (_kl(p, mean), "That is one half of it, KL(p || mean): average it with KL(q || mean)."),
        (_kl(q, mean), "That is one half of it, KL(q || mean): average it with KL(p || mean)."),
        (math.sqrt(total), "You took the square root: that is the Jensen-Shannon *distance*."),
        (_kl(p, p + q) / 2 + _kl(q, p + q) / 2, "The mean is (p + q) / 2: you forgot the half."),
        (-total, "The sign is wrong: p · (log p - log mean)."),
    ]
    if geometric.sum() > 0:
        between = geometric / geometric.sum()
        mistakes.append(
            (
                (_kl(p, between) + _kl(q, between)) / 2,
                "Your mean is one of logarithms. Average the probabilities.",
            )
        )
    return mistakes


# ----------------------------------------------------------------------------------------------------------------------
# Small parts


def _same(one, other) -> bool:
    """Whether two rows of scores are equal, -inf where the other is."""
    return bool(np.array_equal(np.isneginf(one), np.isneginf(other))) and np.allclose(
        one[~np.isneginf(one)], other[~np.isneginf(other)], atol=1e-6
    )


def _ids(mask) -> str:
    ids = np.flatnonzero(mask).tolist()
    return "no token" if not ids else f"token {ids[0]}" if len(ids) == 1 else "tokens " + ", ".join(map(str, ids))
