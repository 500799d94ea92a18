"""DICOM files, by the optional package pydicom: from stored values to the grey or colour picture that a viewer shows.

The order of operations is the standard's (PS3.3 C.11.1, C.11.2, C.11.6) and decides the result: decode, modality LUT,
VOI LUT, and only then the inversion of MONOCHROME1; inverting before the window shows another picture. Only elements
that describe pixels are ever parsed: what identifies a patient reaches no message, log or table.
"""

import io
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.images.errors import ImageError

if TYPE_CHECKING:
    from pydicom.dataset import FileDataset

MAGIC = b"DICM"
MAGIC_AT = 128
# Percentiles that black and white are put at where a file states no window.
NO_WINDOW = (0.5, 99.5)
SAMPLES = (1, 3)

# Element (0008,0005) with VR CS, at the start of files that lack the preamble.
_CHARACTER_SET = b"\x08\x00\x05\x00CS"
_INVERSE = "INVERSE"
_INTERPRETATIONS = (
    "MONOCHROME1", "MONOCHROME2", "RGB", "PALETTE COLOR", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT",
)  # fmt: skip
_ELEMENTS = [
    "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration", "NumberOfFrames", "Rows", "Columns",
    "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "ModalityLUTSequence", "RescaleSlope",
    "RescaleIntercept", "VOILUTSequence", "WindowCenter", "WindowWidth", "VOILUTFunction", "PresentationLUTShape",
    "BurnedInAnnotation", "RedPaletteColorLookupTableDescriptor", "GreenPaletteColorLookupTableDescriptor",
    "BluePaletteColorLookupTableDescriptor", "RedPaletteColorLookupTableData", "GreenPaletteColorLookupTableData",
    "BluePaletteColorLookupTableData", "SegmentedRedPaletteColorLookupTableData",
    "SegmentedGreenPaletteColorLookupTableData", "SegmentedBluePaletteColorLookupTableData", "ExtendedOffsetTable",
    "ExtendedOffsetTableLengths", "PixelData",
]  # fmt: skip


def is_dicom(data: bytes) -> bool:
    """Whether bytes begin as a DICOM file does, with or without its preamble."""
    return data[MAGIC_AT : MAGIC_AT + len(MAGIC)] == MAGIC or _CHARACTER_SET in data[:32]


def read_dicom(data: bytes, *, min_side: int, max_pixels: int) -> NDArray[np.uint8]:
    """Decode a single-frame DICOM image.

    Modality LUT or rescale; VOI LUT, else the first window, else the 0.5 and 99.5 percentiles as black and white;
    inversion within the declared range where MONOCHROME1 or PresentationLUTShape INVERSE; 8 bits. Palettes and YBR
    become RGB.

    Args:
        data: The file's bytes.
        min_side: Smallest accepted height and width, pixels.
        max_pixels: Largest accepted height x width.

    Returns:
        (height, width) or (height, width, 3).

    Raises:
        ImageError: ``dicom_unsupported`` without pydicom, or for what is no picture; ``dicom_incomplete`` without
            pixels or transfer syntax; ``dicom_plugin_missing`` naming what decodes this compression; ``multi_frame``,
            ``too_small``, ``too_large``, ``truncated``, ``corrupt_data``.
    """
    dataset = _parse(data, pixels=True)
    _check_header(dataset, min_side=min_side, max_pixels=max_pixels)
    values = _decode(dataset)
    interpretation = str(dataset.PhotometricInterpretation)
    try:
        if interpretation == "PALETTE COLOR":
            return _palette_to_rgb(values, dataset)
        if values.ndim == 3:
            return _to_uint8(values / (2.0 ** int(dataset.BitsStored) - 1))
        shown = _shown(values, dataset)
    except (ValueError, TypeError, IndexError, AttributeError, NotImplementedError, struct.error) as error:
        cause = type(error).__name__
        raise ImageError("corrupt_data", f"lookup table or window cannot be applied ({cause}); export again.") from None
    inverted = interpretation == "MONOCHROME1" or str(dataset.get("PresentationLUTShape", "")) == _INVERSE
    return _to_uint8(1.0 - shown if inverted else shown)


def has_burned_in_annotation(data: bytes) -> bool:
    """Whether a DICOM file says that text is part of its pixels, (0028,0301); it could name the patient."""
    return str(_parse(data, pixels=False).get("BurnedInAnnotation", "")).upper() == "YES"


def _parse(data: bytes, *, pixels: bool) -> "FileDataset":
    try:
        from pydicom import dcmread
        from pydicom.errors import InvalidDicomError
    except ModuleNotFoundError:
        raise ImageError(
            "dicom_unsupported",
            "a DICOM file, and pydicom is not installed: pip install crs_assets[dicom]; or convert the file to 8-bit "
            "or 16-bit PNG (window first, then invert).",
        ) from None
    try:
        return dcmread(io.BytesIO(data), force=True, specific_tags=_ELEMENTS, stop_before_pixels=not pixels)
    except (InvalidDicomError, OSError, EOFError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ImageError("corrupt_data", f"not readable as DICOM ({type(error).__name__}); fetch it again.") from None


def _check_header(dataset: "FileDataset", *, min_side: int, max_pixels: int) -> None:
    needed = ("PixelData", "Rows", "Columns", "BitsStored", "PixelRepresentation", "PhotometricInterpretation")
    if missing := [name for name in needed if dataset.get(name) is None]:
        raise ImageError("dicom_incomplete", f"a DICOM file without {', '.join(missing)}; export the image again.")
    if "TransferSyntaxUID" not in dataset.file_meta:
        raise ImageError(
            "dicom_incomplete",
            "a DICOM file without TransferSyntaxUID, so how its pixels are stored is unknown; export it again.",
        )
    if (frames := int(dataset.get("NumberOfFrames") or 1)) > 1:
        raise ImageError("multi_frame", f"{frames} frames; export the one to be read as its own file.")
    samples, kind = int(dataset.get("SamplesPerPixel") or 1), str(dataset.PhotometricInterpretation)
    if samples not in SAMPLES or kind not in _INTERPRETATIONS:
        seen = f"{samples} samples per pixel, {kind}"
        raise ImageError("dicom_unsupported", f"{seen}; expected 1 or 3 of {list(_INTERPRETATIONS)}; convert to PNG.")
    height, width = int(dataset.Rows), int(dataset.Columns)
    if min(height, width) < min_side:
        raise ImageError("too_small", f"{width} x {height} pixels, below the minimum side of {min_side}.")
    if height * width > max_pixels:
        raise ImageError("too_large", f"{width} x {height} pixels, above the limit of {max_pixels}; reduce the image.")


def _decode(dataset: "FileDataset") -> NDArray[Any]:
    """Stored values, YBR already as RGB; the plugin that decodes a compression is pydicom's choice."""
    try:
        values: NDArray[Any] = dataset.pixel_array
    except (RuntimeError, NotImplementedError):
        raise _not_decoded(dataset.file_meta.TransferSyntaxUID) from None
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, OSError, EOFError) as error:
        if "less than expected" in str(error):
            raise ImageError("truncated", "fewer bytes of pixels than declared; fetch the file again.") from None
        cause = type(error).__name__
        raise ImageError("corrupt_data", f"the pixels cannot be decoded ({cause}); fetch the file again.") from None
    return values


def _not_decoded(syntax: Any) -> ImageError:
    from pydicom.pixels.decoders.base import get_decoder

    try:
        decoder = get_decoder(syntax)
    except NotImplementedError:
        return ImageError("dicom_unsupported", f"no decoder exists for {syntax.name!r}; convert the file to PNG.")
    tried = ", ".join(decoder.available_plugins) or "none"
    wanted = "; ".join(decoder.missing_dependencies) or "all are installed: the file is damaged, fetch it again"
    return ImageError(
        "dicom_plugin_missing" if decoder.missing_dependencies else "corrupt_data",
        f"{syntax.name!r} was not decoded by what is installed (tried: {tried}). Install one of: {wanted}; or convert "
        "the file to PNG.",
    )


def _palette_to_rgb(stored: NDArray[Any], dataset: "FileDataset") -> NDArray[np.uint8]:
    from pydicom.pixels.processing import apply_color_lut

    colours: NDArray[Any] = apply_color_lut(stored, dataset)
    bits = int(dataset.RedPaletteColorLookupTableDescriptor[2])
    return _to_uint8(colours[..., :3] / (2.0**bits - 1))


def _shown(stored: NDArray[Any], dataset: "FileDataset") -> NDArray[np.float64]:
    """Grey values as shown, 0 black to 1 white, before any inversion."""
    from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut

    values: NDArray[Any] = apply_modality_lut(stored, dataset)
    if dataset.get("VOILUTSequence"):
        bits = int(dataset.VOILUTSequence[0].LUTDescriptor[2])
        table: NDArray[Any] = apply_voi_lut(np.rint(values).astype(np.int64), dataset, index=0)
        return table / (2.0**bits - 1)
    if dataset.get("WindowCenter") is None or dataset.get("WindowWidth") is None:
        return _between_percentiles(values.astype(np.float64))
    low, high = _declared_range(dataset)
    windowed: NDArray[np.float64] = apply_voi_lut(values, dataset, index=0)
    return (windowed - low) / (high - low)


def _declared_range(dataset: "FileDataset") -> tuple[float, float]:
    """What the smallest and largest storable values become: the range that a window is mapped onto."""
    bits, signed = int(dataset.BitsStored), int(dataset.PixelRepresentation) == 1
    low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1) if signed else (0.0, 2.0**bits - 1)
    if dataset.get("ModalityLUTSequence"):
        return 0.0, 2.0 ** int(dataset.ModalityLUTSequence[0].LUTDescriptor[2]) - 1
    if dataset.get("RescaleSlope") is not None and dataset.get("RescaleIntercept") is not None:
        slope, intercept = float(dataset.RescaleSlope), float(dataset.RescaleIntercept)
        return low * slope + intercept, high * slope + intercept
    return low, high


def _between_percentiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = np.percentile(values, NO_WINDOW)
    if low == high:
        return np.zeros_like(values)
    return np.asarray((values - low) / (high - low))


def _to_uint8(fraction: NDArray[np.float64]) -> NDArray[np.uint8]:
    scaled: NDArray[np.uint8] = np.rint(np.clip(fraction, 0.0, 1.0) * 255).astype(np.uint8)
    return scaled
