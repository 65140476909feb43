"""What a village model has learnt: answers, readable and consistent sentences, agreement of a draft with its target."""

import torch

from tutorlib.lm import LM
from tutorlib.metrics import Consistency, consistency
from tutorlib.storyworld.questions import TOPICS, opening, questions
from tutorlib.training.own_text import padded


@torch.no_grad()
def answers(model, tokenizer, *, seeds=range(150), most=100):
    """Share of questions answered right, greedily, by topic.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerFast
    seeds : iterable
        Which held-out stories the questions are from.
    most : int
        Questions a topic.

    Returns
    -------
    dict
        Topic → share right, from 0 to 1. An answer is right when each of its tokens is the most probable one.
    """
    asked = questions(f"held out {seed}" for seed in seeds)
    shares = {}
    for topic in TOPICS:
        chosen = [question for question in asked if question.topic == topic][:most]
        prompts = [tokenizer(question.prompt)["input_ids"] for question in chosen]
        wholes = [tokenizer(question.prompt + question.answer)["input_ids"] for question in chosen]
        logits = _logits(model, wholes)
        right = 0
        for prompt, whole, rows in zip(prompts, wholes, logits):
            guessed = rows[len(prompt) - 1 : len(whole) - 1].argmax(-1).tolist()
            right += guessed == whole[len(prompt) :]
        shares[topic] = round(right / len(chosen), 3)
    return shares


@torch.no_grad()
def stories(model, tokenizer, *, prompts=200, seed=0, temperature=1.0):
    """Samples the rest of held-out stories from their openings, batched, by the plain definition of sampling.

    Returns
    -------
    list of (str, list of int, int)
        Text, tokens, and how many of the tokens are the opening's.
    """
    generator, lm = torch.Generator().manual_seed(seed), LM(model, tokenizer)
    told = []
    for start in range(0, prompts, 50):
        openings = [tokenizer(opening(f"held out {i}"))["input_ids"] for i in range(start, min(start + 50, prompts))]
        told += [
            (tokenizer.decode(row, skip_special_tokens=True), row, len(prompt))
            for row, prompt in zip(_continue(lm, openings, generator, temperature), openings)
        ]
    return told


def _continue(lm, openings, generator, temperature, most=220):
    """Rows of tokens, each an opening and what the model sampled after it, up to its end or `most` tokens."""
    batch, fresh = lm.batch(openings), [[] for _ in openings]
    rows = [list(opening) for opening in openings]
    going = set(range(len(rows)))
    while going:
        logits = batch.feed(fresh)
        fresh = [[] for _ in rows]
        for i in sorted(going):
            probs = (logits[i][-1].cpu().double() / temperature).softmax(-1)
            token = int(torch.multinomial(probs.cpu(), 1, generator=generator))
            rows[i].append(token)
            if token in lm.stop_tokens or len(rows[i]) > most:
                going.remove(i)
            else:
                fresh[i] = [token]
    return rows


def judge(told, tokenizer):
    """Shares of the sampled sentences (those after the opening) that are readable, and that are consistent."""

    def text(tokens):
        return tokenizer.decode(tokens, skip_special_tokens=True)

    counts = [consistency(text(tokens[:length]), text(tokens[length:])) for _, tokens, length in told]
    total = sum(counts, Consistency())
    counted = max(total.sentences, 1)
    return {
        "sentences": total.sentences,
        "readable": round(total.readable / counted, 3),
        "consistent": round(total.consistent / counted, 3),
    }


@torch.no_grad()
def agreement(target, draft, told):
    """Mean over positions of the sum of min(p, q): the share of drafted tokens that speculative sampling accepts.

    Leviathan et al. (2023), theorem 3.5: acceptance = 1 − total variation between target and draft.
    """
    sums = []
    for start in range(0, len(told), 50):
        part = [(tokens, length) for _, tokens, length in told[start : start + 50]]
        pairs = zip(_logits(target, [t for t, _ in part]), _logits(draft, [t for t, _ in part]), part)
        for target_rows, draft_rows, (tokens, length) in pairs:
            here = slice(length - 1, len(tokens) - 1)
            sums.append(torch.minimum(target_rows[here].softmax(-1), draft_rows[here].softmax(-1)).sum(-1))
    return round(float(torch.cat(sums).mean()), 3)


def _logits(model, rows):
    """Logits of each row, (length, vocab) each, from one padded call."""
    logits = model(padded(rows, model.device), use_cache=False).logits.float().cpu()
    return [logits[i, : len(row)] for i, row in enumerate(rows)]
