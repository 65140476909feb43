"""Greedy decoding: always the likeliest next token."""

from ..run import Candidates, Step, decoder


@decoder
def greedy(lm, prompt):
    """Take the likeliest next token, over and over. Of equally likely tokens, the lowest id.

    Deterministic: there is nothing to draw. Locally best and, as a search for the likeliest text, globally not (see
    chapter 2).

    Cost: one call of `lm` a token, the first of them with the whole prompt.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int

    Yields
    ------
    Step
        One token each, endlessly.
    """
    session = lm.session(prompt)
    logits = session.feed()  # (1, vocab): what may follow the prompt
    while True:
        token = int(logits[-1].argmax())
        yield Step([token], candidates=Candidates(logits))
        logits = session.feed([token])
