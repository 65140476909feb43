"""Which guesses become candidates: trees of a fixed shape, and trees that grow with the guesses."""
