"""Mutated messages into a real worker: it stays up, and each of them is accounted for."""
