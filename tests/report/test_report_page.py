"""The report as a file: what stands on it, what is left out and named, what it never says."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import polars as pl
import pytest
from report_evidence import APART, HALF, make_evidence

from crs_assets.report import canvas
from crs_assets.report.canvas import Drawing
from crs_assets.report.chapters import CHAPTERS, calibration
from crs_assets.report.chapters.patients import group_means, point_means
from crs_assets.report.chapters.ranking import comparison_data
from crs_assets.report.evidence import ANALYSES
from crs_assets.report.page import PHANTOM_WARNING
from crs_assets.report.report import render_report

VOID = {"meta", "img", "br", "link", "input", "hr"}
MINUS = "\N{MINUS SIGN}"


class Reader(HTMLParser):
    """Tags, texts by the chapter they stand in, rows of tables by caption; refuses unbalanced tags."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.texts, self.rows, self.json = [], [], [], {}, ""
        self.caption = self.row = None

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))
        if tag == "tr":
            self.row = []
        if tag in ("td", "th") and self.row is not None:
            self.row.append("")

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, f"unbalanced </{tag}>"
        if tag == "tr" and len(self.row) > 1:
            self.rows[self.caption].append([cell.strip() for cell in self.row])

    def handle_data(self, data):
        names = [name for name, _ in self.open]
        if "script" in names and self.open[-1][1].get("type"):
            self.json += data
        if "script" in names or "style" in names:
            return
        self.texts.append(data)
        if "caption" in names:
            if data.strip():
                self.caption = data.strip()
                self.rows[self.caption] = []
        elif self.row and ("td" in names or "th" in names):
            self.row[-1] += f"{data.strip()} " if data.strip() else ""

    @property
    def text(self):
        return " ".join("".join(self.texts).split())


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


DOT = Drawing(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8ffff3f0005"
        "fe02fe0def46b80000000049454e44ae426082"
    ),
    b"<svg/>",
)


@pytest.fixture(scope="module", autouse=True)
def _dots():
    """A dot in place of every picture: they take their time, and are looked at in the browser's tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canvas, "drawn", lambda figure: DOT)
        patch.setattr(calibration, "profile_drawing", lambda *parts: DOT)
        yield


@pytest.fixture(scope="module")
def evidence(page):
    return make_evidence(page)


@pytest.fixture(scope="module")
def report(evidence):
    return render_report(evidence)


@pytest.fixture(scope="module")
def reader(report):
    return read(report.html)


def test_every_chapter_stands_once_with_an_anchor_that_the_contents_lead_to(report, reader):
    assert report.chapters == tuple(plan.id for plan in CHAPTERS)
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"][1:] for tag, attributes in reader.tags if tag == "a"]
    assert set(links) <= set(ids)
    assert set(report.chapters) <= set(links)


def test_needs_no_network_and_no_other_file(report, reader):
    assert "http://" not in report.html
    assert "https://" not in report.html
    assert "url(" not in report.html
    assert not [tag for tag, _ in reader.tags if tag in ("iframe", "object", "embed")]
    addresses = [a[name] for _, a in reader.tags for name in ("src", "href", "srcset", "action") if name in a]
    assert {address.partition(":")[0] for address in addresses if not address.startswith("#")} == {"data"}


def test_every_picture_has_words_and_every_table_a_caption_and_scopes(reader):
    pictures = [attributes for tag, attributes in reader.tags if tag == "img"]
    assert len(pictures) >= 15
    assert all(len(attributes["alt"]) > 40 for attributes in pictures)
    assert not [tag for tag, _ in reader.tags if tag == "svg"]
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("caption") == tags.count("table") == len(reader.rows)
    assert {a.get("scope") for tag, a in reader.tags if tag == "th"} == {"col", "row", "rowgroup"}
    assert (tags.count("h1"), tags.count("main"), tags.count("nav")) == (1, 1, 1)
    assert dict(reader.tags)["html"]["lang"] == "en"


def test_every_row_has_a_cell_for_every_column(reader):
    for caption, rows in reader.rows.items():
        assert len({len(row) for row in rows}) == 1, caption
        assert len(rows) > 1, caption


def test_pictures_of_the_page_are_the_figures(report, reader):
    assert set(report.figures) >= {
        "leaderboard", "scores-and-ranks", "auroc-to-crs", "pareto", "axis-profiles", "encoder-lite0-112",
        "recalibration", "recalibration-cases", "label-efficiency", "degradations", "transfer", "subgroups-demo-chest",
        "depth", "weightings", "invariance",
    }  # fmt: skip
    shown = [attributes["src"] for tag, attributes in reader.tags if tag == "img"]
    assert len(shown) == len(report.figures)
    assert set(shown) == {DOT.svg_address(), DOT.png_address()}


@pytest.mark.parametrize("missing", [list(ANALYSES)[::2], list(ANALYSES)[1::2]], ids=["half", "other-half"])
def test_chapters_without_their_analysis_are_left_out_and_named(page, missing):
    found = render_report(make_evidence(page, without=tuple(missing)))
    gone = {plan.id for plan in CHAPTERS if set(missing) & set(plan.needs)}
    assert len(gone) >= len(missing)
    assert set(found.chapters) == {plan.id for plan in CHAPTERS} - gone
    assert found.missing == tuple(ANALYSES[name] for name in missing)
    assert f"Not analysed yet: {', '.join(found.missing)}; run crs report --suite demo." in read(found.html).text


def test_every_analysis_has_a_chapter_that_needs_it():
    assert {name for plan in CHAPTERS for name in plan.needs} == set(ANALYSES)


def test_a_leaderboard_alone_is_a_report_that_says_what_it_lacks(page):
    found = render_report(make_evidence(page, without=tuple(ANALYSES)))
    text = read(found.html).text
    assert found.missing == tuple(ANALYSES.values())
    assert "Ranks on this page are point estimates." in text
    assert "was not analysed for this panel" in text
    assert "comparison-data" not in found.html.partition("<script>\n")[0]


def test_outdated_analyses_are_shown_and_named(page, reader):
    text = read(render_report(make_evidence(page, outdated=("subgroups",))).html).text
    assert "Made from an earlier state than the leaderboard: subgroups; run crs report --suite demo." in text
    assert "earlier state" not in reader.text


def test_a_leaderboard_that_is_not_current_says_so(evidence, reader):
    text = read(render_report(replace(evidence, is_board_outdated=True)).html).text
    assert "The leaderboard was made from an earlier state of the suite; run crs run --suite demo." in text


def test_first_page_answers_from_the_numbers(reader):
    text = reader.text
    # The board of the fixture: lite0-112 first by CRS and second by AUROC, lite2-112 third and first.
    assert "lite2-112 (AUROC 0.886, rank 3 by CRS); CRS puts lite0-112 (rank 2 by AUROC) first." in text
    assert "Among the first 3 with a probability of at least 95 %: lite0-112 (97 %)." in text
    # lite0 minus lite2 over skin and chest: .8775 - .886 = -.0085, give or take .0012.
    assert re.search(rf"lite0-112 loses AUROC {MINUS}0\.00[89] \[{MINUS}0\.010, {MINUS}0\.007\]\.", text)
    assert f"temperature scaling, from 0.120 to 0.060 ({MINUS}0.060 [{MINUS}0.065, {MINUS}0.055]) over 45 runs" in text
    # Severities 1 and 3 cost .02 and .06 of AUROC: .04 on average.
    assert "(on average by 0.040)" in text
    assert "no predictor of AUROC elsewhere" in text
    assert PHANTOM_WARNING in text


def test_null_controls_stand_below_a_line_and_have_no_rank(report, reader):
    rows = reader.rows["Scores with their intervals"]
    assert rows[-1][0] == "pixels-16"
    assert rows[-1][-1] == "\N{EN DASH}"
    body = report.html.partition("Scores with their intervals</span>")[2].partition("</table>")[0]
    assert body.index("lite0-112") < body.index('tbody class="control"') < body.index("pixels-16")


def test_intervals_are_those_of_the_tables(reader):
    (row,) = [row for row in reader.rows["Scores with their intervals"] if row[0] == "lite0-112"]
    # CRS .711 (see the leaderboard's own test of its terms): D .75, I .7115, W .5945.
    value = 0.6 * 0.75 + 0.25 * 0.7115 + 0.15 * 0.5945
    assert row[1] == f"{value:.3f}"
    assert row[2] == f"[{value - HALF:.3f}, {value + HALF:.3f}]"


def test_comparison_data_by_hand(evidence, reader):
    data = comparison_data(evidence)
    assert json.loads(reader.json) == data
    names = [name for name, _ in data["encoders"]]
    assert data["encoders"][names.index("pixels-16")][1].endswith("(null control)")
    one, other = names.index("lite0-112"), names.index("lite2-112")
    assert data["first"] == [one, other]
    labels = [label for label, _ in data["quantities"]]
    auroc = labels.index("AUROC")
    # Over skin and chest: (.912 + .843) / 2 - (.921 + .851) / 2 = -.0085.
    pair = data["differences"][0].get(f"{one},{other}")
    assert pair[auroc] == pytest.approx([-0.0085, -0.0085 - APART, -0.0085 + APART])
    assert data["values"][0][str(one)][auroc] == pytest.approx(0.8775)
    assert dict(data["quantities"])["ECE"] == -1


def test_texts_are_escaped_everywhere(page_of, entry_of):
    nasty = '<script>alert(1)</script> & "Co" </script>'
    cells = dict.fromkeys(("demo-skin", "demo-fundus", "demo-chest"), ((1, 1), 0.6, 0.5, (0.9, 0.1, 0.9, 0.1)))
    page = page_of([entry_of("a", nasty, cells), entry_of("b", "B", cells)], title="A < B & C")
    html = render_report(make_evidence(page)).html
    assert "<script>alert" not in html
    found = read(html)
    assert nasty in found.text
    assert json.loads(found.json)["encoders"][0][1] == nasty


def test_the_same_evidence_gives_the_same_page(evidence, report):
    again = render_report(replace(evidence, runs=evidence.runs.sample(fraction=1, shuffle=True, seed=3)))
    assert again.html == report.html


def test_suppressed_groups_cannot_be_told_from_the_others(reader):
    rows = [row for row in reader.rows["Axes within subgroups, means over seeds"] if row[0] == "lite0-112"]
    by_group = {row[3].split(" fewer")[0]: row for row in rows}
    assert by_group["under 40"][4:6] == ["<10", "<10"]
    assert set(by_group["under 40"][6:]) == {"\N{EN DASH}"}
    # An exact count of the other age band would give away the rest of the test set; the sexes hide nobody.
    assert by_group["40 and over"][4] == "80 or more"
    assert by_group["female"][4] == "40"


def test_group_means_are_missing_where_a_seed_is():
    key = {"encoder": "a", "dataset": "d", "column": "sex", "group": "male", "axis": "calibration"}
    more = {"n_images": "40", "n_groups": "40", "suppressed": False}
    table = pl.DataFrame(
        [
            {**key, **more, "value": 0.1, "reason": None},
            {**key, **more, "value": 0.3, "reason": None},
            {**key, **more, "group": "female", "value": 0.2, "reason": None},
            {**key, **more, "group": "female", "value": None, "reason": "not estimable"},
        ],
        infer_schema_length=None,
    )
    assert group_means(table).select("group", "value", "reason").rows() == [
        ("male", pytest.approx(0.2), None),
        ("female", None, "not estimable"),
    ]


def test_point_means_take_the_labels_that_every_seed_has_and_the_stated_prevalence():
    def row(label, seed, sensitivity, reason=None):
        return {
            "encoder": "a", "dataset": "d", "label": label, "seed": seed, "scores": "recalibrated",
            "target_kind": "sensitivity", "target": 0.9, "sensitivity": sensitivity, "specificity": 0.5,
            "prevalences": [0.01, 0.1], "ppv": [0.2, 0.4], "npv": [0.9, 0.8], "reason": reason,
        }  # fmt: skip

    rows = [row("x", 0, 0.8), row("x", 1, 1.0), row("y", 0, 0.1), row("y", 1, None, "too few"), row("z", 0, 0.6)]
    table = pl.DataFrame([*rows, {**row("x", 0, 0.0), "target": 0.95}], infer_schema_length=None)
    (found,) = point_means(table, target=0.9, prevalence=0.1).to_dicts()
    # x: (.8 + 1) / 2 = .9; y lacks a seed; z: .6; so (.9 + .6) / 2.
    assert found["sensitivity"] == pytest.approx(0.75)
    assert (found["ppv"], found["npv"]) == (pytest.approx(0.4), pytest.approx(0.8))
    assert (found["labels"], found["all_labels"]) == (2, 3)


def test_depth_and_further_degradations_are_told_with_their_figures(reader):
    gains = reader.rows["The depth that validation chooses against the encoder's own"]
    # 0.82 at half of the blocks, 0.82 - 0.04 x 0.5 at all of them.
    assert {tuple(row[2:6]) for row in gains[1:]} == {("50 %, 50 %, 50 %", "0.800", "0.820", "+0.020")}
    every = reader.rows["Test AUROC and ECE at each depth, means over seeds"]
    assert {tuple(row[2:]) for row in every[1:]} == {
        ("50 %", "0.550", "0.820", "[0.820, 0.820]", "0.100", "3 of 3"),
        ("100 %", "0.600", "0.800", "[0.800, 0.800]", "0.100", "0 of 3"),
    }
    drops = reader.rows["Beyond the protocol"]
    assert {tuple(row[2:]) for row in drops[1:]} == {("defocus, severity 1", "+0.050", "+0.010")}


def test_calibration_with_few_labels_stands_beside_the_auroc(reader):
    # Encoder i of the evidence has the ECE 0.05 + 0.005 i whatever the labels, and 200 images at all of them.
    rows = reader.rows["ECE by share of training labels"]
    assert rows[0][-1] == "ECE at 100 %"
    assert {row[-1] for row in rows if row[0] == "lite0-112"} == {"0.050 200 images"}
    assert {row[-1] for row in rows if row[0] == "skin-only"} == {"0.055 200 images"}


def test_leaderboard_has_intervals_coverage_and_probabilities_of_the_first_ranks(page, reader):
    heads, *rows = reader.rows["Encoders by CRS, protocol demo-v1"]
    (row,) = [dict(zip(heads, row, strict=True)) for row in rows if "lite0-112" in row[1]]
    # D .75, I .7115, W .5945, as in the table of intervals.
    value = 0.6 * 0.75 + 0.25 * 0.7115 + 0.15 * 0.5945
    assert row["CRS"].split() == f"{value:.3f} [{value - HALF:.3f}, {value + HALF:.3f}]".split()
    assert (row["P(first 3)"], row["Cells"]) == ("97 %", "3 of 3")
    (control,) = [dict(zip(heads, row, strict=True)) for row in rows if "pixels-16" in row[1]]
    assert control["P(first 3)"] == "\N{EN DASH}"
    alone = read(render_report(make_evidence(page, without=("uncertainty",))).html)
    (row,) = [row for row in alone.rows["Encoders by CRS, protocol demo-v1"] if "lite0-112" in row[1]]
    assert row[heads.index("CRS")] == f"{value:.3f}"
    assert "P(first 3)" not in alone.text


def test_image_sets_stand_in_one_table_with_counts_exclusions_and_licence(page, reader):
    heads, *rows = reader.rows["Image sets"]
    assert len(rows) == len(page.datasets)
    row = dict(zip(heads, rows[0], strict=True))
    assert row["Image set"].endswith("demo-skin")
    assert (row["Images read"], row["Not read"], row["Licence"]) == ("440", "lateral view: 46", "CC0")


def test_what_was_changed_is_told_as_the_tables_call_it(reader):
    rows = reader.rows["The published ranking against rankings under other choices"]
    assert rows[1][:2] == ["anchor", "ECE: value at 0 +20 %"]


def test_a_score_beside_its_interval_is_told_below_the_leaderboard(page, reader):
    told = "In brackets: the 95 % interval over patients and seeds, panel as published."
    assert told in reader.text
    assert "It lies beside the score" not in reader.text
    evidence = make_evidence(page)
    tables = dict(evidence.analyses["uncertainty"].tables)
    shifted = pl.when(pl.col("encoder") == "lite2-112").then(pl.col("low") - 0.1).otherwise(pl.col("low"))
    upper = pl.when(pl.col("encoder") == "lite2-112").then(pl.col("high") - 0.1).otherwise(pl.col("high"))
    tables["intervals"] = tables["intervals"].with_columns(low=shifted, high=upper)
    moved = replace(evidence.analyses["uncertainty"], tables=tables)
    text = read(render_report(replace(evidence, analyses={**evidence.analyses, "uncertainty": moved})).html).text
    assert f"{told} It lies beside the score of lite2-112: see the next chapter." in text
    assert "The score lies beside its interval for lite2-112." in text
