import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from crs_assets.science.images import check_golden, library_versions, pixel_fingerprint, provenance
from crs_assets.science.protocol import load_protocol
from crs_assets.science.toml_models import CatalogError


def test_parts_cover_the_protocol() -> None:
    families = {family.id for family in load_protocol("crs-v1").perturbations}
    assert set(pixel_fingerprint()) == families | {"decode_jpeg", "decode_png", "resize_area"}
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in pixel_fingerprint().values())


def test_versions_name_what_makes_pixels() -> None:
    assert library_versions()["numpy"] == np.__version__
    assert set(library_versions()) == {"numpy", "opencv", "pillow", "pillow_libjpeg_turbo", "simplejpeg"}


def test_golden_pixels_where_they_were_recorded() -> None:
    """Golden digests: change detection only."""
    recorded = provenance._golden_file().golden
    if not any(golden.versions == library_versions() for golden in recorded):
        pytest.skip("no recording with these library versions")
    assert check_golden() == []


def test_a_changed_digest_is_named_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {**pixel_fingerprint(), "jpeg": "0" * 64}
    monkeypatch.setattr(provenance, "_fingerprint", lambda: changed)
    (mismatch,) = [found for found in check_golden() if found.part == "jpeg"]
    assert "numpy" in mismatch.message
    assert "install the recorded versions" in mismatch.message


def test_a_malformed_golden_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "GOLDEN_FILE", tmp_path / "golden.toml")
    (tmp_path / "golden.toml").write_text("[encoded]\n", encoding="utf-8")
    with pytest.raises(CatalogError, match="golden"):
        check_golden()


def test_callers_cannot_change_the_stored_fingerprint() -> None:
    pixel_fingerprint().clear()
    assert pixel_fingerprint()


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, crs_assets.science.images; print(sorted({'cv2', 'torch', 'sklearn'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
