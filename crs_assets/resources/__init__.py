"""One outside thing per file: typed configuration that hands out a plain object. No science, no assets here."""
