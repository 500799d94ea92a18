import pytest

from crs_assets.science.suggestion import did_you_mean

KNOWN = ["retfound", "retfound-cls", "medsiglip"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("retfond", " Did you mean 'retfound'?"),
        ("medsiglib", " Did you mean 'medsiglip'?"),
        ("retfound-csl", " Did you mean 'retfound-cls'?"),
        ("panderm", ""),
    ],
)
def test_a_slip_is_told_with_what_was_meant_and_nothing_is_guessed_otherwise(name, said):
    assert did_you_mean(name, KNOWN) == said


def test_where_there_is_nothing_nothing_is_meant():
    assert did_you_mean("retfound", []) == ""
