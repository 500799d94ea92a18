"""Operations and memory of one image, against hand counts; whole networks are in test_paper_architectures."""

import torch

from crs_assets.science.encoders.counting import LiveBytes, count_network
from crs_assets.science.encoders.spec import ENCODER_FOLDER, load_encoder_spec


def test_operations_and_parameters_of_a_small_transformer(make_spec):
    # 32 px in patches of 16: 4 tokens and a class token, d = 32, 4 blocks, MLP 4 d; a multiply-add is 2 operations.
    # Patches 4 x 32 x 768. A block per token: query, key, value 3 d^2, output d^2, MLP 8 d^2 = 12 d^2; attention over 5
    # tokens: scores and weighted sum, 2 x 5 d.
    multiply_adds = 4 * 32 * 768 + 4 * 5 * (12 * 32**2 + 2 * 5 * 32)
    # Patches 32 x 768 + 32, class token 32, positions 5 x 32, a final norm 64; a block: 12 d^2 weights, biases 3 d + d
    # + 4 d + d, two norms 4 d.
    parameters = 32 * 768 + 32 + 32 + 5 * 32 + 64 + 4 * (12 * 32**2 + 13 * 32)
    counts = count_network(make_spec())
    assert counts.kind == "transformer"
    assert counts.flops == 2 * multiply_adds
    assert counts.parameter_bytes == 4 * parameters


def test_a_tap_before_the_end_saves_the_blocks_behind_it(make_spec):
    block = 2 * 5 * (12 * 32**2 + 2 * 5 * 32)
    whole, tapped = count_network(make_spec()), count_network(make_spec(tap={"block": 3}))
    assert whole.flops - tapped.flops == block


def test_kinds():
    assert count_network(load_encoder_spec(ENCODER_FOLDER / "efficientnet-lite0-112.toml")).kind == "cnn"
    pixels = count_network(load_encoder_spec(ENCODER_FOLDER / "pixels-16.toml"))
    assert (pixels.kind, pixels.flops, pixels.parameter_bytes) == ("pixels", 0, 0)


def test_only_results_that_are_still_held_count_and_views_count_once():
    with LiveBytes() as memory:
        first = torch.empty(100, device="meta")  # 400 bytes
        second = first * 2  # 800
        view = second.view(10, 10)  # the same bytes
        del first  # 400
        third = second + 1  # 800
        del second, third  # 400: the view holds them
        fourth = torch.cat([view.flatten(), view.flatten(), view.flatten()])  # 1,600
    assert memory.peak == 1_600
    assert memory.live == 400 + fourth.nbytes
