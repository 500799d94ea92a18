"""A suite small enough for tests: two data sets and a transfer target of drawn images, tiny networks in true formats.

The images are noise with a class-dependent stain or bar, so that probes do better than chance and worse than perfect.
"""

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from crs_assets.resources.artifact_store import ArtifactStore
from crs_assets.resources.bench import Bench
from crs_assets.resources.compute import Compute
from crs_assets.resources.data_roots import Roots
from crs_assets.resources.home import Home
from crs_assets.resources.weights import Weights
from crs_assets.stages.data import DatasetIndex, Splits
from crs_assets.stages.encoders import DegradedFeatures, EncoderWeights, Features
from crs_assets.stages.panel import ReferencePanel
from crs_assets.stages.probes import NullControls, ProbePredictions, RunMetrics
from crs_assets.stages.scores import AxisProfile, Crs
from crs_assets.stages.stage import Outcome, Stage

SUITE = "tiny"
SKIN_CLASSES = ("naevus", "melanoma", "keratosis")
CHEST_LABELS = ("effusion", "oedema", "nodule", "rare")
TARGET_LABELS = ("nodule", "effusion")
NETWORK = {"img_size": 32, "patch_size": 16, "embed_dim": 32, "depth": 2, "num_heads": 2}
TRAINED = ("vit-a", "vit-b", "vit-c", "vit-d")
UP_TO_PROFILE: tuple[Stage, ...] = (
    DatasetIndex(),
    Splits(),
    EncoderWeights(),
    Features(),
    DegradedFeatures(),
    ProbePredictions(),
    RunMetrics(),
    NullControls(),
    AxisProfile(),
)

PROTOCOL = """
extends = "crs-v1"
id = "tiny-v1"
title = "For tests"
salt = "tiny-v1"
perturbations = [
    { id = "contrast", severities = [1, 3], strengths = [0.75, 0.25] },
    { id = "jpeg", severities = [3], strengths = [5] },
]
[data]
seeds = [0, 1]
fractions = [0.2, 0.5, 1.0]
test_fraction = 0.3
validation_min_images = 8
[data.eligibility]
test = 4
train = 3
validation = 1
[images]
working_short_side = 64
[probe]
lambda_min = 1e-3
lambda_max = 1e2
lambda_count = 5
lambda_min_validation = 3
[metrics]
null_band_draws = 20
[statistics]
replicates = 300
[analyses.uncertainty]
case_replicates = 120
[analyses.control_probes]
mlp_epochs = 5
mlp_weight_decays = [0.1, 1.0]
"""
READING = """
extends = "tiny-v1"
id = "tiny-v1-skill"
title = "For tests, above chance"
[axes]
form = "skill"
[axes.anchors]
label_efficiency = { zero = 0.0, one = 1.0 }
robustness = { zero = 1.0, one = 0.0 }
"""
SUITE_FILE = """
id = "tiny"
title = "For tests"
protocol = "tiny-v1"
readings = ["tiny-v1-skill"]
datasets = ["tiny-skin", "tiny-chest"]
encoders = ["vit-a", "vit-b", "vit-c", "vit-d"]
controls = ["pixels-1"]
shuffled_labels_encoder = "vit-a"
panel = "local"
panel_members = ["vit-a", "vit-b", "vit-c"]
"""
DATASET = """
id = "{id}"
title = "Drawn for tests"
specialty = "other"
task = "{task}"
classes = {classes}
reader = "manifest"
role = "{role}"
{target}
group = "patient"
label_source = "drawn"
licence = "none"
access = "open"
citation = "none"
subgroups = {subgroups}
"""
ENCODER = """
id = "{id}"
title = "{id}"
family = "{family}"
role = "{role}"
licence = "none"
citation = "none"
[absent]
{absent}
[architecture]
loader = "{loader}"
{architecture}
[weights]
{weights}
[preprocessing]
input_size = {side}
resize = "squash"
interpolation = "{interpolation}"
mean = [0.5, 0.5, 0.5]
std = [0.5, 0.5, 0.5]
[tap]
pool = "{pool}"
dim = {dim}
blocks = {blocks}
prefix_tokens = {prefix}
"""


def open_bench(home: Path, **compute: int) -> Bench:
    """The tiny suite of a home, read anew."""
    settings = {"batch_size": 8, "chunk_batches": 2, "workers": 1, "threads": 1, **compute}
    site = Home(home)
    return Bench(
        suite=site.load_suite(SUITE),
        home=site,
        store=ArtifactStore(site.artifacts),
        compute=Compute(device="cpu", **settings),
        roots=Roots(site.data, {}),
        weights=Weights(site.mirror, site.path / "cache" / "hashes.json"),
    )


def ensure_all(bench: Bench, stages: Iterable[Stage] = UP_TO_PROFILE, only: str | None = None) -> list[Outcome]:
    """Bring every partition of the stages up to date; ``only`` restricts what has an encoder to that one."""
    return [
        stage.ensure(bench, *parts)
        for stage in stages
        for parts in stage.partitions(bench)
        if only is None or parts[0] not in bench.suite.encoders or parts[0] == only
    ]


def score_all(bench: Bench) -> None:
    """Publish the score of every encoder that has a profile, against the panel in force."""
    for stage in (ReferencePanel(), Crs()):
        for parts in stage.partitions(bench):
            if stage.recipe(bench, *parts) is not None:
                stage.ensure(bench, *parts)


def stale(bench: Bench, stages: Iterable[Stage] = (*UP_TO_PROFILE, ReferencePanel(), Crs())) -> dict[str, set[str]]:
    """Stage -> partitions that the store does not hold as their recipes would make them now."""
    found: dict[str, set[str]] = {}
    for stage in stages:
        for parts in stage.partitions(bench):
            if not stage.is_current(bench, *parts):
                found.setdefault(stage.name, set()).add("|".join(parts))
    return found


def remade(bench: Bench, stages: Iterable[Stage] = (*UP_TO_PROFILE, ReferencePanel(), Crs())) -> dict[str, set[str]]:
    """Bring the suite up to date in order; stage -> partitions that had to be made."""
    found: dict[str, set[str]] = {}
    for stage in stages:
        for parts in stage.partitions(bench):
            if stage.ensure(bench, *parts).made:
                found.setdefault(stage.name, set()).add("|".join(parts))
    return found


def write_catalogue(home: Path) -> None:
    """The suite, its protocol and reading, data sets and encoders as entries of one's own."""
    catalogue = home / "catalog"
    for folder in ("suites", "protocols", "datasets", "encoders"):
        (catalogue / folder).mkdir(parents=True)
    (catalogue / "suites" / "tiny.toml").write_text(SUITE_FILE)
    (catalogue / "protocols" / "tiny-v1.toml").write_text(PROTOCOL)
    (catalogue / "protocols" / "tiny-v1-skill.toml").write_text(READING)
    write_dataset(catalogue, "tiny-skin", "multiclass", SKIN_CLASSES, subgroups=("site",))
    write_dataset(catalogue, "tiny-chest", "multilabel", CHEST_LABELS, target="tiny-chest-b")
    write_dataset(catalogue, "tiny-chest-b", "multilabel", TARGET_LABELS, role="target")
    for name in TRAINED:
        absent = 'tiny-chest = "drawn without a chest"' if name == "vit-d" else ""
        (catalogue / "encoders" / f"{name}.toml").write_text(network_entry(name, absent=absent))
    pixels = ENCODER.format(
        id="pixels-1",
        family="control",
        role="control",
        absent="",
        loader="pixels",
        architecture="",
        weights='source = "none"',
        side=1,
        interpolation="box",
        pool="flatten",
        dim=3,
        blocks=0,
        prefix=0,
    )
    (catalogue / "encoders" / "pixels-1.toml").write_text(pixels)


def write_dataset(
    catalogue: Path,
    name: str,
    task: str,
    classes: tuple[str, ...],
    role: str = "source",
    target: str = "",
    subgroups: tuple[str, ...] = (),
) -> None:
    line = f'transfer_target = "{target}"' if target else ""
    text = DATASET.format(id=name, task=task, classes=list(classes), role=role, target=line, subgroups=list(subgroups))
    (catalogue / "datasets" / f"{name}.toml").write_text(text)


def network_entry(name: str, *, absent: str = "") -> str:
    """The TOML of a tiny vision transformer."""
    kwargs = ", ".join(f"{key} = {value}" for key, value in NETWORK.items())
    return ENCODER.format(
        id=name,
        family="generalist",
        role="encoder",
        absent=absent,
        loader="timm",
        architecture=f'arch = "vit_tiny_patch16_224"\nkwargs = {{ {kwargs} }}',
        weights=f'source = "hub"\nrepo = "tests/{name}"\nfile = "model.safetensors"',
        side=32,
        interpolation="bilinear",
        pool="cls",
        dim=32,
        blocks=2,
        prefix=1,
    )


def write_network(home: Path, name: str, seed: int) -> None:
    """Published weights of a tiny network in the mirror."""
    import timm
    import torch
    from safetensors.torch import save_file

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = timm.create_model("vit_tiny_patch16_224", num_classes=0, **NETWORK)
        tensors = {key: value * 5 for key, value in model.state_dict().items()}
        # Smooth filters see through the noise; strong positions tell the network where a bar lies.
        filters = torch.randn(NETWORK["embed_dim"], 3, 2, 2) / 8
        tensors["patch_embed.proj.weight"] = filters.repeat_interleave(8, 2).repeat_interleave(8, 3)
        tensors["pos_embed"] = torch.randn_like(tensors["pos_embed"])
    folder = home / "weights" / "tests" / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "model.safetensors")


def write_skin(root: Path, images: int = 150) -> None:
    """Stains on noise: the class decides the corner, never the mean colour; every third patient has two images."""
    rng = np.random.default_rng(1)
    rows = []
    corners = ((9, 9), (9, 33), (31, 9))
    for number in range(images):
        label = int(rng.choice(3, p=[0.5, 0.3, 0.2]))
        pixels = rng.normal(150, 35, (40, 44, 3)) + rng.normal(0, 20, 3)
        y, x = np.mgrid[:40, :44]
        top, left = corners[label] if rng.random() < 0.9 else corners[rng.integers(3)]
        inside = (y - rng.normal(top, 3)) ** 2 + (x - rng.normal(left, 3)) ** 2 < rng.normal(8, 2) ** 2
        pixels[inside] -= np.array([30, 60, 80]) + rng.normal(0, 15, 3)
        rows.append(
            {
                "image_id": f"s{number:03d}",
                "path": f"images/s{number:03d}.png",
                "patient_id": f"p{number - (number % 3 == 2):03d}",
                "label": SKIN_CLASSES[label],
                "site": rng.choice(["arm", "back", ""]),
            }
        )
        save_image(root / rows[-1]["path"], pixels)
    write_manifest(root, rows)


def write_chest(root: Path, images: int, labels: tuple[str, ...], seed: int, shift: float) -> None:
    """Grey noise with a bar per finding; some cells are uncertain or blank."""
    rng = np.random.default_rng(seed)
    prevalence = {"effusion": 0.4, "oedema": 0.35, "nodule": 0.3, "rare": 0.02}
    rows = []
    for number in range(images):
        truth = {name: int(rng.random() < prevalence[name]) for name in CHEST_LABELS}
        pixels = rng.normal(110 + shift, 25, (40, 40))
        pixels[30:, :] += 38 * truth["effusion"] + rng.normal(0, 16)
        pixels[8:24, 4:16] += 34 * truth["oedema"] + rng.normal(0, 16)
        pixels[6:18, 24:36] -= 42 * truth["nodule"] + rng.normal(0, 16)
        cells = {}
        for name in labels:
            doubt = rng.random()
            cells[f"label:{name}"] = -1 if doubt < 0.06 else "" if doubt < 0.12 and not truth[name] else truth[name]
        patient = f"q{number // 2 if number % 5 == 1 else number + images:03d}"
        rows.append({"image_id": f"c{number:03d}", "path": f"c{number:03d}.png", "patient_id": patient, **cells})
        save_image(root / rows[-1]["path"], pixels)
    write_manifest(root, rows)


def save_image(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path)


def write_manifest(root: Path, rows: list[dict[str, object]]) -> None:
    with (root / "manifest.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_home(home: Path) -> None:
    """Everything that the tiny suite needs, nothing computed."""
    write_catalogue(home)
    for seed, name in enumerate(TRAINED):
        write_network(home, name, seed)
    write_skin(home / "data" / "tiny-skin")
    write_chest(home / "data" / "tiny-chest", 150, CHEST_LABELS, seed=2, shift=0)
    write_chest(home / "data" / "tiny-chest-b", 70, TARGET_LABELS, seed=3, shift=-12)
