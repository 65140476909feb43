"""One checker for each exercise, one module for each chapter: a checker says *what* is wrong, not only that it is.

A checker is called with an answer at the end of an exercise's cell, ``check_softmax(my_softmax)``. It prints one
verdict, ✓ or ✗ and why, and raises nothing, whatever the answer does. `judge.py` holds what they share. A reader's
function is compared with definitions and papers' formulas that stand in its module, not with the library's own. The
modules of the chapters are not imported here: ``from tutorlib.exercises.next_token import check_softmax``.
"""
