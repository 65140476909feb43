"""What only the chapters use: exercises with their checkers, drawings, and the zoo of published mistakes."""
