"""``crs weights fetch``, ``crs dataset fetch``: download what may be downloaded, say why the rest could not be had."""

from pathlib import Path

import click

from crs_assets.cli.session import check_selection, mirror_problems, open_bench, open_roots
from crs_assets.resources.home import Home, home_path
from crs_assets.science.datasets import fetch_dataset, load_dataset_spec
from crs_assets.science.suite import find_entry
from crs_assets.science.toml_models import CatalogError


def fetch_weights(suite: str, encoders: tuple[str, ...]) -> bool:
    """Fetch and report per encoder; False where any could not be had.

    Raises:
        CatalogError: If the suite has no such encoder, or the site's mirror is no folder.
    """
    bench = open_bench(suite)
    check_selection(bench, encoders, None)
    if problems := mirror_problems(bench):
        raise CatalogError("\n".join(problems))
    specs = [spec for name, spec in bench.suite.encoders.items() if not encoders or name in encoders]
    complete = True
    shown: dict[str, int] = {}

    def progress(file: str, done: int, total: int | None) -> None:
        percent = int(100 * done / total) if total else 0
        if percent // 10 > shown.get(file, -1):
            shown[file] = percent // 10
            click.echo(f"  {file}: {done / 1e6:.0f} MB" + (f" of {total / 1e6:.0f} MB" if total else ""), err=True)

    for fetched in bench.weights.fetch_each(specs, progress):
        complete = complete and not fetched.problem
        click.echo(f"{fetched.encoder}: {fetched.problem or f'{len(fetched.files)} file(s) in place'}")
    if not complete:
        click.echo(f"What goes where: {bench.suite.command('doctor')}")
    return complete


def fetch_images(name: str, folder: Path | None) -> Path:
    """Fetch a data set that a program may fetch, telling its terms first; where it lies now.

    Args:
        name: Data set id, or path of its TOML.
        folder: Where it is to lie; by default where the benchmark looks for it.

    Raises:
        CatalogError: If there is no such entry.
        DatasetError: If it is not to be had; the message says how a person gets it.
    """
    home = Home(home_path())
    entry = Path(name) if name.endswith(".toml") else find_entry("datasets", name, home.catalog)
    spec = load_dataset_spec(entry)
    click.echo(f"{spec.title}: licence {spec.licence}; cite {spec.citation}", err=True)
    shown = -1

    def progress(done: int, total: int | None) -> None:
        nonlocal shown
        tenth = 10 * done // total if total else 0
        if tenth > shown:
            shown = tenth
            click.echo(f"  {done / 1e6:.0f} MB" + (f" of {total / 1e6:.0f} MB" if total else ""), err=True)

    return fetch_dataset(spec, folder or open_roots(home, spec.id).path(spec.id), progress=progress)
