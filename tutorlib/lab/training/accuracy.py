"""Measure a village model: right answers, readable and consistent sentences, agreement of a draft with its target."""

import torch

from tutorlib.decoders.sample_batch import sample_batch
from tutorlib.lab.training.sampled_texts import padded
from tutorlib.measures import Consistency, consistency
from tutorlib.model.lm import LM
from tutorlib.running.decoding import run_batch
from tutorlib.sampling.randomness import Seeded
from tutorlib.storyworld.questions import TOPICS, opening, questions

LONGEST = 200  # largest number of new tokens in a story; nearly all stories end earlier


@torch.no_grad()
def answer_shares(model, tokenizer, *, seeds=range(150), most=100):
    """The share of questions that are answered correctly in greedy decoding, by topic.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerFast
    seeds : iterable
        The held-out stories from which the questions are taken.
    most : int
        The largest number of questions per topic.

    Returns
    -------
    dict
        Topic → share of correct answers, from 0 to 1. An answer is correct if each of its tokens is the most likely
        one.
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


def sampled_stories(model, tokenizer, *, prompts=200):
    """Samples the rest of held-out stories from their openings, 50 at a time.

    Returns
    -------
    list of (str, list of int, int)
        Text, tokens, and how many of the tokens are the opening's.
    """
    lm, stories = LM(model, tokenizer), []
    for start in range(0, prompts, 50):
        numbers = range(start, min(start + 50, prompts))
        openings = [opening(f"held out {number}") for number in numbers]
        rounds = sample_batch(lm, openings, rngs=[Seeded(number) for number in numbers])
        wholes = [trace.prompt + trace.tokens for trace in run_batch(rounds, LONGEST, progress=False)]
        stories += [
            (lm.decode(tokens), tokens, len(prompt)) for tokens, prompt in zip(wholes, rounds.prompts, strict=True)
        ]
    return stories


def readability(stories, tokenizer):
    """Shares of the sampled sentences (those after the opening) that are readable, and that are consistent."""

    def text(tokens):
        return tokenizer.decode(tokens, skip_special_tokens=True)

    counts = [consistency(text(tokens[:length]), text(tokens[length:])) for _, tokens, length in stories]
    total = sum(counts, Consistency())
    counted = max(total.sentences, 1)
    return {
        "sentences": total.sentences,
        "readable": round(total.readable / counted, 3),
        "consistent": round(total.consistent / counted, 3),
    }


@torch.no_grad()
def agreement(target, draft, stories):
    """Mean over positions of the sum of min(p, q): the share of drafted tokens that speculative sampling accepts.

    Leviathan et al. (2023), theorem 3.5: acceptance = 1 − total variation between target and draft.
    """
    sums = []
    for start in range(0, len(stories), 50):
        part = [(tokens, length) for _, tokens, length in stories[start : start + 50]]
        pairs = zip(_logits(target, [t for t, _ in part]), _logits(draft, [t for t, _ in part]), part)
        for target_rows, draft_rows, (tokens, length) in pairs:
            here = slice(length - 1, len(tokens) - 1)
            sums.append(torch.minimum(target_rows[here].softmax(-1), draft_rows[here].softmax(-1)).sum(-1))
    return round(float(torch.cat(sums).mean()), 3)


def _logits(model, rows):
    """Logits of each row, (length, vocab) each, from one padded call."""
    logits = model(padded(rows, model.device), use_cache=False).logits.float().cpu()
    return [logits[i, : len(row)] for i, row in enumerate(rows)]
