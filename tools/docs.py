"""Fill the generated parts of the documentation: ``python tools/docs.py [--check]``.

``docs/protocol.md`` and ``docs/own-data.md`` are filled from the protocol files, ``docs/configuration.md`` from what
reads ``config.toml``, ``docs/performance.md`` from ``docs/measured``.
"""

import json
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import measured
import polars as pl

from crs_assets.resources.configuration import TABLES as CONFIGURED
from crs_assets.science.encoders.depths import sweep_depths
from crs_assets.science.encoders.spec import Tap
from crs_assets.science.images.modalities import MODALITIES, modality_table, suitability_of
from crs_assets.science.labels import TaskType
from crs_assets.science.perturbations import DegradationFamily
from crs_assets.science.protocol import AXES, Protocol, load_protocol
from crs_assets.science.splits import eligible_classes, split_seed
from crs_assets.science.toml_models import FrozenModel
from crs_assets.science.toml_problems import kind_of

DOCS = Path(__file__).parent.parent / "docs"
MODALITY_TITLES = {"chest": "chest radiographs", "skin": "skin photographs", "fundus": "fundus photographs"}
IMAGES_PER_PATIENT = (1, 2, 5)
MANY_PATIENTS = 400
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def render(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """A page with every generated block filled anew."""
    return BLOCK.sub(lambda match: f"{match[1]}{blocks[match[2]]()}\n{match[3]}", text)


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return measured.markdown([header, *rows])


def data(protocol: Protocol) -> str:
    """Seeds, fractions, splits, eligibility."""
    settings, minimum = protocol.data, protocol.data.eligibility
    fractions = ", ".join(f"{100 * fraction:g} %" for fraction in settings.fractions)
    return table(
        ["what", "value"],
        [
            ["seeds", ", ".join(map(str, settings.seeds))],
            ["label fractions", fractions],
            ["test", f"{settings.test_fraction:.0%} of each stratum, the same for all seeds"],
            [
                "train / validation / calibration",
                f"cumulative {settings.train_until:g} / {settings.validation_until:g} / 1 of the rest",
            ],
            ["validation subset", f"at least {settings.validation_min_images} images, or all"],
            ["uncertain labels in fitting", f"`{settings.uncertain_labels}`"],
            [
                "class scored with at least",
                f"{minimum.test} positives and negatives in test, {minimum.train} in every train, "
                f"{minimum.validation} in every validation split",
            ],
        ],
    )


def perturbations(protocol: Protocol) -> str:
    """Strengths by severity."""
    return strengths(protocol.perturbations)


def extra_perturbations(protocol: Protocol) -> str:
    """Strengths by severity of the families beside the score."""
    return strengths(protocol.analyses.perturbations)


def strengths(families: Sequence[DegradationFamily]) -> str:
    """Strengths by family and severity."""
    return table(
        ["degradation", *(f"severity {severity}" for severity in families[0].severities)],
        [[f"`{family.id}`", *(f"{strength:g}" for strength in family.strengths)] for family in families],
    )


def modalities(_protocol: Protocol) -> str:
    """Which degradation suits which images, and why."""
    rows = [
        [f"`{name}`", facts.models, *(f"{suits}: {because}" for suits, because in judgements(name))]
        for name, facts in modality_table().degradations.items()
    ]
    return table(["degradation", "models", *(MODALITY_TITLES[modality] for modality in MODALITIES)], rows)


def judgements(degradation: str) -> Iterator[tuple[str, str]]:
    """Verdict and reason by modality."""
    for modality in MODALITIES:
        if found := suitability_of(degradation, modality):
            yield f"**{found.suits}**", found.because


def depths(protocol: Protocol) -> str:
    """Where encoders are read in the depth sweep."""
    shares = [share for share in protocol.analyses.depth.shares if share < 1]
    examples = {"12 blocks": 12, "24 blocks": 24, "27 blocks": 27, "5 stages": 5}
    rows = []
    for name, blocks in examples.items():
        found = sweep_depths(Tap(pool="gap", dim=1, blocks=blocks), shares)
        rows.append([name, *(str(depth.block) for depth in found)])
    return table(["encoder of", *(f"{share:.0%}" for share in shares), "100%"], rows)


def probe(protocol: Protocol) -> str:
    """Penalties and convergence."""
    settings = protocol.probe
    return table(
        ["what", "value"],
        [
            [
                "penalty",
                f"{settings.lambda_count} values, geometric from {settings.lambda_min:g} to {settings.lambda_max:g}",
            ],
            [
                "standard deviation floor",
                f"{settings.std_floor:g} of the median over features; below {settings.std_zero:g} a feature is 0",
            ],
            ["converged at relative gap", f"{settings.gap:g}"],
            ["iteration cap", f"{settings.max_iterations}"],
            [
                "a label chooses its own penalty with at least",
                f"{settings.lambda_min_validation} validation positives and negatives",
            ],
        ],
    )


def anchors(protocol: Protocol) -> str:
    """Anchors of both readings."""
    skill = load_protocol(f"{protocol.id}-skill")
    return table(
        ["axis", f"`{protocol.id}`: 0 at, 1 at", f"`{skill.id}`: 0 at, 1 at"],
        [
            [
                axis.replace("_", " "),
                *(f"{p.axes.anchors[axis].zero:g}, {p.axes.anchors[axis].one:g}" for p in (protocol, skill)),
            ]
            for axis in AXES
        ],
    )


def weights(protocol: Protocol) -> str:
    """Weights of the score."""
    score = protocol.score
    return table(
        ["term", "weight"],
        [
            ["dominance", f"{score.dominance:g}"],
            ["closeness to the ideal profile", f"{score.closeness:g}"],
            ["worst axis", f"{score.worst_axis:g}"],
        ],
    )


class TwoClasses:
    """A data set of two classes of equal size."""

    id = "own"
    task: TaskType = "multiclass"
    classes = ("one", "other")


def minimum(protocol: Protocol) -> str:
    """The smallest data set that is scored, found by splitting ever larger ones."""
    rows = []
    for images in IMAGES_PER_PATIENT:
        enough = partial(is_scored, protocol, images)
        patients = bisect_left(range(1, MANY_PATIENTS), True, key=enough) + 1
        rows.append([str(n) for n in (images, patients, patients * images, 2 * patients, 2 * patients * images)])
    header = ["images of each patient", "patients of a class", "images of a class", "patients in all", "images in all"]
    return table(header, rows)


def is_scored(protocol: Protocol, images: int, patients: int) -> bool:
    """Whether both classes are scored and label efficiency is estimable, at so many patients of each class."""
    of_class = images * patients
    index = pl.DataFrame(
        [(f"{n:05}", f"{n // images:05}", n // of_class, None) for n in range(2 * of_class)],
        schema={"image_id": pl.String, "group_id": pl.String, "label": pl.Int64, "quarantine": pl.String},
        orient="row",
    )
    splits = [split_seed(index, TwoClasses(), seed, protocol) for seed in protocol.data.seeds]
    eligible = eligible_classes(index, TwoClasses(), splits, protocol)["eligible"]
    return eligible.all() and all(split.distinct_fractions for split in splits)


def keys(model: type[FrozenModel]) -> str:
    """The keys of a table of ``config.toml``."""
    return table(
        ["key", "takes", "default", "what it is"],
        [
            [f"`{name}`", kind_of(field.annotation), f"`{json.dumps(field.default)}`", str(field.description)]
            for name, field in model.model_fields.items()
        ],
    )


TABLES = {
    function.__name__: function
    for function in (data, perturbations, extra_perturbations, modalities, depths, probe, anchors, weights)
}


def pages() -> dict[Path, Mapping[str, Callable[[], str]]]:
    """Page -> its blocks by name."""
    protocol = load_protocol("crs-v1")
    return {
        DOCS / "protocol.md": {name: partial(function, protocol) for name, function in TABLES.items()},
        DOCS / "own-data.md": {"minimum": partial(minimum, protocol)},
        DOCS / "configuration.md": {name: partial(keys, model) for name, model in CONFIGURED.items()},
        DOCS / "performance.md": measured.BLOCKS,
    }


def main() -> None:
    """Write the pages, or with ``--check`` fail where one is out of date."""
    is_check, stale = "--check" in sys.argv[1:], []
    for page, blocks in pages().items():
        text = page.read_text(encoding="utf-8")
        filled = render(text, blocks)
        if filled != text:
            stale.append(f"docs/{page.name}")
            if not is_check:
                page.write_text(filled, encoding="utf-8")
    if is_check and stale:
        raise SystemExit(f"out of date: {', '.join(stale)}; run: python tools/docs.py")


if __name__ == "__main__":
    main()
