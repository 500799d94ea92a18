"""CRS_HOME: the one folder that holds a site's state, and the names of what lies in it."""

import os
from dataclasses import dataclass
from pathlib import Path

from crs_assets.science.encoders.spec import EncoderSpec, load_encoder_spec
from crs_assets.science.suite import Suite, load_suite
from crs_assets.science.toml_models import CatalogError

DEFAULT_HOME = ".crs"


@dataclass(frozen=True)
class Home:
    """Paths below CRS_HOME, and the site's own catalogue."""

    path: Path

    @property
    def artifacts(self) -> Path:
        """Every partition of every suite."""
        return self.path / "artifacts"

    @property
    def dagster(self) -> Path:
        """DAGSTER_HOME: runs, events, schedules."""
        return self.path / "dagster"

    @property
    def data(self) -> Path:
        """Default place of data sets: one folder per data set id."""
        return self.path / "data"

    @property
    def mirror(self) -> Path:
        """Default place of weights: ``<repository>/<revision>/<file>``."""
        return self.path / "weights"

    @property
    def panels(self) -> Path:
        """Locally frozen reference panels."""
        return self.path / "panels"

    @property
    def reports(self) -> Path:
        """Where the leaderboard's HTML is written."""
        return self.path / "reports"

    @property
    def catalog(self) -> Path:
        """Entries of one's own: ``suites/``, ``protocols/``, ``datasets/``, ``encoders/``."""
        return self.path / "catalog"

    def dropins(self, suite: str) -> Path:
        """Encoders added to a suite: one TOML file each."""
        return self.path / "encoders" / suite

    def read_dropins(self, suite: Suite) -> "Dropins":
        """The encoders added to a suite, in the order they were added; one that cannot be used bars no other."""
        encoders: dict[str, EncoderSpec] = {}
        problems: list[str] = []
        paths = self.dropins(suite.id).glob("*.toml")
        for path in sorted(paths, key=lambda path: (path.stat().st_mtime_ns, path.name)):
            try:
                added = {path.stem: load_encoder_spec(path)}
                suite.with_encoders(added)
                encoders |= added
            except (CatalogError, OSError) as error:
                problems.append(f"encoders/{suite.id}/{path.name} is left out: {error}")
        return Dropins(encoders, tuple(problems))

    def load_suite(self, name: str | Path) -> Suite:
        """A shipped suite or one of the site's own, with the usable encoders added to it here."""
        suite = load_suite(name, self.catalog)
        return suite.with_encoders(self.read_dropins(suite).encoders)


@dataclass(frozen=True)
class Dropins:
    """Encoders added to a suite by hand, and the files among them that cannot be used, with the reason."""

    encoders: dict[str, EncoderSpec]
    problems: tuple[str, ...]


def home_path() -> Path:
    """``$CRS_HOME``, or ``.crs`` in the working directory."""
    return Path(os.environ.get("CRS_HOME") or DEFAULT_HOME).expanduser().resolve()
