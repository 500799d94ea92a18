import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crs_assets.science.seeding import digest_int, generator, order_digest


def test_order_digest_is_the_sha256_of_the_joined_text() -> None:
    assert order_digest("crs-v1", "split", "isic2019", 3, "lesion::7") == (
        hashlib.sha256(b"crs-v1|split|isic2019|3|lesion::7").hexdigest()
    )


def test_published_sha256_vector() -> None:
    # FIPS 180-2, appendix B.1: SHA-256("abc") = ba7816bf 8f01cfea 414140de 5dae2223 ...
    assert order_digest("abc").startswith("ba7816bf8f01cfea414140de5dae2223")
    assert digest_int("abc") == 0xBA7816BF8F01CFEA414140DE5DAE2223


def test_key_is_the_first_16_bytes_big_endian_of_utf8() -> None:
    text = "crs-v1|aptos2019|nóme with späce, comma|rician"
    raw = hashlib.sha256(text.encode("utf-8")).digest()
    expected = sum(byte << (8 * (15 - position)) for position, byte in enumerate(raw[:16]))
    assert digest_int("crs-v1", "aptos2019", "nóme with späce, comma", "rician") == expected


def test_generator_is_sfc64_of_the_key() -> None:
    key = int(hashlib.sha256(b"crs-v1|isic2019|ISIC_0000013_downsampled|rician").hexdigest()[:32], 16)
    expected = np.random.Generator(np.random.SFC64(key)).standard_normal(5, dtype=np.float32)
    drawn = generator("crs-v1", "isic2019", "ISIC_0000013_downsampled", "rician").standard_normal(5, dtype=np.float32)
    assert drawn.tobytes() == expected.tobytes()


def test_case_matters() -> None:
    assert digest_int("s", "d", "ISIC_1", "jpeg") != digest_int("s", "d", "isic_1", "jpeg")


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4))
def test_key_fits_16_bytes_and_heads_the_order_digest(parts: list[str]) -> None:
    assert f"{digest_int(*parts):032x}" == order_digest(*parts)[:32]
