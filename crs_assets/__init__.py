"""Clinical Reliability Score: frozen medical image encoders measured on four axes, as a Dagster asset graph.

Importing this package imports nothing else: ``crs_assets.science`` is usable without Dagster, and
``crs_assets.definitions`` is the only module that knows the whole graph.
"""
