"""Keys and random streams from identifiers: no dependence on order, batch, worker, device or platform.

A text is the parts joined by ``|``, in UTF-8. In every use of the protocol at most one part (the image or group id) is
free text and the others come from the catalogue, so two lists of parts never give the same text.
"""

import hashlib

import numpy as np

KEY_BYTES = 16


def _sha256(parts: tuple[str | int, ...]) -> "hashlib._Hash":
    return hashlib.sha256("|".join(map(str, parts)).encode("utf-8"))


def order_digest(*parts: str | int) -> str:
    """SHA-256 of the joined parts as 64 hexadecimal digits: a sort key that shuffles reproducibly.

    Args:
        *parts: Protocol salt first, then the names that identify what is ordered.
    """
    return _sha256(parts).hexdigest()


def digest_int(*parts: str | int) -> int:
    """First 16 bytes, big-endian, of the SHA-256 of the joined parts: an integer in [0, 2**128)."""
    return int.from_bytes(_sha256(parts).digest()[:KEY_BYTES], "big")


def generator(*parts: str | int) -> np.random.Generator:
    """A fresh random stream, ``Generator(SFC64(key))``, keyed by the joined parts.

    Args:
        *parts: For a degraded image: salt, data set, image id, perturbation.
    """
    return np.random.Generator(np.random.SFC64(digest_int(*parts)))
