"""The drawing of a loop that feeds itself."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt

from tutorlib.course.drawings.loop import self_feeding_loop


def drawn(**options):
    ax = plt.subplots()[1]
    assert self_feeding_loop(ax, "Over and $over$.", **options) is ax
    ax.figure.canvas.draw()
    plt.close(ax.figure)
    return ax, [text.get_text() for text in ax.texts]


def test_the_phrase_stands_twice_and_each_repetition_is_more_likely():
    ax, shown = drawn()
    assert shown.count("Over and $over$.") == 2
    heights = [abs(bars[0].get_height()) for bars in ax.containers]
    assert len(heights) == 3 and heights == sorted(heights)


def test_the_cut_can_be_left_out():
    assert "a penalty cuts here" in drawn()[1] and "a penalty cuts here" not in drawn(penalty=False)[1]
