"""The whole chain against a second computation: the protocol's text, hashlib, timm, scikit-learn and plain numpy.

Nothing of the package's splits, probes, metrics, axes or scoring is used for the expected values.
"""

from functools import cache

import numpy as np
import pytest
from PIL import Image
from straight_line import (
    AT_TARGET,
    CELLS,
    DEGRADED,
    FRACTIONS,
    MEMBERS,
    SEEDS,
    Reference,
    arrow,
    auroc,
    calibration_error,
    manifest,
)

from crs_assets.stages.data import read_classes, read_fractions, read_index, read_splits
from crs_assets.stages.probes import read_runs
from crs_assets.stages.scores import read_profile, read_score


@pytest.fixture(scope="module")
def reference(finished_home):
    """(data set, seed) -> its reference; (encoder, data set, seed) -> {(fraction, condition): AUROC, ECE, slacks}."""
    splits = {
        (name, seed): Reference(finished_home, name, seed) for name in ("tiny-skin", "tiny-chest") for seed in SEEDS
    }

    @cache
    def numbers(encoder, dataset, seed):
        one = splits[dataset, seed]
        classes = one.scored([splits[dataset, other] for other in SEEDS])
        ids, features = arrow(finished_home, "features", encoder, dataset, "features")
        assert ids == one.ids
        test = one.rows_of("test")
        sets = {"clean": (one.labels[test], features[test], classes)}
        for condition in DEGRADED:
            ids, degraded = arrow(finished_home, "degraded_features", encoder, dataset, condition)
            assert ids == [one.ids[i] for i in test]
            sets[condition] = (one.labels[test], degraded, classes)
        if one.multilabel:
            rows = sorted(manifest(finished_home, "tiny-chest-b"), key=lambda row: row["image_id"])
            labels = one.read_labels(rows, AT_TARGET)
            both = [c for c in classes if min((labels[:, c] == 1).sum(), (labels[:, c] == 0).sum()) >= 4]
            sets["transfer"] = (labels, arrow(finished_home, "features", encoder, "tiny-chest-b", "features")[1], both)
            sets["source"] = (one.labels[test], features[test], both)
        scale, found = one.standardise(features), {}
        for fraction in FRACTIONS:
            logits = one.fit(features, fraction)
            for condition, (labels, x, chosen) in sets.items():
                predicted = logits(scale(x))
                area, swaps = auroc(labels, predicted, chosen, one.multilabel)
                error, moves = calibration_error(labels, predicted, chosen, one.multilabel)
                found[fraction, condition] = area, error, swaps, moves
        return found

    return splits, numbers


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dataset", ["tiny-skin", "tiny-chest"])
def test_every_image_has_the_role_and_subsets_of_the_protocols_text(finished, reference, dataset, seed):
    one = reference[0][dataset, seed]
    frame = read_splits(finished, dataset, seed)
    assert frame["image_id"].to_list() == one.ids
    assert frame["role"].to_list() == [one.role[g] for g in one.group]
    for role, fractions in one.subsets.items():
        for fraction, rows in fractions.items():
            mine = (frame["role"] == role) & (frame["enters_at"].fill_null(9.0) <= fraction)
            np.testing.assert_array_equal(np.flatnonzero(mine.to_numpy()), rows)
    sizes = read_fractions(finished, dataset, seed)
    assert sizes["n_fit"].to_list() == [len(one.subsets["train"][f]) for f in FRACTIONS]
    assert sizes["n_val"].to_list() == [len(one.subsets["validation"][f]) for f in FRACTIONS]
    eligible = read_classes(finished, dataset, seed).filter("eligible")["class"].to_list()
    every_seed = [reference[0][dataset, other] for other in SEEDS]
    assert eligible == [one.names[c] for c in one.scored(every_seed)]
    tested = read_index(finished, dataset).filter("is_test")["image_id"].to_list()
    assert tested == [one.ids[i] for i in one.rows_of("test")]


@pytest.mark.parametrize("dataset", ["tiny-skin", "tiny-chest"])
def test_features_are_those_of_the_network_on_the_image(finished_home, dataset):
    import timm
    import torch
    from safetensors.torch import load_file

    kwargs = {"img_size": 32, "patch_size": 16, "embed_dim": 32, "depth": 2, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=0, **kwargs).eval()
    model.load_state_dict(load_file(finished_home / "weights" / "tests" / "vit-b" / "model.safetensors"))

    def encoded(images):
        resized = [image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR) for image in images]
        batch = torch.from_numpy(np.stack([np.asarray(image) for image in resized])).permute(0, 3, 1, 2) / 255
        with torch.inference_mode():
            return model.forward_features((batch - 0.5) / 0.5)[:, 0].numpy()

    def faded(image):
        # Every value half way to a quarter towards the mean BT.601 luma.
        pixels = np.asarray(image).astype(np.float32)
        luma = pixels @ np.array([0.299, 0.587, 0.114]) if pixels.ndim == 3 else pixels
        return Image.fromarray(np.clip(np.rint(luma.mean() + 0.25 * (pixels - luma.mean())), 0, 255).astype(np.uint8))

    rows = {row["image_id"]: row["path"] for row in manifest(finished_home, dataset)}
    for stage, name, change in (
        ("features", "features", lambda image: image),
        ("degraded_features", "contrast-3", faded),
    ):
        ids, stored = arrow(finished_home, stage, "vit-b", dataset, name)
        images = [Image.open(finished_home / "data" / dataset / rows[i.removeprefix(f"{dataset}/")]) for i in ids]
        # Rounding of the degraded pixel at exactly one half may differ between two ways to compute the mean.
        tolerance = 1e-5 if stage == "features" else 2e-2
        np.testing.assert_allclose(stored, encoded([change(image) for image in images]), atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "dataset"), CELLS)
def test_every_run_has_the_auroc_and_calibration_error_of_scikit_learn(finished, reference, encoder, dataset):
    equal = []
    for seed in SEEDS:
        expected = reference[1](encoder, dataset, seed)
        runs = read_runs(finished, encoder, f"{dataset}.s{seed}")
        assert runs.height == len(FRACTIONS) * (1 + len(DEGRADED) + (dataset == "tiny-chest"))
        assert runs["converged"].all()
        for row in runs.iter_rows(named=True):
            area, error, swaps, moves = expected[row["fraction"], row["condition"]]
            where = f"{encoder} {dataset} seed {seed} {row['fraction']} {row['condition']}"
            assert row["auroc"] == pytest.approx(area, abs=1e-4 + swaps), where
            assert row["ece"] == pytest.approx(error, abs=1e-3 + moves), where
            equal.append(abs(row["auroc"] - area) < 1e-12 and abs(row["ece"] - error) < 1e-3)
            if row["condition"] == "transfer":
                source, _, swaps, _ = expected[row["fraction"], "source"]
                assert row["auroc_source"] == pytest.approx(source, abs=1e-4 + swaps), where
    assert np.mean(equal) > 0.8


def raw_axes(found, skill):
    clean, level = found[1.0, "clean"][0], 0.5 if skill else 0.0
    partial = [(found[f, "clean"][0] - level) / (clean - level) for f in (0.2, 0.5)]
    drops = [(clean - found[1.0, c][0]) / (clean - 0.5 if skill else 1) for c in DEGRADED]
    parts = [np.mean(drops), max(drops)]
    if (1.0, "transfer") in found:
        source = found[1.0, "source"][0]
        parts.append((source - found[1.0, "transfer"][0]) / (source - 0.5 if skill else 1))
    robust, inner = (float(np.mean(np.maximum(p, 0))) for p in (parts, parts[:2]))
    return [clean, found[1.0, "clean"][1], float(np.mean(partial)), robust], inner


def placed(raw, skill):
    """z: linear between the anchors, clipped, six decimals."""
    zero = (0.5, 0.25, 0.0 if skill else 0.5, 1.0 if skill else 0.25)
    one = (1.0, 0.0, 1.0, 0.0)
    return [round(min(max((r - a) / (b - a), 0.0), 1.0), 6) for r, a, b in zip(raw, zero, one, strict=True)]


@pytest.mark.parametrize("reading", ["tiny-v1", "tiny-v1-skill"])
@pytest.mark.parametrize("dataset", ["tiny-skin", "tiny-chest"])
def test_axes_and_score_follow_exactly_from_the_stored_runs(finished, dataset, reading):
    skill, z = reading.endswith("skill"), {}
    names = ("discrimination", "calibration", "label_efficiency", "robustness")
    for encoder in (*MEMBERS, "pixels-1"):
        seeds = []
        for seed in SEEDS:
            runs = read_runs(finished, encoder, f"{dataset}.s{seed}").to_dicts()
            found = {(row["fraction"], row["condition"]): (row["auroc"], row["ece"]) for row in runs}
            found |= {
                (row["fraction"], "source"): (row["auroc_source"],) for row in runs if row["condition"] == "transfer"
            }
            seeds.append(raw_axes(found, skill)[0])
        stored = read_profile(finished, encoder)["datasets"][dataset][reading]
        if stored["z"] is not None:
            z[encoder] = placed(np.mean(seeds, axis=0), skill)
            np.testing.assert_allclose([stored["raw"][name] for name in names], np.mean(seeds, axis=0), rtol=1e-13)
            assert [stored["z"][name] for name in names] == z[encoder]
    assert set(MEMBERS) <= set(z)
    for encoder, mine in z.items():
        peers = [z[other] for other in MEMBERS if other != encoder]
        beaten = sum(all(a >= b for a, b in zip(mine, peer, strict=True)) and mine != peer for peer in peers)
        closeness = 1 - sum((1 - value) ** 2 for value in mine) ** 0.5 / 2
        score = read_score(finished, encoder)["readings"][reading]["datasets"][dataset]
        assert (score["dominated"], score["peers"], score["worst_axis"]) == (beaten, len(peers), min(mine))
        expected = 0.60 * beaten / len(peers) + 0.25 * closeness + 0.15 * min(mine)
        assert score["crs"] == pytest.approx(expected, abs=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["tiny-v1", "tiny-v1-skill"])
@pytest.mark.parametrize("dataset", ["tiny-skin", "tiny-chest"])
def test_axes_and_score_are_those_worked_out_by_hand(finished, reference, dataset, reading):
    skill = reading.endswith("skill")
    names = ("discrimination", "calibration", "label_efficiency", "robustness")
    seeds = {e: [raw_axes(reference[1](e, dataset, seed), skill) for seed in SEEDS] for e in (*MEMBERS, "pixels-1")}
    raw = {encoder: np.mean([axes for axes, _ in both], axis=0) for encoder, both in seeds.items()}
    z = {encoder: placed(axes, skill) for encoder, axes in raw.items()}
    for encoder, mine in z.items():
        stored = read_profile(finished, encoder)["datasets"][dataset][reading]
        if stored["z"] is None:
            assert skill
            assert min(axes[0] for axes, _ in seeds[encoder]) < 0.55
            continue
        np.testing.assert_allclose([stored["raw"][name] for name in names], raw[encoder], atol=5e-3)
        without = np.mean([inner for _, inner in seeds[encoder]])
        np.testing.assert_allclose(stored["robustness_without_transfer"], without, atol=2e-3)
        np.testing.assert_allclose([stored["z"][name] for name in names], mine, atol=2e-2)
        peers = [z[other] for other in MEMBERS if other != encoder]
        beaten = sum(all(a >= b for a, b in zip(mine, peer, strict=True)) and mine != peer for peer in peers)
        closeness = 1 - sum((1 - value) ** 2 for value in mine) ** 0.5 / 2
        score = read_score(finished, encoder)["readings"][reading]["datasets"][dataset]
        assert (score["dominated"], score["peers"]) == (beaten, len(peers))
        expected = 0.60 * beaten / len(peers) + 0.25 * closeness + 0.15 * min(mine)
        assert score["crs"] == pytest.approx(expected, abs=5e-3)
    complete = read_score(finished, "vit-a")["readings"]["tiny-v1"]
    both = [entry["crs"] for entry in complete["datasets"].values()]
    assert complete["aggregate"]["crs"] == pytest.approx(sum(both) / 2, abs=1e-15)
