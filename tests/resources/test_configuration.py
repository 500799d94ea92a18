"""``config.toml`` as people write it."""

import pytest

from crs_assets.resources.bench import default_resources
from crs_assets.resources.configuration import TABLES, read_configuration
from crs_assets.resources.home import Home
from crs_assets.science.toml_models import CatalogError


@pytest.fixture
def told(tmp_path):
    """Write a configuration that is refused; its problems, and that the first line names the file and counts them."""

    def refuse(text):
        (tmp_path / "config.toml").write_text(text)
        with pytest.raises(CatalogError) as refused:
            default_resources("demo", Home(tmp_path))
        first, *lines = str(refused.value).splitlines()
        assert first == f"{tmp_path / 'config.toml'}: {len(lines)} problem(s):"
        return [line.strip() for line in lines]

    return refuse


def test_everything_wrong_is_told_at_once_with_what_was_seen_and_expected(told):
    lines = told(
        '[compute]\nprecision = "bf16"\nbatch_size = "many"\nfits = -1\n[data_roots]\nham10000 = 3\n[weigths]\n'
    )
    assert set(lines) == {
        "[compute] precision: expected one of 'float32' or 'auto', seen \"bf16\"",
        '[compute] batch_size: expected a whole number, seen "many"',
        "[compute] fits: expected a number of at least 0, seen -1",
        "[data_roots] ham10000: expected text in quotes, seen 3",
        "weigths: unknown key. Did you mean 'weights'? Expected one of data_roots, compute, weights, store.",
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[compute]\nthread = 2", "[compute] thread: unknown key. Did you mean 'threads'? Expected one of device, "),
        # Where hashes and artifacts lie follows from CRS_HOME.
        ('[weights]\ncache = "x"', "[weights] cache: unknown key. Expected one of mirror, download, endpoint."),
        ('[store]\nroot = "x"', "[store] root: unknown key. "),
        ('data_roots = "/data"', 'data_roots: expected a table of keys, seen "/data"'),
        # Nothing is guessed of another kind of value: this one decides whether a run may use the network.
        ('[weights]\ndownload = "yes"', '[weights] download: expected true or false, seen "yes"'),
        ('[compute]\nfits = "2"', '[compute] fits: expected a whole number, seen "2"'),
        ("compute = 3", "compute: expected a table of keys, seen 3"),
    ],
)
def test_one_wrong_key_is_named_as_it_stands_in_the_file(told, text, line):
    (found,) = told(text)
    assert found.startswith(line)


def test_a_folder_for_a_data_set_that_does_not_exist_is_refused(told, tmp_path):
    (tmp_path / "catalog" / "datasets").mkdir(parents=True)
    (tmp_path / "catalog" / "datasets" / "ward.toml").touch()
    lines = told('[data_roots]\nward = "/a"\nisic2019 = "/b"\nisic2018 = "/c"\nclinic = "/d"\n')
    assert lines == [
        "[data_roots] isic2018: no data set has this id. Did you mean 'isic2019'?",
        f"[data_roots] clinic: no data set has this id. Add clinic.toml to {tmp_path / 'catalog' / 'datasets'}, or "
        "take the line out.",
    ]
    # An entry that is checked before it is put into the catalogue may have its folder already.
    (tmp_path / "config.toml").write_text('[data_roots]\nclinic = "/d"\n')
    assert read_configuration(Home(tmp_path), "clinic") == {"data_roots": {"clinic": "/d"}}


def test_what_is_configured_is_what_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    (tmp_path / "config.toml").write_text(
        '[data_roots]\nisic2019 = "~/isic"\n[compute]\ndevice = "cpu"\nworkers = 3\n[weights]\nmirror = "~/weights"\n'
    )
    resources = default_resources("demo", Home(tmp_path))
    assert str(resources["roots"].resolve().path("isic2019")) == "/home/someone/isic"
    assert resources["compute"].resolve().workers == 3
    assert str(resources["weights"].resolve().mirror) == "/home/someone/weights"


def test_every_key_says_what_it_is():
    fields = {f"{table}.{name}": field for table, keys in TABLES.items() for name, field in keys.model_fields.items()}
    assert {"compute.device", "compute.fits", "weights.mirror", "store.remote"} <= set(fields)
    assert not [name for name, field in fields.items() if not field.description or field.is_required()]
