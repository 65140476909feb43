"""How a method is run: it yields steps (`step`), `decoding` runs it, and a `trace` keeps what happened."""
