"""The rendered pages that tests look at."""

import os
from functools import cache
from pathlib import Path

from build_book import ROOT, build


@cache
def built_site():
    """Return the folder of the pages with the committed outputs, built now unless BOOK_SITE says where they are.

    `make test` has just built them and says so; a test that is started by itself builds them, once.
    """
    if os.environ.get("BOOK_SITE"):
        site = ROOT / Path(os.environ["BOOK_SITE"])
        assert (site / "index.html").is_file(), f"BOOK_SITE is {site}, which holds no index.html"
        return site
    site = build(committed=True)
    assert site is not None, "the book does not build: see what was printed"
    return site
