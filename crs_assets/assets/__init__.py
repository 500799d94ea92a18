"""Assets: which partition, what it depends on, how it is shown. The work itself is in ``crs_assets.stages``."""
