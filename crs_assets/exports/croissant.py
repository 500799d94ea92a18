"""Croissant descriptions of data sets: JSON-LD of what a data set is, without one image of it [1]_.

What maps to what:

==================  ====================================================================================
``citeAs``          the catalogue's citation; ``creator``, ``datePublished``, ``url`` as far as it names them
``license``         page of the SPDX list, or the terms in words
``distribution``    the images, as a set of files that is no part of the export, and the archive if fetched
``recordSet``       ``images`` (fields, no records), ``classes``, ``splits`` and ``counts`` (records inline)
==================  ====================================================================================

The context is the one of the published examples and of the library mlcroissant, with schema.org under https; the
appendix of the specification writes http, which that library refuses. Labels name classes in words instead of by
``references``, which the library cannot read in the form that the specification prescribes.

References:
    .. [1] MLCommons, "Croissant Format Specification", version 1.1, 2026.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from crs_assets.exports.publication import address, creators, licence, year
from crs_assets.exports.results import ImageSetFacts
from crs_assets.exports.suppression import mark_hidden
from crs_assets.science.datasets import suppress_small
from crs_assets.science.datasets.columns import AGE
from crs_assets.science.datasets.counts import WITHHELD, is_small, tell
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.protocol import Protocol
from crs_assets.science.splits import CALIBRATION, TEST, TRAIN, VALIDATION

CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
REQUIRED = (
    "@context", "@type", "conformsTo", "name", "description", "license", "url", "creator", "datePublished",
    "distribution",
)  # fmt: skip
"""Properties that the specification requires of a data set, in its section on dataset-level information."""

CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "annotation": "cr:annotation",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "excludes": "cr:excludes",
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "sdVersion": "cr:sdVersion",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
    "value": "cr:value",
}

_TEXT, _LABEL = "sc:Text", "cr:Label"
_SPLIT_TYPES = {TRAIN: "cr:TrainingSplit", VALIDATION: "cr:ValidationSplit", TEST: "cr:TestSplit"}


def croissant(spec: DatasetSpec, facts: ImageSetFacts, protocol: Protocol, version: str) -> dict[str, Any]:
    """The description of an image set.

    Args:
        spec: Its catalogue entry.
        facts: Its counts; small ones are suppressed here.
        protocol: How it is split.
        version: Version of the package, which is the version of the description.

    Returns:
        JSON-LD. Properties that the entry does not hold are left out; ``lacking`` names the required ones.
    """
    document: dict[str, Any] = {
        "@context": dict(CONTEXT),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": spec.id,
        "alternateName": spec.title,
        "description": _description(spec),
        "citeAs": spec.citation,
        "license": licence(spec.licence),
        "creator": creators(spec),
        "datePublished": year(spec),
        "url": address(spec),
        "conditionsOfAccess": ": ".join(filter(None, (spec.access, spec.obtain))),
        "identifier": f"sha256:{facts.index}",
        "sdVersion": version,
        "keywords": [spec.specialty, spec.task, *(["procedural phantoms"] if spec.phantom else [])],
        "distribution": _distribution(spec),
        "recordSet": [_images(spec), _classes(facts), _splits(spec, facts, protocol), _counts(facts)],
    }
    return {key: value for key, value in document.items() if value not in (None, [])}


def lacking(document: Mapping[str, Any]) -> list[str]:
    """Required properties that a description does not have, because its catalogue entry does not name them."""
    return [name for name in REQUIRED if name not in document]


def _description(spec: DatasetSpec) -> str:
    return (
        f"{spec.title}. Labels: {spec.task}, {len(spec.classes)} classes; assigned by: {spec.label_source}. This file "
        "describes the data set as the benchmark reads and splits it; it holds no image and no identifier."
    )


def _distribution(spec: DatasetSpec) -> list[dict[str, Any]]:
    images: dict[str, Any] = {
        "@type": "cr:FileSet",
        "@id": "image-files",
        "name": "image-files",
        "description": f"The images; no part of the export. {spec.obtain}".strip(),
        "encodingFormat": "image/*",
        "includes": "**",
    }
    if not spec.zenodo:
        return [images]
    name = str(spec.reader_options["file"])
    archive = {
        "@type": "cr:FileObject",
        "@id": "archive",
        "name": name,
        "contentUrl": f"{address(spec)}/files/{name}",
        "encodingFormat": "application/zip",
        **({"md5": spec.reader_options["md5"]} if spec.reader_options.get("md5") else {}),
    }
    return [archive, {**images, "containedIn": {"@id": "archive"}}]


def _images(spec: DatasetSpec) -> dict[str, Any]:
    many = spec.task == "multilabel"
    content = {"fileSet": {"@id": "image-files"}, "extract": {"fileProperty": "content"}}
    labels = "The classes that hold; a class may be uncertain or blank too." if many else "The class."
    fields = [
        {**_field("images", "image", "The image.", "sc:ImageObject"), "source": content},
        {**_field("images", "label", f"{labels} A name of `classes`.", [_TEXT, _LABEL]), "isArray": many},
        _field("images", "group", f"The {spec.group}, never divided between splits; not published.", _TEXT),
    ]
    for name in spec.subgroups:
        kind = ("Years.", "sc:Float") if name == AGE else (f"Subgroup {name}.", _TEXT)
        fields.append(_field("images", name, *kind))
    return _record_set("images", "One record per image; fields only, no records.", fields)


def _classes(facts: ImageSetFacts) -> dict[str, Any]:
    rows = [
        {"name": row["class"], "images": WITHHELD if row["hidden"] else str(row["positives"])}
        for row in mark_hidden(facts.classes).iter_rows(named=True)
    ]
    about = {"name": "Name.", "images": f"Images that carry it, of those used; {WITHHELD} where few patients do."}
    return _table("classes", "The classes, in the order of the labels.", about, rows, "sc:Enumeration")


def _splits(spec: DatasetSpec, facts: ImageSetFacts, protocol: Protocol) -> dict[str, Any]:
    rows = []
    texts = _split_texts(spec, protocol)
    # Splits add up to the images that are used.
    lows, highs = (tell([facts.roles.get(role, (0, 0))[end] for role in texts], adds_up=True) for end in (0, 1))
    for (role, text), low, high in zip(texts.items(), lows, highs, strict=True):
        count = low if low == high else f"{low} to {high}"
        meaning = {"url": _SPLIT_TYPES[role]} if role in _SPLIT_TYPES else {}
        rows.append({"name": role, **meaning, "description": text, "images": count})
    about = {"name": "Name.", "url": "Its meaning.", "description": "How it is drawn.", "images": "How many."}
    return _table("splits", "The benchmark's splits, by groups.", about, rows, "cr:Split")


def _split_texts(spec: DatasetSpec, protocol: Protocol) -> dict[str, str]:
    if spec.role == "target":
        return {TEST: "Every usable image: nothing is fitted on a transfer target."}
    data = protocol.data
    official = "The published test set."
    drawn = f"{data.test_fraction:.0%} of each stratum, by a hash of the group; the same for all seeds."
    rest = f"of the images outside the test set, by a hash of the group and the seed ({len(data.seeds)} seeds)."
    return {
        TRAIN: f"{data.train_until:.0%} {rest}",
        VALIDATION: f"{data.validation_until - data.train_until:.0%} {rest}",
        CALIBRATION: f"{1 - data.validation_until:.0%} {rest}",
        TEST: official if spec.test_split == "official" else drawn,
    }


def _counts(facts: ImageSetFacts) -> dict[str, Any]:
    listed = facts.counts.filter(pl.col("kind") != "positives").select("kind", "name", pl.col("count").cast(pl.Int64))
    counts = {(kind, name): count for kind, name, count in listed.iter_rows()}
    told = {what: suppress_small(count) for what, count in counts.items()}
    # What was read, less what is used, is what was quarantined: where that is small, reading is not told.
    reasons = [what for what in counts if what[0] == "quarantined"]
    told |= dict(zip(reasons, tell([counts[what] for what in reasons], adds_up=True), strict=True))
    for unit in ("images", "groups"):
        if is_small(counts["read", unit] - counts["used", unit]):
            told["read", unit] = WITHHELD
    rows = [{"what": f"{kind}: {name}", "count": text} for (kind, name), text in told.items()]
    about = {"what": "What is counted.", "count": "How many; under 10 not told, nor what would give it away."}
    return _table("counts", "Images and groups read, left out and used.", about, rows)


def _table(
    name: str, about: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, str]], kind: str | None = None
) -> dict[str, Any]:
    """A record set with its records inline; its first column is the key."""
    fields = [_field(name, column, text, "sc:URL" if column == "url" else _TEXT) for column, text in columns.items()]
    data = [{f"{name}/{column}": value for column, value in row.items()} for row in rows]
    keyed = {"key": {"@id": f"{name}/{next(iter(columns))}"}, **({"dataType": kind} if kind else {})}
    return {**_record_set(name, about, fields), **keyed, "data": data}


def _record_set(name: str, about: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "description": about, "field": fields}


def _field(parent: str, name: str, about: str, kind: str | list[str]) -> dict[str, Any]:
    return {"@type": "cr:Field", "@id": f"{parent}/{name}", "name": name, "description": about, "dataType": kind}
