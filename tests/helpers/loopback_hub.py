"""A hub on 127.0.0.1: the file, redirect and information routes that the real client uses, and ways to fail."""

import hashlib
import json
import re
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

RESOLVE = re.compile(r"^/([^/]+/[^/]+)/resolve/([^/]+)/(.+)$")
INFO = re.compile(r"^/api/models/([^/]+/[^/]+?)(?:/revision/([^/]+))?$")
REFS = re.compile(r"^/api/models/([^/]+/[^/]+)/refs$")


@dataclass
class Repo:
    """Commits of one repository; ``main`` is the last one."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    plain: frozenset[str] = frozenset()  # files kept in git itself, as small ones are: no SHA-256 is told

    @property
    def main(self):
        return list(self.commits)[-1]

    def resolve(self, revision):
        commit = self.tags.get(revision, self.main if revision == "main" else revision)
        return commit if commit in self.commits else None


@dataclass
class Seen:
    """One request as it arrived, and how many bytes of a body went back."""

    method: str
    path: str
    headers: dict[str, str]
    sent: int = 0


class LoopbackHub:
    """Serve repositories on loopback.

    Switches: ``refusal`` (status, X-Error-Code, X-Error-Message) answers everything of a repository; ``cuts`` is the
    number of body bytes after which each next download breaks off; ``wrong_bytes`` alters content but not its hash;
    without ``resumes`` a Range is ignored; ``answered_commit`` is claimed instead of the asked one; ``store`` is
    another server that files are fetched from.
    """

    def __init__(self):
        self.repos = {}
        self.seen = []
        self.refusals = {}
        self.cuts = []
        self.wrong_bytes = False
        self.resumes = True
        self.answered_commit = None
        self.store = None
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.hub = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def publish(self, repo, files, plain=()):
        """Add a commit with these files and return its 40 digits."""
        known = self.repos.setdefault(repo, Repo())
        known.plain = frozenset(plain)
        commit = hashlib.sha1(f"{repo} {len(known.commits)}".encode()).hexdigest()
        known.commits[commit] = dict(files)
        return commit

    def downloads(self):
        """GET requests of files."""
        return [seen for seen in self.seen if seen.method == "GET" and not seen.path.startswith("/api/")]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A connection that the test broke is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Stay silent."""

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def _answer(self):
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.request_seen = Seen(self.command, path, headers)
        hub.seen.append(self.request_seen)
        for route, answer in ((REFS, self._refs), (INFO, self._info), (RESOLVE, self._file)):
            match = route.match(path)
            if match:
                name = match.group(1)
                if name in hub.refusals:
                    return self._refuse(*hub.refusals[name])
                if name not in hub.repos:
                    return self._refuse(404, "RepoNotFound", "Repository not found")
                return answer(hub.repos[name], *match.groups())
        return self._refuse(404, "", "no such route")

    def _refuse(self, status, code, message):
        self._send(status, {"X-Error-Code": code, "X-Error-Message": message, "Content-Length": "0"})

    def _refs(self, repo, _name):
        self._json(
            {
                "branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": repo.main}],
                "converts": [],
                "tags": [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": c} for n, c in repo.tags.items()],
            }
        )

    def _info(self, repo, name, revision):
        commit = repo.resolve(revision or "main")
        if commit is None:
            return self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        siblings = [self._sibling(repo, file, content) for file, content in repo.commits[commit].items()]
        date = f"2026-01-{list(repo.commits).index(commit) + 1:02d}T00:00:00.000Z"
        return self._json({"id": name, "modelId": name, "sha": commit, "lastModified": date, "siblings": siblings})

    def _sibling(self, repo, file, content):
        facts = {"rfilename": file, "size": len(content), "blobId": _git_sha1(content)}
        if file in repo.plain:
            return facts
        lfs = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "pointerSize": 134}
        return {**facts, "lfs": lfs}

    def _file(self, repo, name, revision, file):
        hub, commit = self.server.hub, repo.resolve(revision)
        if commit is None:
            return self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if file not in repo.commits[commit]:
            return self._refuse(404, "EntryNotFound", "Entry not found")
        content = repo.commits[commit][file]
        headers = {"X-Repo-Commit": hub.answered_commit or commit, "Accept-Ranges": "bytes"}
        if file in repo.plain:
            headers["ETag"] = f'"{_git_sha1(content)}"'
        else:
            digest = hashlib.sha256(content).hexdigest()
            headers |= {"ETag": '"store"', "X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
        if hub.store is not None and file not in repo.plain:
            location = f"{hub.store.url}/{name}/resolve/{commit}/{file}"
            return self._send(302, {**headers, "Location": location, "Content-Length": "0"})
        return self._content(bytes(b ^ 1 for b in content) if hub.wrong_bytes else content, headers)

    def _content(self, content, headers):
        asked, status = self.headers.get("Range"), 200
        if asked and self.command == "GET" and self.server.hub.resumes:
            start = int(re.match(r"^bytes=(\d+)-$", asked).group(1))
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content, status = content[start:], 206
        self._send(status, {**headers, "Content-Length": str(len(content))})
        if self.command == "GET":
            self._body(content)

    def _body(self, content):
        cut = self.server.hub.cuts.pop(0) if self.server.hub.cuts else None
        content = content if cut is None else content[:cut]
        self.wfile.write(content)
        self.request_seen.sent = len(content)
        if cut is not None:
            self.close_connection = True
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)

    def _json(self, document):
        body = json.dumps(document).encode()
        self._send(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
        self.wfile.write(body)

    def _send(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serving(monkeypatch):
    """A running hub; the client is online, small-stepped and impatient, and can reach loopback only."""
    import huggingface_hub
    import huggingface_hub.file_download
    from huggingface_hub import constants

    connect = socket.socket.connect

    def loopback_only(self, address):
        if address[0] != "127.0.0.1":
            raise AssertionError(f"a test reached for the network: {address}")
        return connect(self, address)

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket.socket, "connect", loopback_only)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setattr(huggingface_hub.file_download.time, "sleep", lambda _: None)
    huggingface_hub.close_session()
    with LoopbackHub() as hub:
        yield hub
        huggingface_hub.close_session()
