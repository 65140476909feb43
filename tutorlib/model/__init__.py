"""What a model is: `LM` around a transformers model, tables and n-grams that stand in for one, and their sessions.

A `session` or a `batch` keeps sequences in a cache. Which kind of cache a model can be used with is found out by
`probe`.
"""
