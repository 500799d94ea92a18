"""The ``crs`` command: what each subcommand is called and which function does it."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import click

# The exit status that shells give to a command stopped by Ctrl-C.
INTERRUPTED = 130
SUITE_OPTION = click.option("--suite", default="demo", show_default=True, help="Suite id, or path of a suite's TOML.")


class CleanErrors(click.Group):
    """Errors that a person can mend are shown as one message, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        from crs_assets.assets.errors import MENDABLE
        from crs_assets.cli.interruption import InterruptedRunError

        try:
            return super().invoke(ctx)
        except InterruptedRunError as error:
            click.echo(f"\n{error}", err=True)
            sys.exit(INTERRUPTED)
        except MENDABLE as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=CleanErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="crs_assets")
def main() -> None:
    """Measure frozen medical image encoders on four axes, and score them against a frozen panel.

    State lives in $CRS_HOME, or in .crs of the working directory.
    """


@main.command()
@SUITE_OPTION
@click.option("--encoder", "encoders", multiple=True, help="Only this encoder; may be repeated.")
@click.option("--dataset", "datasets", multiple=True, help="Only this data set; may be repeated.")
@click.option("--freeze-panel", is_flag=True, help="Freeze a panel of the suite's members if there is none.")
def run(suite: str, encoders: tuple[str, ...], datasets: tuple[str, ...], freeze_panel: bool) -> None:
    """Bring a suite up to date; what is current is left alone."""
    from crs_assets.cli.running import run_suite

    if not run_suite(suite, encoders or None, datasets or None, freeze_if_missing=freeze_panel):
        sys.exit(1)


@main.command()
@SUITE_OPTION
def report(suite: str) -> None:
    """Make the analyses and the report of a benchmarked suite.

    Intervals, recalibration, subgroups, depths, further degradations, and more.
    """
    from crs_assets.cli.running import run_report

    if not run_report(suite):
        sys.exit(1)


@main.command()
@click.argument("suite")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.option("--cost", is_flag=True, help="Also hours, disk and memory here, from rates measured for some seconds.")
def plan(suite: str, as_json: bool, cost: bool) -> None:
    """Count every run of a suite before anything is spent.

    Images are counted from the catalogue and their tables; none is opened.
    """
    from crs_assets.cli.costing import measured_cost, show_cost
    from crs_assets.cli.planning import count_images
    from crs_assets.cli.session import open_bench
    from crs_assets.cli.showing import plan_text
    from crs_assets.science.plan import plan_suite

    bench = open_bench(suite, device=cost)
    counts = count_images(bench)
    counted = plan_suite(bench.suite, counts.known)
    estimate = measured_cost(bench, counted.images) if cost else None
    if as_json:
        click.echo(json.dumps(counted.to_dict() | ({"cost": estimate.to_dict()} if estimate else {}), indent=1))
        return
    click.echo(plan_text(counted, counts))
    if estimate:
        show_cost(estimate)


@main.group()
def encoder() -> None:
    """Add encoders."""


@encoder.command("add")
@click.argument("name", metavar="ENCODER")
@SUITE_OPTION
@click.option("--untrained", metavar="SEED", type=click.IntRange(min=0), help="Add its untrained twin.")
def encoder_add(name: str, suite: str, untrained: int | None) -> None:
    """Accept an encoder into a suite; nothing of the others is touched.

    ENCODER is the path of its TOML, or its id in the catalogue.
    """
    from crs_assets.cli.adding import add_encoder

    click.echo(add_encoder(name, suite, untrained))


@main.group()
def weights() -> None:
    """Fetch pretrained weights."""


@weights.command("fetch")
@SUITE_OPTION
@click.option("--encoder", "encoders", multiple=True, help="Only this encoder; may be repeated.")
def weights_fetch(suite: str, encoders: tuple[str, ...]) -> None:
    """Download what the suite's encoders lack.

    Files come at their pinned revisions, into the mirror folder.
    """
    from crs_assets.cli.fetching import fetch_weights

    if not fetch_weights(suite, encoders):
        sys.exit(1)


@main.group()
def dataset() -> None:
    """Check and fetch data sets."""


@dataset.command("check")
@click.argument("name", metavar="DATASET")
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--look-alikes", is_flag=True, help="Also look for near-duplicates, where the method works.")
@click.option("--protocol", default="crs-v1", show_default=True, help="Whose splits and label fractions to try.")
def dataset_check(name: str, folder: Path | None, look_alikes: bool, protocol: str) -> None:
    """Check a data set, and show what the benchmark would use of it.

    DATASET is its id, or the path of its TOML; FOLDER is where its images lie, if config.toml does not say so.
    """
    from crs_assets.cli.checking import check
    from crs_assets.science.datasets import render_check

    checked = check(name, folder, look_alikes=look_alikes, protocol=protocol)
    click.echo(f"Under protocol {protocol}:")
    click.echo(render_check(checked))
    if checked.problems:
        sys.exit(1)


@dataset.command("fetch")
@click.argument("name", metavar="DATASET")
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
def dataset_fetch(name: str, folder: Path | None) -> None:
    """Download a data set whose licence lets a program do so.

    For the others, say how a person gets it.
    """
    from crs_assets.cli.fetching import fetch_images

    click.echo(f"{name}: {fetch_images(name, folder)}")


@main.group()
def panel() -> None:
    """Freeze, show and verify reference panels."""


@panel.command("freeze")
@SUITE_OPTION
def panel_freeze(suite: str) -> None:
    """Freeze the suite's panel members as they stand.

    Scores are taken against that panel from now on.
    """
    from crs_assets.cli.session import open_bench
    from crs_assets.stages.scores import freeze_panel

    frozen = freeze_panel(open_bench(suite))
    click.echo(f"{frozen['name']}: {len(frozen['encoders'])} encoders, {len(frozen['datasets'])} data sets, in force.")


@panel.command("show")
@SUITE_OPTION
def panel_show(suite: str) -> None:
    """Show the panel in force."""
    from crs_assets.cli.session import open_panel
    from crs_assets.cli.showing import panel_text

    click.echo(panel_text(open_panel(suite)[1]))


@panel.command("verify")
@SUITE_OPTION
@click.option("--rederive", is_flag=True, help="Recompute the panel from the stored profiles and compare.")
def panel_verify(suite: str, rederive: bool) -> None:
    """Check the panel's hash and schema.

    On request also that the stored profiles still give it.
    """
    from crs_assets.cli.session import open_panel
    from crs_assets.stages.scores import rederive_panel

    bench, frozen = open_panel(suite)
    click.echo(f"{frozen['name']}: schema and SHA-256 hold.")
    if rederive:
        found = rederive_panel(bench, frozen)
        if found:
            raise click.ClickException("the stored profiles give another panel:\n  " + "\n  ".join(found))
        click.echo("The stored profiles give exactly this panel.")


@main.command()
@SUITE_OPTION
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated.")
def leaderboard(suite: str, as_json: bool, as_csv: bool) -> None:
    """Show the leaderboard of a suite."""
    from crs_assets.cli.showing import show_leaderboard

    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other.")
    show_leaderboard(suite, as_json=as_json, as_csv=as_csv)


@main.command()
@SUITE_OPTION
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A new or empty folder.")
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(["parquet", "csv", "eval-results", "mteb", "croissant"]),
    help="Only this format; may be repeated.",
)
@click.option("--benchmark", metavar="OWNER/NAME", help="Hub data set of the leaderboard, for eval-results.")
@click.option("--predictions", is_flag=True, help="Also predictions of single images, under hashed ids.")
@click.option("--force", is_flag=True, help="Replace an export that differs.")
def export(
    suite: str, out: Path, formats: tuple[str, ...], benchmark: str | None, predictions: bool, force: bool
) -> None:
    """Write a suite's results for other tools.

    Tables, results of models, and descriptions of data sets; no image and no id of a patient.
    """
    from crs_assets.cli.exporting import export_suite

    export_suite(suite, out, formats, benchmark=benchmark, predictions=predictions, force=force)


@main.command()
@SUITE_OPTION
def doctor(suite: str) -> None:
    """Say what a suite lacks on this machine, and how to mend it.

    Looks at device, disk, weights, data roots, licences and gates.
    """
    from crs_assets.cli.doctor import examine

    findings = examine(suite)
    width = shutil.get_terminal_size((100, 24)).columns
    for finding in findings:
        click.echo(finding.lines(width))
    if any(finding.blocks for finding in findings):
        sys.exit(1)


@main.command()
@click.option("--port", default=3000, show_default=True, type=click.IntRange(1024, 65535))
def ui(port: int) -> None:
    """Open the Dagster UI on the same runs, on this machine only."""
    from crs_assets.cli.session import serve_ui

    serve_ui(port)
