"""Image -> network input in uint8, as each encoder's authors do it. Normalisation happens on the device, in batches.

Reducing follows Pillow, as torchvision's and Hugging Face's pipelines do; crops and sizes follow torchvision.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from crs_assets.science.encoders.spec import Preprocessing

FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
}


def prepare(image: NDArray[np.uint8], preprocessing: Preprocessing) -> NDArray[np.uint8]:
    """Bring one image to the network's input.

    Args:
        image: (H, W) grey or (H, W, 3) RGB, uint8.
        preprocessing: The encoder's.

    Returns:
        (S, S, 3) uint8, S the input size.

    Raises:
        ValueError: If the image has another dtype or shape.
    """
    if image.dtype != np.uint8 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)) or image.size == 0:
        raise ValueError(f"expected uint8 of shape (H, W) or (H, W, 3), got {image.dtype} of shape {image.shape}.")
    # A grey plane stays one plane until the end: the filters treat channels alike, so the result is the same.
    plane = _coloured(image, preprocessing.colour)
    if preprocessing.pre_pad is not None:
        plane = _fitted(plane, preprocessing.pre_pad)
    side = preprocessing.input_size
    if preprocessing.resize == "shortest":
        plane = _central(_resized(plane, _shortest_size(plane, preprocessing.resize_to or side), preprocessing), side)
    else:
        square = _padded(plane, preprocessing.pad_colour) if preprocessing.resize == "pad" else plane
        plane = _resized(square, (side, side), preprocessing)
    pixels = np.array(plane)
    return pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)


def _coloured(image: NDArray[np.uint8], colour: str) -> Image.Image:
    if colour == "grey_minmax":
        image = _stretched(image)
    plane = Image.fromarray(image)
    return plane if colour == "rgb" or plane.mode == "L" else plane.convert("L")


def _stretched(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    # Truncating, over all channels at once, as hi-ml-multimodal's remap_to_uint8.
    low, high = int(image.min()), int(image.max())
    stretched = (image.astype(np.float64) - low) / max(high - low, 1) * 255
    return stretched.astype(np.uint8)


def _shortest_size(plane: Image.Image, short_side: int) -> tuple[int, int]:
    width, height = plane.size
    if width <= height:
        return short_side, int(short_side * height / width)
    return int(short_side * width / height), short_side


def _resized(plane: Image.Image, size: tuple[int, int], preprocessing: Preprocessing) -> Image.Image:
    if preprocessing.antialias:
        return plane.resize(size, FILTERS[preprocessing.interpolation])
    return _sampled(plane, size, preprocessing.interpolation)


def _sampled(plane: Image.Image, size: tuple[int, int], mode: str) -> Image.Image:
    import torch
    from torch.nn.functional import interpolate

    pixels = torch.from_numpy(np.array(plane)).reshape(plane.height, plane.width, -1)
    channels_first = pixels.permute(2, 0, 1)[None].float()
    sampled = interpolate(channels_first, size=size[::-1], mode=mode, align_corners=False, antialias=False)
    rounded = sampled.round().clamp(0, 255).to(torch.uint8)[0].permute(1, 2, 0).numpy()
    return Image.fromarray(np.ascontiguousarray(rounded if rounded.shape[2] == 3 else rounded[:, :, 0]))


def _central(plane: Image.Image, side: int) -> Image.Image:
    left, top = round((plane.width - side) / 2), round((plane.height - side) / 2)
    return plane.crop((left, top, left + side, top + side))


def _padded(plane: Image.Image, colour: tuple[int, int, int]) -> Image.Image:
    side = max(plane.size)
    if plane.mode == "L" and len(set(colour)) > 1:
        plane = plane.convert("RGB")
    canvas = Image.new(plane.mode, (side, side), colour[0] if plane.mode == "L" else colour)
    canvas.paste(plane, ((side - plane.width) // 2, (side - plane.height) // 2))
    return canvas


def _fitted(plane: Image.Image, side: int) -> Image.Image:
    ratio = side / max(plane.size)
    size = (max(1, int(plane.width * ratio)), max(1, int(plane.height * ratio)))
    fitted = plane.resize(size, Image.Resampling.LANCZOS)
    canvas = Image.new(plane.mode, (side, side))
    canvas.paste(fitted, ((side - size[0]) // 2, (side - size[1]) // 2))
    return canvas
