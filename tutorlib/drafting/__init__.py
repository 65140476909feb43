"""Choose which guesses become candidates: trees of a fixed shape, and trees that depend on the guesses."""
