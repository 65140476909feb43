"""A checker for each exercise, in one module per chapter: it says *what* is wrong with an answer, not only that it is.

The last line of an exercise's cell calls its checker with the answer, for example ``check_softmax(my_softmax)``. The
checker prints one verdict, ✓ or ✗ with a reason, and never raises an error, whatever the answer does. What all
checkers share is in `judge.py`, with `answers.py` (read, compare and show them) and `verdicts.py`. A reader's function
is compared with definitions and formulas from papers that are written out in the chapter's module, not with the
library's own functions. This package does not import the chapters' modules: write ``from
tutorlib.course.exercises.next_token import check_softmax``.
"""
