"""The drawing of all outcomes of a draw: the leaves are products, and their sums are compared with the target."""

import matplotlib.pyplot as plt
import numpy as np

from tutorlib.course.drawings.branches import branches


def residual(p, q):
    excess = np.maximum(p - q, 0)
    return excess / excess.sum()


def drawn(redraw):
    ax = plt.subplots(figsize=(7.0, 2.8))[1]
    assert branches(ax, ["a", "b"], [0.7, 0.3], [0.4, 0.6], redraw) is ax
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_with_the_residual_the_sums_are_the_targets_probabilities():
    shown = drawn(residual)
    assert {"a 0.40", "b 0.30", "a 0.30", "a: 0.70 = p(a)", "b: 0.30 = p(b)"} <= set(shown)


def test_drawn_from_the_target_after_a_rejection_they_are_not():
    shown = drawn(lambda p, q: p)
    assert {"a 0.21", "b 0.09", "a: 0.61, but p(a) = 0.7", "b: 0.39, but p(b) = 0.3"} <= set(shown)
