"""Where random draws come from (`randomness`), and what changes probabilities before a draw (`warp`)."""
