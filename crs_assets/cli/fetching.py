"""``crs weights fetch``: download what a suite's encoders lack, and say what could not be had and why."""

import click

from crs_assets.cli.session import open_bench


def fetch_weights(suite: str, encoders: tuple[str, ...]) -> bool:
    """Fetch and report per encoder; False where any could not be had."""
    bench = open_bench(suite)
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
    return complete
