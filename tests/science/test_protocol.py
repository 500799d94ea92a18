"""The protocol as data: what it says, what it refuses, where it is found."""

import numpy as np
import pytest

from crs_assets.science.protocol import load_protocol, protocol_part
from crs_assets.science.toml_models import CatalogError


@pytest.fixture
def write(tmp_path):
    def write(text, name="mine"):
        path = tmp_path / f"{name}.toml"
        path.write_text(f'id = "{name}"\n{text}')
        return path

    return write


def test_the_shipped_protocol_enumerates_the_articles_runs():
    protocol = load_protocol("crs-v1")
    # 5 perturbations x 3 severities and clean are 16 conditions, 17 with transfer; 5 fractions: 80 and 85 runs a seed.
    assert len(list(protocol.degradations())) == 15
    assert len(protocol.data.fractions) * len(protocol.conditions(transfer=False)) == 80
    assert len(protocol.data.fractions) * len(protocol.conditions(transfer=True)) == 85
    names = [condition.name for condition in protocol.conditions(transfer=True)]
    assert (names[0], names[4], names[-1]) == ("clean", "jpeg-1", "transfer")
    np.testing.assert_allclose(np.diff(np.log10(protocol.probe.lambdas)), 8 / 12)


@pytest.mark.parametrize("name", ["crs-v1", "demo-v1"])
def test_the_above_chance_reading_differs_in_its_axes_only(name):
    protocol, reading = load_protocol(name), load_protocol(f"{name}-skill")
    words = {"id": "", "title": "", "axes": None}
    assert reading.model_copy(update=words) == protocol.model_copy(update=words)
    assert reading.axes.form == "skill"
    anchors = reading.axes.anchors
    assert (anchors["label_efficiency"].zero, anchors["robustness"].zero, anchors["robustness"].one) == (0, 1, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data]\nfractions = [0.5, 0.1, 1.0]", "fractions must rise"),
        ("[data]\nfractions = [0.5, 0.9]", "exactly 1"),
        ("[data]\nseeds = [0, 0]", "seeds repeat"),
        ("[data]\ntrain_until = 0.9", "train_until must lie below"),
        ("[score]\ndominance = 0.7", "sum to 1, got 1.1"),
        ("[axes.anchors.speed]\nzero = 0\none = 1", "speed"),
        ("[probe]\nlamda_min = 1", r"probe\.lamda_min: unknown key\. Did you mean 'lambda_min'"),
        ('perturbations = [{ id = "jpeg", strengths = [1] }]', "3 severities for 1 strengths"),
        ('perturbations = [{ id = "fog", strengths = [1, 2, 3] }]', "gaussian_blur"),
    ],
)
def test_a_contradictory_protocol_is_refused_by_name(write, text, message):
    with pytest.raises(CatalogError, match=message):
        load_protocol(write(f'extends = "crs-v1"\n{text}'))


def test_every_problem_is_told_at_once(write):
    with pytest.raises(CatalogError, match="3 problem") as caught:
        load_protocol(write('extends = "crs-v1"\n[probe]\ngap = -1\nstd_zero = 0\nmore = 1'))
    assert all(name in str(caught.value) for name in ("probe.gap", "probe.std_zero", "probe.more"))


def test_files_that_name_themselves_otherwise_or_each_other_are_refused(write, tmp_path):
    path = write('extends = "crs-v1"')
    with pytest.raises(CatalogError, match=r"named 'other' but its id is 'mine'"):
        load_protocol(path.rename(tmp_path / "other.toml"))
    write('extends = "two"', "one")
    write('extends = "one"', "two")
    with pytest.raises(CatalogError, match="circle"):
        load_protocol("one", lambda name: tmp_path / f"{name}.toml")
    with pytest.raises(CatalogError, match="no such catalogue file"):
        load_protocol("crs-v0")


def test_a_part_is_plain_data_and_holds_nothing_else():
    protocol = load_protocol("crs-v1")
    part = protocol_part(protocol, "score", "statistics")
    assert part == {
        "score": {"dominance": 0.6, "closeness": 0.25, "worst_axis": 0.15},
        "statistics": {"replicates": 10000, "interval": 0.95},
    }


def test_an_unknown_perturbation_or_severity_names_what_there_is():
    protocol = load_protocol("demo-v1")
    assert protocol.perturbation("jpeg").strength(3) == 5
    with pytest.raises(ValueError, match=r"no severity 2; the protocol has \[1, 3\]"):
        protocol.perturbation("jpeg").strength(2)
    with pytest.raises(ValueError, match="unknown perturbation 'fog'"):
        protocol.perturbation("fog")
