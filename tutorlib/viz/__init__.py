"""Seeing what a method does: the trace player, figures, and widgets.

`show(trace)` is the player (HTML, no kernel needed). Figures are functions that take an axes and return it, by form:
`boxes` (texts of tokens), `distributions`, `trees`, `grids`, `series` (curves) and `bars`; `style` has the parts that
they share, `palette` the book's colours and `use_book_style`. A figure raises ValueError where there are more rows than
looks for them (six, if nothing else is said), where sequences that belong together differ in length, and for numbers
that are no probabilities. `widgets` is the only module that imports ipywidgets, and
does so when one of its functions is called.
"""

from .labels import Labels
from .palette import use_book_style
from .player import Player, show

__all__ = ["Labels", "Player", "show", "use_book_style"]
