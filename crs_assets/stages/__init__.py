"""The stages of the benchmark without Dagster: what each artifact depends on, and how it is made.

A stage knows its recipe (everything its content depends on; the recipe's digest decides whether work is needed) and
how to build a partition into a staging folder. Assets, the command line and the schedules all go through ``ensure``.
"""
