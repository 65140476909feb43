"""Wrong decisions: which drafted tokens are kept, and what replaces the others."""

import torch

from ...decoders.speculative import speculative
from ...drafting.checking import check_sampled, residual
from ...running.decoder import decoder
from ...running.step import Step
from ...sampling.warp import probabilities
from .loops import drafts, draw_token, speculate


@decoder
def rows_one_late(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The target's rows are read one position late: each drafted token is checked with the row that follows it."""

    def rule(round, rng):
        for position, token in enumerate(round.drafted):
            row = round.target_probs[position + 1]  # the mistake: the row for this token is [position]
            if not rng.accept(row[token] / round.draft_probs[position][token]):
                return position, rng.choose(residual(row, round.draft_probs[position]))
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))


@decoder
def inverted_coin(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """Where q is larger than p, a drafted token is rejected with probability p/q, the probability of accepting it."""

    def rule(round, rng):
        for position, token in enumerate(round.drafted):
            p, q = round.target_probs[position], round.draft_probs[position]
            if q[token] > p[token] and rng.accept(p[token] / q[token]):  # the mistake: accepting and rejecting swapped
                return position, rng.choose(residual(p, q))
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))


@decoder
def resample_from_target(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """After a rejection, the next token is drawn from p, not from the residual."""

    def rule(round, rng):
        for position, token in enumerate(round.drafted):
            if not rng.accept(round.target_probs[position][token] / round.draft_probs[position][token]):
                return position, rng.choose(round.target_probs[position])  # the mistake: not from the residual
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))


@decoder
def fixed_threshold(target, draft, prompt, *, gamma=4, rng=None, warp=(), threshold=0.3):
    """A token is accepted when the target's probability for it exceeds a fixed threshold."""

    def rule(round, rng):
        for position, token in enumerate(round.drafted):
            if round.target_probs[position][token] < threshold:  # the mistake: no p/q, and no random draw
                return position, rng.choose(round.target_probs[position])
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))


@decoder
def perplexity_threshold(target, draft, prompt, *, gamma=4, rng=None, warp=(), threshold=0.3):
    """ "EAGLE", misread: the draft's perplexity sets a threshold for the target's probability of each token."""

    def rule(round, rng):
        own = round.draft_probs[range(gamma), round.drafted]
        bar = threshold * own.log().mean().neg().exp()  # times the draft's perplexity
        for position, token in enumerate(round.drafted):
            if round.target_probs[position][token] <= bar:  # the mistake: no p/q and no random draw
                return position, rng.choose(round.target_probs[position])
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))


@decoder
def mixed_with_prediction(target, draft, prompt, *, gamma=4, rng=None, warp=(), predict, alpha=0.5, threshold=0.05):
    """ "EAGLE", misread: a network learns to predict the target's features. Its probabilities are averaged with the
    target's, and every token above a threshold is accepted.

    `predict` is made by `feature_predictor`. The first row of a round has no feature of that round before it, so it is
    p itself.
    """

    def rule(round, rng):
        predicted = probabilities(target.read_out(predict(round.features), normed=True))
        predicted = torch.cat([round.target_probs[:1], predicted[:-1]])  # row i is predicted from feature i - 1
        mixed = alpha * round.target_probs + (1 - alpha) * predicted  # the mistake: only the target's rows should count
        for position, token in enumerate(round.drafted):
            if mixed[position][token] <= threshold:
                return position, rng.choose(round.target_probs[position])
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))


def feature_predictor(lm, texts, *, steps=300, seed=0):
    """Train a small network by mean squared error to predict a model's next feature from the last one.

    A feature is the input of the output head. The network does not see which token comes between the two features, and
    its loss does not take into account which tokens a feature predicts.

    Parameters
    ----------
    lm : LM
    texts : sequence of str or of lists of int
    steps, seed : int

    Returns
    -------
    predict : function from features, shape (n, width), to features of the same shape
    losses : list of `steps` floats
        Mean squared errors, in units of the features' variance. Always predicting the mean feature gives about 1.
    """
    befores, afters = [], []
    for text in texts:
        first, *others = lm.prompt_tokens(text)
        session = lm.session([first], hidden=-1)
        session.feed(others)
        befores.append(session.hidden[:-1].float())
        afters.append(session.hidden[1:].float())
    before, after = torch.cat(befores), torch.cat(afters)
    center, scale, width = after.mean(0), after.std(), after.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width)
        network = torch.nn.Sequential(*layers).to(before.device)
        batches = torch.randint(len(before), (steps, 128)).to(before.device)
    optimizer, losses = torch.optim.Adam(network.parameters(), 2e-3), []
    for rows in batches:
        loss = (network((before[rows] - center) / scale) - (after[rows] - center) / scale).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))

    @torch.no_grad()
    def predict(features):
        return (network((features.float() - center) / scale) * scale + center).to(features.dtype)

    return predict, losses


@decoder
def score_only(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The target only scores the draft's text, by its average log-likelihood. All of the text is kept."""
    target_session, draft_session = target.session(prompt), draft.session(prompt)
    text, unread = list(prompt), []
    while min(target_session.room, draft_session.room) > gamma:
        drafted, _, _ = drafts(draft_session, text, gamma, rng, warp, draw_token)
        log_probs = target_session.feed(unread + drafted).cpu().double().log_softmax(-1)
        average = float(log_probs[range(gamma), drafted].mean())
        accepted = gamma  # the mistake: all are kept, whatever the average is
        target_session.rollback(1)
        unread = drafted[-1:]
        text += drafted
        yield Step(drafted, drafted, accepted, note=f"average log-likelihood {average:.2f}")
    return "context"


@decoder
def other_warp(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """q is computed with a different warp from the one with which the tokens were drafted."""

    def rule(round, rng):
        draft_probs = probabilities(round.draft_logits)  # the mistake: the tokens were drawn from the warped q
        return check_sampled(round.drafted, draft_probs, round.target_probs, rng)

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))


@decoder
def greedy_with_coins(target, draft, prompt, *, gamma=4, rng=None):
    """ "Greedy" decoding that still accepts with probability p/q."""

    def rule(round, rng):
        p, q = probabilities(round.target_logits), probabilities(round.draft_logits)
        for position, token in enumerate(round.drafted):
            if not rng.accept(p[position][token] / q[position][token]):  # the mistake: no test for the target's argmax
                return position, int(p[position].argmax())
        return len(round.drafted), int(p[-1].argmax())

    def draw(probs, rng):
        return int(probs.argmax())

    return (yield from speculate(target, draft, prompt, gamma, rng, (), rule=rule, draw=draw))


@decoder
def unwarped_bonus(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The bonus token ignores temperature and top-p."""

    def rule(round, rng):
        for position, token in enumerate(round.drafted):
            p, q = round.target_probs[position], round.draft_probs[position]
            if not rng.accept(p[token] / q[token]):
                return position, rng.choose(residual(p, q))
        bonus = probabilities(round.target_logits[-1:])[0]  # the mistake: should be round.target_probs[-1]
        return len(round.drafted), rng.choose(bonus)

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))


@decoder
def greedy_drafts(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The draft is greedy, but q is used as if the token had been drawn from it."""

    def draw(probs, rng):
        return int(probs.argmax())  # the mistake: min(1, p/q) is for tokens drawn from q

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, draw=draw))


@decoder
def greedy_speculation(target, draft, prompt, *, gamma=4, rng=None):
    """`speculative` in greedy mode; `rng` is ignored."""
    yield from speculative(target, draft, prompt, gamma=gamma, rng=None)
