"""``crs``: a thin layer over the same graph as the UI, for people and CI jobs."""

from crs_assets.cli.main import main

__all__ = ["main"]
