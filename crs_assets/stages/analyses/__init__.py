"""Stages of the analyses beside the score."""
