"""The protocol as pure functions: arrays, frames and images in, arrays, frames and numbers out.

Nothing here imports Dagster, reads the environment, or does I/O that its arguments do not name.
"""
