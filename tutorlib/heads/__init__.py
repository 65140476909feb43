"""Small networks that guess ahead from a target's hidden states: the modules, and the files they are published in.

A file here knows tensors, not decoding: what is done with the guesses is in `tutorlib.decoders`, how the networks are
trained in `tutorlib.training`.
"""
