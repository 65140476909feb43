"""What is drafted and how it is checked: trees of guesses, the networks that guess, and the rules of acceptance."""
