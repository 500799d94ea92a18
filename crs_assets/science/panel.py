"""The reference panel: a frozen file of encoders' profiles that scores are taken against.

A panel holds aggregates only. It is named by its content: a changed panel is another panel.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crs_assets.science.canonical import canonical_json, digest
from crs_assets.science.protocol import AXES, Protocol
from crs_assets.science.scoring import ReliabilityScore, reliability_score

SCHEMA = 1
LOCAL = "-local-"


class PanelError(ValueError):
    """A panel that cannot be used, or a score that may not be taken against it; the message says the cure."""


def freeze(
    suite: str,
    readings: list[Protocol],
    conditions: Mapping[str, Mapping[str, Any]],
    profiles: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Make a panel of encoders' profiles.

    Args:
        suite: The suite's id, which begins the panel's name.
        readings: The protocol and its further readings.
        conditions: Data set -> what a score must share with the panel: index, splits, label policy, classes, targets,
            and whether the data set can rank encoders.
        profiles: Encoder -> ``weights`` (fingerprint) and ``datasets`` -> reading -> profile.

    Returns:
        The panel: plain data, with its own SHA-256 and name.

    A cell near chance may have no axes under a reading that divides by what is above it. Where a data set can rank
    encoders that is refused; where it cannot, the cell stays in the panel without axes and is nobody's peer.

    Raises:
        PanelError: If it has no encoder, or a member lacks a cell.
    """
    if not profiles:
        raise PanelError("a panel needs at least one encoder; run the suite's panel members first.")
    lacking = [
        f"{encoder}/{dataset}"
        for encoder, profile in profiles.items()
        for dataset in profile["datasets"]
        if conditions[dataset]["rankable"]
        and any(entry["z"] is None for entry in profile["datasets"][dataset].values())
    ]
    if lacking:
        raise PanelError(f"no axes for {', '.join(lacking)}; a panel member needs all four on each of its data sets.")
    body = {
        "schema": SCHEMA,
        "suite": suite,
        "protocol": readings[0].id,
        "readings": {
            protocol.id: {
                "form": protocol.axes.form,
                "anchors": {axis: [anchor.zero, anchor.one] for axis, anchor in protocol.axes.anchors.items()},
                "weights": protocol.score.model_dump(),
            }
            for protocol in readings
        },
        "datasets": {name: dict(facts) for name, facts in sorted(conditions.items())},
        "encoders": {name: dict(profile) for name, profile in sorted(profiles.items())},
    }
    with_scores = {**body, "scores": _member_scores(body, readings)}
    sha256 = digest(with_scores)
    return {**with_scores, "sha256": sha256, "name": _local_name(suite, sha256)}


def write(panel: Mapping[str, Any], folder: Path) -> Path:
    """Write a panel under its name; writing the same again changes nothing.

    Raises:
        PanelError: If other content has the name already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{panel['name']}.json"
    text = json.dumps(panel, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise PanelError(f"{path.name} exists with other content; a published panel is never changed, give a new name.")
    temporary = path.with_suffix(".partial")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return path


def read(path: Path) -> dict[str, Any]:
    """Read and verify a panel.

    Raises:
        PanelError: If it is missing, not of this schema, or altered.
    """
    try:
        panel: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PanelError(f"no panel {path.stem}; bring its file back, or freeze one.") from error
    except json.JSONDecodeError as error:
        raise PanelError(f"{path.name}: not JSON ({error}).") from error
    verify(panel, path.name)
    if panel["name"] != path.stem:
        raise PanelError(f"{path.name}: it names itself {panel['name']}; give the file its own name back.")
    return panel


def verify(panel: Mapping[str, Any], source: str) -> None:
    """Check schema, hash and name.

    Raises:
        PanelError: Naming what differs.
    """
    missing = [
        key
        for key in ("schema", "suite", "protocol", "readings", "datasets", "encoders", "scores", "sha256", "name")
        if key not in panel
    ]
    if missing:
        raise PanelError(f"{source}: not a reference panel; missing {missing}.")
    if panel["schema"] != SCHEMA:
        raise PanelError(f"{source}: schema {panel['schema']}, this version reads {SCHEMA}.")
    body = {key: value for key, value in panel.items() if key not in ("sha256", "name")}
    if digest(body) != panel["sha256"]:
        raise PanelError(f"{source}: its content does not give its SHA-256; it was altered after it was frozen.")
    if LOCAL in panel["name"] and panel["name"] != _local_name(panel["suite"], panel["sha256"]):
        raise PanelError(f"{source}: {panel['name']} is not the name its content gives; freeze it again.")


def differences(panel: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Where two panels differ, by path, at most 20; empty where they are equal."""
    found: list[str] = []
    _compare(panel, other, "", found)
    return found[:20]


def check_comparable(panel: Mapping[str, Any], dataset: str, conditions: Mapping[str, Any], protocol: str) -> None:
    """Refuse a score that does not share the panel's data, splits, policy or protocol.

    Raises:
        PanelError: Naming each thing that differs, and the cure.
    """
    if panel["protocol"] != protocol:
        raise PanelError(
            f"panel {panel['name']} is of protocol {panel['protocol']}, these runs of {protocol}; "
            "results of two protocols never share a table. Freeze a panel of this suite."
        )
    expected = panel["datasets"].get(dataset)
    if expected is None:
        raise PanelError(
            f"panel {panel['name']} does not cover {dataset}: run the suite's panel members on it, and freeze another."
        )
    wrong = [name for name, value in conditions.items() if canonical_json(expected.get(name)) != canonical_json(value)]
    if wrong:
        raise PanelError(
            f"{dataset}: {', '.join(wrong)} differ from those of panel {panel['name']}; scores would not compare. "
            "Restore the data the panel was made on, or run the panel members on these and freeze another."
        )


def score_against(
    panel: Mapping[str, Any],
    reading: Protocol,
    *,
    encoder: str,
    weights: str,
    dataset: str,
    z: Mapping[str, float],
    transfer: bool = True,
) -> ReliabilityScore:
    """The Clinical Reliability Score of one cell against the panel's entries of other encoders.

    Reads the panel and the cell's own z and nothing else, so another encoder's arrival cannot move it.

    Args:
        panel: A verified panel.
        reading: Whose anchors and weights apply.
        encoder: Id of the scored encoder; its own entry, and any with its weights, is no peer.
        weights: Its fingerprint.
        dataset: The data set.
        z: Normalised axes.
        transfer: False compares with the peers' z without their transfer term.

    Raises:
        PanelError: If the panel has no peer on the data set.
    """
    field = "z" if transfer else "z_without_transfer"
    cells = peers_of(panel, reading, encoder=encoder, weights=weights, dataset=dataset)
    if not cells:
        raise PanelError(f"panel {panel['name']} has no other encoder on {dataset}; freeze a panel with more members.")
    peers = np.array([[cell[field][axis] for axis in AXES] for cell in cells])
    return reliability_score([z[axis] for axis in AXES], peers, weights=reading.score)


def peers_of(
    panel: Mapping[str, Any], reading: Protocol, *, encoder: str, weights: str, dataset: str
) -> list[Mapping[str, Any]]:
    """The panel's cells that an encoder is compared with on a data set: of other encoders, with axes."""
    cells = [
        entry["datasets"][dataset][reading.id]
        for name, entry in sorted(panel["encoders"].items())
        if name != encoder and entry["weights"] != weights and dataset in entry["datasets"]
    ]
    return [cell for cell in cells if cell["z"] is not None]


def _local_name(suite: str, sha256: str) -> str:
    return f"{suite}{LOCAL}{sha256[:8]}"


def _member_scores(body: Mapping[str, Any], readings: list[Protocol]) -> dict[str, Any]:
    panel = {**body, "name": body["suite"]}
    scores: dict[str, Any] = {}
    for name, entry in body["encoders"].items():
        for dataset, profile in entry["datasets"].items():
            for reading in readings:
                cell = {"encoder": name, "weights": entry["weights"], "dataset": dataset}
                rankable = body["datasets"][dataset]["rankable"]
                if not rankable and (profile[reading.id]["z"] is None or not peers_of(panel, reading, **cell)):
                    continue
                if len([other for other in body["encoders"].values() if dataset in other["datasets"]]) < 2:
                    raise PanelError(f"{dataset}: a panel needs two encoders on it, this one has fewer.")
                scored = score_against(panel, reading, z=profile[reading.id]["z"], **cell)
                scores.setdefault(name, {}).setdefault(dataset, {})[reading.id] = scored.crs
    return scores


def _compare(a: Any, b: Any, path: str, found: list[str]) -> None:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted({*a, *b}):
            _compare(a.get(key), b.get(key), f"{path}/{key}", found)
    elif a != b:
        found.append(f"{path.lstrip('/')}: {a!r:.40} against {b!r:.40}")
