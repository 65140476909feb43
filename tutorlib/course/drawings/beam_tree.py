"""A beam search as a tree, with the continuations that it considered and did not keep."""

from ...running.trace import Trace
from ...viz.trees import search_tree


def beam_tree(ax, trace: Trace, *, dropped: int | None = None, **look):
    """Draw a run of beam search as a tree that grows to the right, with one column per length.

    A trace has only the hypotheses that the search kept. The dropped ones are computed again with the model, as the
    continuations of kept hypotheses by one token.

    Parameters
    ----------
    trace : Trace
        The trace of a search whose scores are sums (``length_penalty=0``), with its model.
    dropped : int, optional
        How many dropped continuations to draw at each length, beginning with the best; by default all possible ones.
    **look
        Passed to `tutorlib.viz.trees.search_tree`: `paths`, `root`, `digits`, `legend`, `title`.
    """
    levels = [step.hypotheses for step in trace.steps if step.hypotheses and not step.tokens]
    finished = trace.steps[-1].hypotheses
    seen = []
    for before, after in zip([[[[], 0.0]], *levels], [*levels, finished], strict=True):
        kept = [tokens for tokens, _ in after]
        longer = [one for one in _continuations(trace, before) if one[0] not in kept]
        seen += sorted(longer, key=lambda one: -one[1])[:dropped]
    options = {"dropped": seen, "finished": finished, "winner": trace.tokens, "labels": trace.lm}
    return search_tree(ax, levels, **options, **look)


def _continuations(trace, hypotheses):
    """All possible continuations of some hypotheses by one token, as ``[tokens, score]``."""
    for tokens, score in hypotheses:
        row = trace.lm.session([*trace.prompt, *tokens]).feed()[-1].double().log_softmax(-1)
        for token in row.isfinite().nonzero().flatten().tolist():
            yield [[*tokens, token], score + float(row[token])]
