"""Seeing what a method does: the trace player, figures, and widgets.

`show(trace)` returns the player, which is HTML and needs no kernel. Figures are functions that take an axes and return
it, grouped by form: `boxes` (texts of tokens), `distributions`, `trees`, `grids`, `series` (curves), `bars` and
`timelines`. `style` has the parts that they share, `palette` the book's colours and `use_book_style`. A figure raises
ValueError if there are more rows than looks for them (six by default), if sequences that belong together differ in
length, or if probabilities are not valid. `widgets` is the only module that imports ipywidgets, and does so only when
one of its functions is called.
"""

from .labels import Labels
from .palette import use_book_style
from .player import Player, show

__all__ = ["Labels", "Player", "show", "use_book_style"]
