"""Hugging Face encoder-decoders: one memory for all beams, projected once."""
