"""The methods of this book inside the `generate` of transformers."""

from .generate import custom_generate

__all__ = ["custom_generate"]
