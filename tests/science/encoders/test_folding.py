"""Folded batch norms compute the same features; a network that would compute others is left alone."""

import pytest
import torch
from torch import nn

from crs_assets.science.encoders.folding import _fold, folded


def norms(model):
    return sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())


def randomised(model):
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean):
                tensor.data.normal_(generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
    return model.eval()


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "resnet18", "resnet50"])
def test_every_norm_is_folded_and_features_stay(name):
    import timm

    model = randomised(timm.create_model(name, num_classes=0))
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    result = folded(model, 64)
    assert norms(model) > 0
    assert norms(result) == 0
    with torch.inference_mode():
        expected, seen = model(images), result(images)
    torch.testing.assert_close(seen, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


class Backwards(nn.Module):
    """Lists its norm behind a convolution that runs after it."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images):
        return self.conv(self.norm(images)).mean((2, 3))


def test_a_network_that_would_change_is_left_alone():
    model = randomised(Backwards())
    assert folded(model, 8) is model
    assert _fold(model) == 1  # the order of its parts alone would have folded it


def test_a_network_without_norms_is_left_alone():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    assert folded(model, 8) is model
