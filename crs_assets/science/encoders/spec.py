"""What one encoder is, as data: architecture, weights, preprocessing and the point its features are taken from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, StringConstraints, field_validator, model_validator

from crs_assets.science.canonical import digest
from crs_assets.science.encoders.key_maps import KEY_MAPS
from crs_assets.science.toml_models import CatalogError, FrozenModel, read_toml, validate

ENCODER_FOLDER = Path(__file__).parents[2] / "catalog" / "encoders"

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Channel = Annotated[int, Field(ge=0, le=255)]
PoolType = Literal["cls", "gap", "gap_ln", "map", "proj", "pooler", "flatten"]
TAPPED_POOLS: tuple[PoolType, ...] = ("cls", "gap", "gap_ln")


class Architecture(FrozenModel):
    """The network, and how published tensor names become its own.

    Attributes:
        loader: ``timm`` (every network) or ``pixels`` (no network: the prepared image itself).
        arch: timm model name.
        kwargs: Arguments of ``timm.create_model``; ``num_classes`` is 0 unless given here.
        key_map: Entry of ``key_maps.KEY_MAPS``.
        position_resampling: How a ViT's position embedding is resampled when the input size is not the trained one.
            ``bicubic`` is Hugging Face's and DINOv2's way, ``bicubic-antialias`` timm's; the features differ.
    """

    loader: Literal["timm", "pixels"]
    arch: str | None = None
    kwargs: dict[str, bool | int | float | str] = Field(default_factory=dict)
    key_map: str = "none"
    position_resampling: Literal["bicubic", "bicubic-antialias"] = "bicubic"

    @field_validator("key_map")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in KEY_MAPS:
            raise ValueError(f"unknown key map; choose one of {sorted(KEY_MAPS)}")
        return name

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.loader == "timm") != (self.arch is not None):
            raise ValueError("arch is the timm model name: needed with loader 'timm', meaningless with 'pixels'")
        return self


class Weights(FrozenModel):
    """Where the weights come from: an installed package, or a file of a hub that is copied or fetched to a mirror.

    Attributes:
        source: ``package`` (a file inside an installed Python package), ``hub`` (a file of a hub repository, copied
            to the mirror folder), ``file`` (any other file, by its path in the mirror or an absolute path), ``none``.
        package: Import name of the package; its code is never run.
        repo: Hub repository, ``owner/name``.
        path: Path of a ``file``.
        file: Path inside the package or repository; ``*.index.json`` names a set of shards.
        revision: Commit or tag of the repository.
        sha256: Of the file, or a table file name -> SHA-256 for a set of shards.
        format: How the file is read; by its suffix when not given. A ``torchscript`` archive is a program, so it needs
            the one SHA-256 of the published file.
    """

    source: Literal["package", "hub", "file", "none"]
    package: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")] | None = None
    repo: Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    path: str | None = None
    file: str | None = None
    revision: str | None = None
    sha256: Sha256 | dict[str, Sha256] | None = None
    format: Literal["safetensors", "torch", "onnx", "torchscript"] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = {"package": {"package", "file"}, "hub": {"repo", "file"}, "file": {"path"}, "none": set()}[self.source]
        given = {name for name in ("package", "repo", "path", "file") if getattr(self, name) is not None}
        if given != needed:
            raise ValueError(f"source {self.source!r} takes exactly {sorted(needed)}, got {sorted(given)}")
        if self.source == "none" and (self.revision or self.sha256 or self.format):
            raise ValueError("source 'none' has no revision, sha256 or format")
        if self.format == "torchscript" and not isinstance(self.sha256, str):
            raise ValueError("a torchscript archive runs code as it is loaded: pin the SHA-256 of the published file")
        for part in (self.repo, self.path, self.file, self.revision):
            if part and ".." in Path(part).parts:
                raise ValueError(f"{part!r} leaves its folder with '..'")
        return self


class Preprocessing(FrozenModel):
    """From an image of any size to the network's input.

    Attributes:
        input_size: Side of the square input, pixels.
        resize: ``shortest``: short side to ``resize_to``, then the central square; ``squash``: both sides, whatever
            the aspect; ``pad``: first padded to a square with ``pad_colour``.
        resize_to: Short side before the central crop, pixels; ``input_size`` when not given.
        interpolation: Filter; ``box`` is area averaging.
        antialias: Widen the filter when reducing, as Pillow does. False samples as TensorFlow and older torchvision.
        pad_colour: RGB, 0..255.
        pre_pad: Side in pixels of a black square that the image is first fitted into (Lanczos).
        mean: Per channel, on the 0..1 scale.
        std: Per channel, on the 0..1 scale.
        colour: ``rgb`` (grey is repeated), ``grey`` (luma, repeated), ``grey_minmax`` (stretched to 0..255 first).
    """

    input_size: PositiveInt
    resize: Literal["shortest", "squash", "pad"]
    resize_to: PositiveInt | None = None
    interpolation: Literal["bilinear", "bicubic", "lanczos", "box"] = "bicubic"
    antialias: bool = True
    pad_colour: tuple[Channel, Channel, Channel] = (0, 0, 0)
    pre_pad: PositiveInt | None = None
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    colour: Literal["rgb", "grey", "grey_minmax"] = "rgb"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.resize_to is not None and (self.resize != "shortest" or self.resize_to < self.input_size):
            raise ValueError("resize_to goes with resize 'shortest' and is at least input_size")
        if min(self.std) <= 0:
            raise ValueError(f"std must be positive, got {self.std}")
        if not self.antialias and self.interpolation not in ("bilinear", "bicubic"):
            raise ValueError(f"antialias = false exists for bilinear and bicubic, not for {self.interpolation!r}")
        return self

    @property
    def geometry(self) -> dict[str, Any]:
        """What decides the prepared pixels: normalisation happens later, on the device. Plain data."""
        return self.model_dump(mode="json", exclude={"mean", "std"})


class Tap(FrozenModel):
    """Where the features are taken.

    Attributes:
        pool: ``cls`` (class token), ``gap`` (mean over patch tokens, or global average of a CNN), ``gap_ln`` (the mean
            before the final norm, then a layer norm without learned scale), ``map`` (attention pooling), ``proj``
            (after the projection head), ``pooler`` (whatever the network itself pools), ``flatten`` (pixels).
        block: Stop after this block, counted from 1, and pool there, before any final norm; the end when not given.
        dim: Length of a feature vector.
        blocks: Transformer blocks, or stages of a CNN.
        prefix_tokens: Tokens before the patches (class token, registers).
        stages: A CNN's stages by module name, shallowest first: what ``block`` counts.
    """

    pool: PoolType
    block: PositiveInt | None = None
    dim: PositiveInt
    blocks: NonNegativeInt
    prefix_tokens: NonNegativeInt = 0
    stages: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.block is not None and (self.block > self.blocks or self.pool not in TAPPED_POOLS):
            raise ValueError(f"block is 1..{self.blocks} and takes a pool of {list(TAPPED_POOLS)}, got {self.block}")
        if self.pool == "cls" and self.prefix_tokens == 0:
            raise ValueError("pool 'cls' needs a class token: prefix_tokens is 0")
        if self.stages and len(self.stages) != self.blocks:
            raise ValueError(f"{len(self.stages)} stages for {self.blocks} blocks")
        return self


class EncoderSpec(FrozenModel):
    """One encoder of the catalogue.

    Attributes:
        id: Name in keys and tables; equal to the file's name.
        title: Name for people.
        family: What the encoder was made for.
        specialty: Of a specialist.
        role: A ``control`` is never scored.
        untrained_seed: An untrained twin: random initial weights from this seed, no weights file.
        licence: Of the weights.
        gated: Whether terms have to be accepted before the weights can be had.
        citation: Where the encoder is described.
        parameters: Parameters of the network as loaded.
        absent: Data set id -> why there is no such cell.
        unverified: Facts of this file that nobody has checked against the published file.
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    title: str = Field(min_length=1)
    family: Literal["generalist", "broad-medical", "specialist", "control"]
    specialty: Literal["skin", "fundus", "chest"] | None = None
    role: Literal["encoder", "control"] = "encoder"
    untrained_seed: NonNegativeInt | None = None
    licence: str = Field(min_length=1)
    gated: bool = False
    citation: str = Field(min_length=1)
    parameters: NonNegativeInt | None = None
    absent: dict[str, str] = Field(default_factory=dict)
    unverified: tuple[str, ...] = ()
    architecture: Architecture
    weights: Weights
    preprocessing: Preprocessing
    tap: Tap

    @field_validator("id")
    @classmethod
    def _no_dots(cls, name: str) -> str:
        if ".." in name:
            raise ValueError("an id never holds '..', which partition ranges are written with")
        return name

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = [
            (self.family == "control") != (self.role == "control") and "family and role say 'control' together",
            (self.family == "specialist") != (self.specialty is not None)
            and "a specialist, and only it, has a specialty",
            self._weightless()
            and "weights.source 'none' goes with loader 'pixels' or an untrained_seed, and only them",
            (self.architecture.loader == "pixels") != (self.tap.pool == "flatten") and "pool 'flatten' is for pixels",
        ]
        found = [problem for problem in problems if problem]
        if found:
            raise ValueError("; ".join(str(problem) for problem in found))
        return self

    def _weightless(self) -> bool:
        no_file = self.weights.source == "none"
        pixels, untrained = self.architecture.loader == "pixels", self.untrained_seed is not None
        return no_file != (pixels or untrained) or (pixels and untrained)


def load_encoder_spec(path: Path) -> EncoderSpec:
    """Load one encoder's TOML file.

    Raises:
        CatalogError: If the file is missing, malformed, or its name and id differ.
    """
    spec = validate(EncoderSpec, read_toml(path), source=path.name)
    if spec.id != path.stem:
        raise CatalogError(f"{path.name}: the file is named {path.stem!r} but its id is {spec.id!r}; make them equal.")
    return spec


def fingerprint(spec: EncoderSpec, weight_hashes: Mapping[str, str]) -> str:
    """SHA-256 (64 hex digits) of what decides the features: content of the weights, network, input and tap.

    Titles, licences and citations do not enter, nor does the place or the name of the weight files.

    Args:
        spec: The encoder.
        weight_hashes: File name -> SHA-256, as ``weights.hashes`` returns them; empty without weights.
    """
    decisive = {
        "architecture": spec.architecture.model_dump(mode="json"),
        "preprocessing": spec.preprocessing.model_dump(mode="json"),
        "tap": spec.tap.model_dump(mode="json"),
        "untrained_seed": spec.untrained_seed,
        "weights": sorted(weight_hashes.values()),
    }
    return digest(decisive)
