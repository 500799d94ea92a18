"""What leaves the benchmark: tables, results in the formats of other tools, descriptions of the data sets.

Pure functions of ``SuiteResults`` and one writer of folders. No id of an image or a group leaves with any of them.
"""
