import pytest

from crs_assets.resources.bench import default_resources
from crs_assets.resources.home import Home
from crs_assets.science.toml_models import CatalogError


def test_every_wrong_setting_of_a_table_is_told_with_what_was_seen_and_expected(tmp_path):
    (tmp_path / "config.toml").write_text('[compute]\nprecision = "bf16"\nbatch_size = "many"\n')
    with pytest.raises(CatalogError) as refused:
        default_resources("demo", Home(tmp_path))
    lines = str(refused.value).splitlines()
    assert lines[0] == f"{tmp_path / 'config.toml'}: 2 problem(s):"
    assert "compute.precision: expected one of 'float32' or 'auto', seen \"bf16\"" in lines
    assert 'compute.batch_size: expected a whole number, seen "many"' in lines
