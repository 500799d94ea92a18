"""What a catalogue entry says of a publication, as the properties that descriptions of data sets want.

Entries name publications in words, without addresses. What is not there is not made up.
"""

import re
from typing import Any

from crs_assets.science.datasets.fetching import ARCHIVE
from crs_assets.science.datasets.spec import DatasetSpec

_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")
_DOI = re.compile(r"\bdoi (10\.\d{4,9}/[^\s,;:]*[^\s,;:.])")
_KAGGLE = re.compile(r"\bKaggle competition ([a-z0-9-]+)")
_YEAR = re.compile(r"\b(?:19|20)\d{2}\b")
_CREATIVE_COMMONS = re.compile(r"CC (BY(?:-NC)?(?:-SA|-ND)?) (\d\.\d)")
_OTHER_LICENCES = ("Apache-2.0", "MIT", "CC0-1.0")
_SPDX = "https://spdx.org/licenses"


def licence(text: str) -> str | dict[str, Any]:
    """Page of a licence on the SPDX list, or the terms in words as a ``CreativeWork``."""
    if match := _CREATIVE_COMMONS.fullmatch(text):
        return f"{_SPDX}/CC-{match[1]}-{match[2]}.html"
    if text in _OTHER_LICENCES:
        return f"{_SPDX}/{text}.html"
    return {"@type": "sc:CreativeWork", "name": text}


def address(spec: DatasetSpec) -> str | None:
    """Where the data set, or else the paper that describes it, is to be read about; None where nothing says."""
    if spec.zenodo:
        return f"{ARCHIVE}/records/{spec.zenodo}"
    if match := _DOI.search(spec.obtain):
        return f"https://doi.org/{match[1]}"
    if match := _KAGGLE.search(spec.obtain):
        return f"https://www.kaggle.com/competitions/{match[1]}"
    if match := _ARXIV.search(spec.citation):
        return f"https://arxiv.org/abs/{match[1]}"
    return None


def year(spec: DatasetSpec) -> str | None:
    """Year of the first publication that the entry cites; None where it cites none."""
    match = _YEAR.search(_ARXIV.sub("", spec.citation))
    return match[0] if match else None


def creators(spec: DatasetSpec) -> list[dict[str, str]]:
    """Who made the data set: the authors of the first publication cited; empty where none is."""
    if spec.phantom:
        return [{"@type": "sc:Organization", "name": "crs_assets"}]
    if year(spec) is None:
        return []
    parts = [part.strip() for part in spec.citation.split(";")[0].split(",")]
    if parts[0].endswith("et al."):
        return [{"@type": "sc:Person", "name": parts[0]}]
    names = [part for part in parts if " " not in part and part.isalpha()] if " " not in parts[0] else []
    if names:
        return [{"@type": "sc:Person", "name": name} for name in names]
    return [{"@type": "sc:Organization", "name": parts[0]}]
