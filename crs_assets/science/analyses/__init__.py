"""Analyses beside the score: what stands next to it and never changes it."""
