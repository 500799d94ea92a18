"""Assets of the analyses beside the score: group ``analyses``."""
