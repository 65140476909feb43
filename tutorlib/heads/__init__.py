"""Small networks that guess tokens ahead from a target's hidden states: the modules, and the formats of their files.

The files here deal with tensors only. How the guesses are used is in `tutorlib.decoders`, and how the networks are
trained is in `tutorlib.training`.
"""
