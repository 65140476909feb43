"""The exercises on contrasts: the plausibility cut, the score, the weight of a passage, and related methods."""

import math
from collections.abc import Mapping

import numpy as np
import torch

from ...decoders.context_contrast import context_scores
from ...decoders.contrastive_decoding import contrastive_scores
from .answers import array, expect, filled, number, short, tensor
from .judge import NOT_YET, Exercise, checker
from .verdicts import Ended, Verdict, right, wrong


@checker
def check_thresholds(prediction, expert: Mapping[str, float], amateur: Mapping[str, float]) -> Verdict:
    """Judge the alphas above which the cut removes tokens: a dict whose keys are the tokens' texts."""
    if not isinstance(prediction, Mapping) or not prediction or not set(prediction) <= set(expert):
        return wrong(f"Expected a dict whose keys are texts of tokens; got {short(prediction)}.")
    if any(value is None or value is ... for value in prediction.values()):
        return Verdict(None, NOT_YET)
    best, best_of_amateur = max(expert.values()), max(amateur.values())
    for token, value in prediction.items():
        prob = expert[token]
        mistakes = {
            prob: "That is the token's own probability. The threshold is alpha *times* the largest probability, so "
            "divide by it.",
            prob / best_of_amateur: "You divided by the amateur's best probability. The cut uses the expert's alone.",
            amateur[token] / best_of_amateur: "You used the amateur's probabilities. The expert decides what is "
            "plausible.",
            math.log(prob) / math.log(best): "You divided logarithms. The cut compares the probabilities themselves.",
            best / prob: "That is the wrong way round: alpha is at most 1.",
        }
        hint = f"Solve alpha · {best:g} = {prob:g}."
        expect(value, prob / best, mistakes, part=token, tolerance=0.01, otherwise=hint)
    return right("A token is kept as long as alpha is at most its probability divided by the expert's largest one.")


# ----------------------------------------------------------------------------------------------------------------------
# The cut, and the score


def plausible(logits, alpha):
    """Tokens with at least alpha times the largest probability, or slightly less, because exp and log round."""
    return logits.softmax(-1) >= alpha * logits.softmax(-1).max() * (1 - 1e-12)


def by_log_probs(logits, alpha):
    return logits.log_softmax(-1) >= alpha * logits.log_softmax(-1).max()


LOG_CUT = (
    "You compare log p with alpha times the largest log p. The logarithm of a product is a *sum*: compare it with log "
    "alpha plus the largest log p."
)
# Found by random search: every mistake keeps different tokens from the right cut and from the other mistakes.
UNEVEN = tensor((2.4, 2.5, 2.6, -0.5, -1.9, -3.9, 0.8, 1.4))  # at alpha 0.3
EXPERT = tensor((2.7, -3.2, 1.4, -1.0, 1.7, 3.2, 2.5, 0.7))
AMATEUR = tensor((2.1, 3.5, 0.4, -1.8, -0.9, -2.9, 3.3, 2.5))
POWERS_OF_TWO = tensor((-2.0, 0.0, -1.0, -3.0)) * math.log(2)  # every share is exact


def scores(
    expert, amateur, alpha, temperature, *,
    heated=lambda expert, amateur, temperature: (expert, amateur / temperature),
    asked=lambda expert, amateur, temperature: expert, cut=plausible, of=torch.Tensor.log_softmax, sign=1,
):  # fmt: skip
    """The scores of contrastive decoding; each option is a way to get them wrong. `asked` decides the cut."""
    judge = asked(expert, amateur, temperature)
    ours, theirs = (of(logits, -1) for logits in heated(expert, amateur, temperature))
    return torch.where(cut(judge, alpha), sign * (ours - theirs), -math.inf)


check_scores = Exercise(
    """Judge ``my_scores(expert_logits, amateur_logits, alpha, amateur_temperature)``: a score for each token.""",
    [(EXPERT, AMATEUR, alpha, temperature) for alpha, temperature in ((0.3, 1.0), (0.2, 0.5), (0.1, 2.0))],
    scores,
    {
        "The sign is wrong: you reward what the amateur likes. Take the expert minus the amateur.": {"sign": -1},
        "You kept the tokens that the *amateur* finds plausible. Use the expert's probabilities for the cut.": (
            {"asked": lambda expert, amateur, temperature: amateur},
            {"asked": lambda expert, amateur, temperature: amateur / temperature},
        ),
        LOG_CUT: {"cut": by_log_probs},
        "You subtract numbers that are not log-probabilities. Take log_softmax of both logits first, and only once: "
        "otherwise scores of different steps cannot be added up.": (
            {"of": lambda logits, _: logits},
            {"of": lambda logits, _: logits.softmax(-1)},
            {"of": lambda logits, _: logits.softmax(-1).log_softmax(-1)},
        ),
        "The temperature is wrong: divide only the amateur's logits by it.": (
            {"heated": lambda expert, amateur, temperature: (expert, amateur)},
            {"heated": lambda expert, amateur, temperature: (expert, amateur * temperature)},
            lambda expert, amateur, alpha, temperature: scores(expert / temperature, amateur, alpha, 1.0),
            lambda expert, amateur, alpha, temperature: scores(expert / temperature, amateur, alpha, temperature),
        ),
    },
    why="The best token is the plausible one that the expert prefers most compared with the amateur. Implausible "
    "tokens score -inf.",
    hint="A token that the cut removes must score -inf. With a score of 0, it could even win.",
)

# ----------------------------------------------------------------------------------------------------------------------
# How much weight a passage needs, and a case in which three methods choose three different tokens

# For each answer, its probability with the passage and without it.
TOWER = {"Paris": (0.8, 0.8), "Madrid": (0.02, 0.0002)}


@checker
def check_weight(weight) -> Verdict:
    """Judge the smallest weight at which context-aware decoding answers Madrid."""
    told, untold = tensor(tuple(TOWER.values())).unbind(1)
    tip = math.log(0.8 / 0.02) / math.log(0.02 / 0.0002)
    mistakes = {
        1 + tip: "That is 1 + w, the guidance scale. You are asked for w.",
        0.4: "You divided 40 by 100. The score adds logarithms: take the logarithm of both first.",
        1 / tip: "That is the wrong way round. Divide the lead of Paris, as a logarithm, by what each unit of w adds "
        "for Madrid.",
        1: "At 1 the answer is Madrid, but it is already Madrid at a smaller weight.",
    }
    hint = "Write both scores as a number plus w times a number. At which w are they equal?"
    expect(weight, tip, mistakes, otherwise=hint, tolerance=0.01)
    said = []
    for near in (tip - 0.01, tip + 0.01):
        token = int(context_scores(told.log()[None], untold.log()[None], near).argmax())
        said.append(f"{list(TOWER)[token]} at {near:.2f}")
    return right(f"The answer is {said[0]} and {said[1]}.")


@checker
def check_three(answer) -> Verdict:
    """Judge distributions of an expert and an amateur for which three methods choose three different tokens."""
    answer, rows = filled(answer, ("expert", "amateur")), []
    for who in ("expert", "amateur"):
        probs = array(answer[who], (3,), f"the {who}'s three probabilities")
        if not (np.isfinite(probs).all() and probs.min() > 0 and abs(probs.sum() - 1) < 1e-6):
            return wrong(f"The {who}'s probabilities must be above 0 and sum to 1.")
        rows.append(torch.tensor(probs).log()[None])
    ours, theirs = rows
    due = {
        "Greedy decoding": (ours, 0, "The expert must give token 0 the highest probability."),
        "Contrastive decoding with alpha 0.1": (
            contrastive_scores(ours, theirs, 0.1), 1,
            "Token 1 needs at least a tenth of token 0's probability, and a larger ratio p/q than token 0. Token 2 "
            "must be below the cut.",
        ),
        "Contrastive decoding without a cut": (
            contrastive_scores(ours, theirs, 0), 2, "Token 2 needs the largest ratio p/q of all: make its q tiny."
        ),
    }  # fmt: skip
    for method, (values, token, hint) in due.items():
        chosen = int(values.argmax())
        if chosen != token:
            return wrong(f"{method} chooses token {chosen}. {hint}")
    return right(
        "The three are the expert's most likely token, the token that the expert knows and the amateur does not, and a "
        "token that only the cut can remove."
    )


# ----------------------------------------------------------------------------------------------------------------------
# Contrastive search


def directions(states):
    return states / states.norm(dim=-1, keepdim=True)


def search_scores(probs, states, past, penalty, nearest=lambda cosines: cosines.amax(1), norm=(directions, directions)):
    return (1 - penalty) * probs - penalty * nearest(norm[0](states) @ norm[1](past).T)


check_search_scores = Exercise(
    """Judge ``my_scores(probs, states, past, penalty)``: the scores of contrastive search's candidates, shape (k,).""",
    [
        (
            tensor((0.55, 0.30, 0.10)),
            tensor(((2.0, 0.0, 1.0), (0.0, 3.0, 0.5), (-1.0, 0.5, 0.2))),
            tensor(((4.0, 0.5, 1.0), (0.2, 0.8, -0.4), (-0.3, 0.1, 2.5), (1.0, 1.0, 0.0))),
            penalty,
        )
        for penalty in (0.6, 0.25, 0.0)
    ],
    search_scores,
    {
        "You also compare each candidate with itself. That similarity is always 1, so the penalty is the same for all "
        "candidates. Compare only with the past.": lambda probs, states, past, penalty: search_scores(
            probs, states, torch.cat([past, states]), penalty
        ),
        "You did not normalise all states. Without that, the dot product is not a cosine, and long vectors win. Scale "
        "every state to length 1.": (
            {"norm": (torch.Tensor.clone, torch.Tensor.clone)},
            {"norm": (directions, torch.Tensor.clone)},
            {"norm": (torch.Tensor.clone, directions)},
        ),
        "You do not take the largest similarity. A repetition resembles *one* earlier position, which a mean or a sum "
        "can hide.": (
            {"nearest": lambda cosines: cosines.mean(1)},
            {"nearest": lambda cosines: cosines.sum(1)},
            {"nearest": lambda cosines: cosines.amin(1)},
            {"nearest": lambda cosines: cosines[:, -1]},
        ),
        "The sign is wrong: you reward candidates that resemble the past.": {
            "nearest": lambda cosines: -cosines.amax(1)
        },
        "The weights are wrong: multiply the probability by (1 - penalty), and the similarity by the penalty.": (
            lambda probs, states, past, penalty: search_scores(probs, states, past, 1 - penalty),
            lambda probs, states, past, penalty: search_scores(probs, states, past, penalty) + penalty * probs,
        ),
    },
    show=lambda probs, states, past, penalty: f"the penalty {penalty:g}",
    why="A good candidate is likely and does not closely resemble any earlier position. With a penalty of 0 the choice "
    "is greedy.",
)

# ----------------------------------------------------------------------------------------------------------------------
# The Jensen-Shannon divergence


def kl(p, q) -> float:
    """KL(p || q) in nats; infinite if p is above 0 where q is 0."""
    return float((p * (p.log() - q.log())).nansum())


def jsd(p, q) -> float:
    return (kl(p, (p + q) / 2) + kl(q, (p + q) / 2)) / 2


def finite_number(answer, due):
    value = number(answer)
    if math.isfinite(value):
        return value
    infinite = "KL(p || q) is infinite if p is above 0 where q is 0, but KL(p || mean) never is."
    zero = "0 · log 0 counts as 0, but PyTorch returns NaN for it: use nansum."
    raise Ended(
        wrong(f"Your result is {value} for distributions with a probability of 0. {infinite if value > 0 else zero}")
    )


check_jsd = Exercise(
    """Judge ``my_jsd(p, q)``: the Jensen-Shannon divergence of two distributions, in nats.""",
    [
        (tensor(p), tensor(q))
        for p, q in (
            ((0.6, 0.3, 0.1), (0.2, 0.5, 0.3)),
            ((0.5, 0.25, 0.125, 0.125), (0.125, 0.125, 0.25, 0.5)),
            ((0.7, 0.3, 0.0), (0.0, 0.4, 0.6)),
            ((1.0, 0.0), (0.0, 1.0)),
            ((0.2, 0.8), (0.2, 0.8)),
        )
    ],
    jsd,
    {
        "Your result is in bits. Use the natural logarithm instead of log2.": lambda p, q: jsd(p, q) / math.log(2),
        "You added the two divergences from the mean. Take their *average*.": lambda p, q: 2 * jsd(p, q),
        "You compared one distribution with the other. Compare both with their mean.": (
            kl,
            lambda p, q: kl(q, p),
            lambda p, q: (kl(p, q) + kl(q, p)) / 2,
            lambda p, q: kl(p, q) + kl(q, p),
        ),
        "You have KL(mean || p) and KL(mean || q), but the mean must come second. (DoLa's published code does the "
        "same.)": (lambda p, q: (kl((p + q) / 2, p) + kl((p + q) / 2, q)) / 2),
        "You took the square root: that is the Jensen-Shannon *distance*.": lambda p, q: math.sqrt(jsd(p, q)),
    },
    read=finite_number,
    why="The divergence is symmetric and never infinite: 0 for equal distributions, and log 2 for distributions that "
    "have nothing in common.",
)
