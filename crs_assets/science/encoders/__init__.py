"""Frozen image encoders: what one is (``spec``), where its weights lie (``weights``), how it runs (``frozen``)."""

from crs_assets.science.encoders.errors import AbsentWeightsError, EncoderMemoryError, WeightsError
from crs_assets.science.encoders.frozen import FrozenEncoder, load_encoder, single_threaded_tensors
from crs_assets.science.encoders.preprocessing import prepare
from crs_assets.science.encoders.spec import ENCODER_FOLDER, EncoderSpec, fingerprint, load_encoder_spec
from crs_assets.science.encoders.tuning import PrecisionError, RunMode, smallest_cosine, tune
from crs_assets.science.encoders.twins import untrained_twin
from crs_assets.science.encoders.weights import hashes, locate, verify

__all__ = [
    "ENCODER_FOLDER",
    "AbsentWeightsError",
    "EncoderMemoryError",
    "EncoderSpec",
    "FrozenEncoder",
    "PrecisionError",
    "RunMode",
    "WeightsError",
    "fingerprint",
    "hashes",
    "load_encoder",
    "load_encoder_spec",
    "locate",
    "prepare",
    "single_threaded_tensors",
    "smallest_cosine",
    "tune",
    "untrained_twin",
    "verify",
]
