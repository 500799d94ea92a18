"""``crs doctor``: what is missing, what to copy where, and nothing asked of anyone unless the site wants it."""

import json
import shlex

import pytest
from click.testing import CliRunner
from huggingface_hub.utils import filter_repo_objects
from loopback_hub import LoopbackHub

from crs_assets.cli import main
from crs_assets.cli.doctor import Finding, examine
from crs_assets.cli.session import dropin_problems, open_bench
from crs_assets.resources.home import Home
from crs_assets.science.suite import load_suite

FILE = "model.safetensors"


@pytest.fixture
def examined(monkeypatch):
    """The first finding of each topic; behind an encoder's own stand the cells that it does not have."""

    def look(home, suite="tiny"):
        monkeypatch.setenv("CRS_HOME", str(home))
        return {finding.topic: finding for finding in reversed(examine(suite))}

    return look


@pytest.fixture
def pinned_home(make_home, hub):
    """vit-a's weights are on the hub only, at a pinned commit that is not the newest."""
    home = make_home(bare=True)
    path = home / "weights" / "tests" / "vit-a" / FILE
    commit = hub.publish("tests/vit-a", {FILE: path.read_bytes()})
    newest = hub.publish("tests/vit-a", {FILE: b"newer"})
    path.unlink()
    entry = home / "catalog" / "encoders" / "vit-a.toml"
    entry.write_text(entry.read_text().replace(f'file = "{FILE}"', f'file = "{FILE}"\nrevision = "{commit}"'))
    return home, commit, newest


def test_the_paper_suite_lists_every_absent_hub_encoder_with_what_to_copy_and_what_is_unverified(
    examined, tmp_path, hub
):
    findings = examined(tmp_path, "paper")
    suite = load_suite("paper")
    from_hub = {name: spec for name, spec in suite.encoders.items() if spec.weights.source == "hub"}
    assert len(from_hub) == 13
    mirror = Home(tmp_path).mirror
    for name, spec in suite.encoders.items():
        finding = findings[f"encoder {name}"]
        assert all(fact in finding.text for fact in spec.unverified), name
        assert spec.licence in finding.text
        assert finding.level == ("missing" if spec.role == "encoder" else "ok"), name
    for name, spec in from_hub.items():
        text, commands = findings[f"encoder {name}"].text, findings[f"encoder {name}"].commands
        assert f"copy {spec.weights.file}" in text
        assert f"to {mirror / spec.weights.repo}" in text
        assert ("gated: accept the terms first" in text) == spec.gated
        assert commands[0].startswith("crs weights fetch" if spec.weights.revision else "hf download")
    # Two encoders are published outside the hubs.
    assert "obtain panderm_ll_data6_checkpoint-499.pth and copy it to" in findings["encoder panderm"].text
    assert "obtain best_64_5e-05_original_22000_0.864.pt" in findings["encoder chexzero"].text
    # What a person has to do for the images is in the catalogue's words.
    assert "after signing its research use agreement" in findings["data set chexpert"].text
    assert hub.seen == []


def test_sizes_and_current_commits_are_shown_where_the_site_lets_runs_download(examined, pinned_home, hub, monkeypatch):
    home, commit, newest = pinned_home
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    finding = examined(home)["encoder vit-a"]
    silent = finding.text
    assert f"copy {FILE} of tests/vit-a@{commit} to {home / 'weights' / 'tests' / 'vit-a' / commit}; " in silent
    assert finding.commands == ("crs weights fetch --suite tiny --encoder vit-a",)
    assert "MB" not in silent
    assert hub.seen == []
    (home / "config.toml").write_text("[weights]\ndownload = true\n")
    asked = examined(home)["encoder vit-a"].text
    assert "0.0 MB" in asked  # five bytes
    assert f"its current commit is {newest}" in asked


@pytest.fixture
def edited(make_home):
    """A home whose table of tiny-skin is another."""

    def edit(change):
        home = make_home(bare=True)
        table = home / "data" / "tiny-skin" / "manifest.csv"
        table.write_text(change(table.read_text()))
        return home

    return edit


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace("naevus", "Nevus", 1), "column 'label': expected one of the classes"),
        (lambda text: text.replace("label", "diagnosis", 1), "columns missing"),
        (lambda text: "".join(text.splitlines(keepends=True)[:20]), "no class has enough positives and negatives"),
        (lambda text: text.replace("images/", "pictures/"), "150 of 150 image files are missing"),
    ],
)
def test_what_the_tables_of_a_data_set_tell_is_told_as_dataset_check_tells_it(
    examined, edited, monkeypatch, change, problem
):
    home = edited(change)
    finding = examined(home)["data set tiny-skin"]
    command = "crs dataset check tiny-skin --protocol tiny-v1"
    assert (finding.level, finding.commands) == ("missing", (command,))
    assert problem in finding.text
    assert finding.text in CliRunner().invoke(main, command.split()[1:]).output
    assert examined(home)["data set tiny-chest"].level == "ok"


def test_no_image_is_opened(examined, make_home):
    home = make_home(bare=True)
    for image in (home / "data" / "tiny-skin" / "images").iterdir():
        image.write_bytes(b"nothing that decodes")
    assert examined(home)["data set tiny-skin"].level == "ok"


def test_two_label_fractions_of_the_same_images_are_noted(examined, edited, monkeypatch):
    # A protocol whose smallest fractions differ by less than one image of the tiny set's training images.
    home = edited(lambda text: text)
    protocol = home / "catalog" / "protocols" / "tiny-v1.toml"
    protocol.write_text(protocol.read_text().replace("[0.2, 0.5, 1.0]", "[0.2, 0.2001, 1.0]"))
    monkeypatch.setenv("CRS_HOME", str(home))
    notes = [finding for finding in examine("tiny") if finding.topic == "data set tiny-skin"]
    assert [finding.level for finding in notes] == ["note", "note"]
    assert notes[0].text.endswith("can be measured, but not scored")
    assert "two label fractions come to the same images" in notes[1].text


def test_a_mirror_that_is_not_there_is_told_and_nothing_is_fetched_into_it(examined, make_home, tmp_path):
    home = make_home(bare=True)
    assert "weights mirror" not in examined(home)
    gone = tmp_path / "wieghts"
    (home / "config.toml").write_text(f'[weights]\nmirror = "{gone}"\n')
    finding = examined(home)["weights mirror"]
    assert finding.level == "missing"
    assert finding.text == f"[weights] mirror: no folder {gone}; make it, or correct {home / 'config.toml'}."
    result = CliRunner().invoke(main, ["weights", "fetch", "--suite", "tiny"])
    assert result.exit_code == 1
    assert finding.text in result.output
    assert not gone.exists()


def test_commands_stay_on_one_line_in_the_narrowest_terminal(monkeypatch, tmp_path):
    monkeypatch.setenv("CRS_HOME", str(tmp_path / "a home"))
    monkeypatch.setenv("COLUMNS", "40")
    lines = [line.strip() for line in CliRunner().invoke(main, ["doctor", "--suite", "paper"]).output.splitlines()]
    mirror = tmp_path / "a home" / "weights"
    # What is typed into a shell is read as one argument each, whatever the folder is called.
    (siglip,) = [shlex.split(line) for line in lines if line.startswith("hf download google/medsiglip-448")]
    assert siglip == ["hf", "download", "google/medsiglip-448", FILE, "--local-dir", f"{mirror}/google/medsiglip-448"]
    assert "crs run --suite paper --freeze-panel" in lines
    assert not [line for line in lines if line.startswith("--")]


def test_paths_are_never_broken():
    finding = Finding("data set ward", f"no folder /data/{'long-name/' * 20}; put it there", "missing")
    assert f"/data/{'long-name/' * 20};" in finding.lines(80).split()


def test_of_a_set_of_shards_the_command_brings_every_one_until_the_index_tells_which(examined, tmp_path):
    (command,) = examined(tmp_path, "paper")["encoder medgemma"].commands
    folder = tmp_path / "weights" / "google" / "medgemma-4b-it"
    assert shlex.split(command) == [
        "hf", "download", "google/medgemma-4b-it", "--include", "model*.safetensors*", "--local-dir", str(folder)
    ]  # fmt: skip
    published = ["model.safetensors.index.json", "model-00001-of-00002.safetensors", "config.json", "tokenizer.json"]
    assert list(filter_repo_objects(published, allow_patterns=["model*.safetensors*"])) == published[:2]
    folder.mkdir(parents=True)
    tower, words = "vision_tower.vision_model.embeddings.patch_embedding.weight", "language_model.model.norm.weight"
    shards = {tower: "model-00002-of-00002.safetensors", words: "model-00001-of-00002.safetensors"}
    (folder / published[0]).write_text(json.dumps({"weight_map": shards}))
    (command,) = examined(tmp_path, "paper")["encoder medgemma"].commands
    assert shlex.split(command)[3:5] == [published[0], shards[tower]]
    assert shards[words] not in command


def test_without_a_hub_in_reach_it_is_quiet(examined, pinned_home, monkeypatch):
    home, commit, _ = pinned_home
    (home / "config.toml").write_text("[weights]\ndownload = true\n")
    with LoopbackHub() as gone:
        monkeypatch.setenv("HF_ENDPOINT", gone.url)
    text = examined(home)["encoder vit-a"].text
    assert f"tests/vit-a@{commit}" in text
    assert "connection" not in text


def test_wrong_weights_are_not_absent_ones(examined, make_home):
    home = make_home(bare=True)
    entry = home / "catalog" / "encoders" / "vit-b.toml"
    entry.write_text(entry.read_text().replace(f'file = "{FILE}"', f'file = "{FILE}"\nsha256 = "{"0" * 64}"'))
    finding = examined(home)["encoder vit-b"]
    assert finding.level == "missing"
    assert "weights differ from the catalogue (SHA-256)" in finding.text


def test_an_untrained_twin_is_added_by_one_flag(make_home, monkeypatch):
    home = make_home(bare=True)
    monkeypatch.setenv("CRS_HOME", str(home))

    def add(*arguments):
        return CliRunner().invoke(main, ["encoder", "add", *arguments, "--suite", "tiny"])

    assert "vit-a-untrained-7 is in suite tiny" in add("vit-a", "--untrained", "7").output
    assert "already in suite" in add("vit-a", "--untrained", "7").output
    assert dropin_problems(open_bench("tiny")) == ()
    spec = Home(home).load_suite("tiny").encoders["vit-a-untrained-7"]
    assert (spec.role, spec.untrained_seed, spec.weights.source) == ("control", 7, "none")
    for arguments, message in (
        (("pixels-1", "--untrained", "7"), "no untrained twin"),
        (("vit-z", "--untrained", "7"), "no encoders entry 'vit-z'"),
    ):
        result = add(*arguments)
        assert result.exit_code == 1
        assert message in result.output


@pytest.mark.slow
def test_a_twin_runs_below_the_line_beside_its_encoder(tiny, make_home, monkeypatch):
    home = make_home()
    monkeypatch.setenv("CRS_HOME", str(home))
    CliRunner().invoke(main, ["encoder", "add", "vit-a", "--untrained", "7", "--suite", "tiny"])
    bench = tiny.open_bench(home)
    made = tiny.remade(bench, tiny.UP_TO_PROFILE)
    assert {part.split("|")[0] for parts in made.values() for part in parts} == {"vit-a-untrained-7"}
    tiny.score_all(bench)
    profile = bench.store.peek(bench.key("axis_profile", "vit-a-untrained-7"))
    assert set(profile.summary["raw"]) == {"tiny-skin", "tiny-chest"}
    assert bench.store.peek(bench.key("crs", "vit-a-untrained-7"))
