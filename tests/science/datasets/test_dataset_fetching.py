"""Fetching a data set's one file from an archive on loopback: whole, cut, altered, refused."""

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from crs_assets.cli import main
from crs_assets.science.datasets import DatasetError, fetch_dataset, fetching

CONTENT = bytes(range(256)) * 400
PLACE = "/records/10519652/files/tiny.npz?download=1"


class Archive(ThreadingHTTPServer):
    """Serves one file; ``cut`` is the number of bytes after which the next answer breaks off."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.cut, self.resumes, self.asked = CONTENT, None, True, []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        """Stay silent."""

    def do_GET(self):
        archive = self.server
        asked = self.headers.get("Range")
        archive.asked.append(asked)
        if self.path != PLACE:
            self.send_error(404)
            return
        start = int(re.match(r"bytes=(\d+)-", asked)[1]) if asked and archive.resumes else 0
        body = archive.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if archive.cut is None else body[: archive.cut])
        archive.cut = None


@pytest.fixture
def archive(monkeypatch):
    monkeypatch.setattr(fetching, "_BLOCK", 1000)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Archive() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def spec(catalogue):
    options = {"file": "tiny.npz", "md5": hashlib.md5(CONTENT).hexdigest()}
    return catalogue("retinamnist", reader_options=options)


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_comes_once(archive, spec, tmp_path):
    told = []
    path = fetch_dataset(spec, tmp_path / "new", archive.url, lambda *step: told.append(step))
    assert path.read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert fetch_dataset(spec, tmp_path / "new", archive.url) == path
    assert archive.asked == [None]
    assert left(tmp_path / "new") == ["tiny.npz"]


@pytest.mark.parametrize("resumes", [True, False])
def test_after_a_cut_only_the_rest_comes_where_the_archive_can_resume(archive, spec, tmp_path, resumes):
    archive.cut, archive.resumes = 2500, resumes
    with pytest.raises(DatasetError, match=r"connection was cut .*what has come is kept"):
        fetch_dataset(spec, tmp_path, archive.url)
    assert left(tmp_path) == [".tiny.npz.part"]
    assert fetch_dataset(spec, tmp_path, archive.url).read_bytes() == CONTENT
    assert archive.asked == [None, "bytes=2500-"]


def test_another_file_is_deleted_and_never_gets_the_name(archive, spec, tmp_path):
    archive.content = CONTENT[::-1]
    wrong = hashlib.md5(archive.content).hexdigest()
    with pytest.raises(DatasetError, match=f"MD5 {wrong} came, .* is deleted"):
        fetch_dataset(spec, tmp_path, archive.url)
    assert left(tmp_path) == []


def test_refusal_and_silence_are_told(archive, spec, tmp_path, catalogue):
    elsewhere = type(spec).model_validate(spec.model_dump() | {"zenodo": 1})
    with pytest.raises(DatasetError, match=rf"{archive.url} answered 404"):
        fetch_dataset(elsewhere, tmp_path, archive.url)
    with Archive() as gone:
        pass
    with pytest.raises(DatasetError, match="no connection to"):
        fetch_dataset(spec, tmp_path, gone.url)
    unverifiable = type(spec).model_validate(spec.model_dump() | {"reader_options": {"file": "tiny.npz"}})
    with pytest.raises(DatasetError, match="names no md5"):
        fetch_dataset(unverifiable, tmp_path, archive.url)
    with pytest.raises(DatasetError, match="no program fetches it: Stanford AIMI"):
        fetch_dataset(catalogue("chexpert"), tmp_path, archive.url)


def test_the_command_tells_the_terms_and_brings_the_file(archive, monkeypatch, tmp_path, spec):
    monkeypatch.setenv("CRS_HOME", str(tmp_path))
    monkeypatch.setattr("crs_assets.cli.fetching.load_dataset_spec", lambda _: spec)
    monkeypatch.setattr(fetching.fetch_dataset, "__defaults__", (archive.url, lambda *_: None))
    result = CliRunner().invoke(main, ["dataset", "fetch", "retinamnist"])
    assert result.exit_code == 0, result.output
    assert "licence CC BY 4.0; cite Yang et al." in result.output
    assert (tmp_path / "data" / "retinamnist" / "tiny.npz").read_bytes() == CONTENT
