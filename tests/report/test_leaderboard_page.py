from dataclasses import replace
from html.parser import HTMLParser

import pytest

from crs_assets.report.leaderboard import render_html
from crs_assets.report.page import PHANTOM_WARNING

SKIN, FUNDUS, CHEST = "demo-skin", "demo-fundus", "demo-chest"
NONE, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
VOID = {"meta", "img", "br", "link", "input", "hr"}
RAW = {"style", "script"}


class Reader(HTMLParser):
    """Collects tables by caption: section -> rows of texts; refuses unbalanced tags."""

    def __init__(self):
        super().__init__()
        self.open, self.tables, self.tags, self.texts = [], {}, [], []
        self.caption = self.section = self.row = None

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.section = None
        if tag == "tbody":
            self.section = attributes.get("class")
        if tag == "tr":
            self.row = []
        if tag in ("td", "th") and self.row is not None:
            self.row.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"unbalanced </{tag}>"
        if tag == "tr" and self.section and len(self.row) > 1:
            self.tables[self.caption].setdefault(self.section, []).append(self.row)

    def handle_data(self, data):
        if self.open and self.open[-1] in RAW:
            return
        self.texts.append(data)
        if "caption" in self.open:
            self.caption = data.strip()
            self.tables[self.caption] = {}
        elif self.row and ("td" in self.open or "th" in self.open):
            self.row[-1] += f"{data.strip()}\n" if data.strip() else ""


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def lines(cell):
    return cell.strip().split("\n")


@pytest.fixture(scope="module")
def html(page):
    return render_html(page)


@pytest.fixture(scope="module")
def reader(html):
    return read(html)


@pytest.fixture(scope="module")
def headline(reader):
    return reader.tables["Encoders by CRS, protocol demo-v1"]


def test_is_one_document_with_a_heading_and_a_language(reader):
    tags = [tag for tag, _ in reader.tags]
    assert (tags.count("h1"), tags.count("html"), tags.count("main")) == (1, 1, 1)
    assert dict(reader.tags)["html"]["lang"] == "en"


def test_needs_no_network(html, reader):
    assert "http://" not in html
    assert "https://" not in html
    assert "url(" not in html
    assert not [tag for tag, _ in reader.tags if tag in ("link", "iframe", "object")]
    sources = [attributes["src"] for _, attributes in reader.tags if "src" in attributes]
    assert [source.partition(",")[0] for source in sources] == ["data:image/png;base64"]


def test_picture_and_tables_say_what_they_are(reader):
    assert all(attributes["alt"] for tag, attributes in reader.tags if tag == "img")
    scopes = [attributes.get("scope") for tag, attributes in reader.tags if tag == "th"]
    assert set(scopes) == {"col", "row", "rowgroup"}
    assert [tag for tag, _ in reader.tags].count("caption") == [tag for tag, _ in reader.tags].count("table")


def test_every_encoder_stands_once_in_every_table(page, reader):
    encoders = sorted(page.board.rows["encoder"].unique())
    tables = [content for content in reader.tables.values() if "ranked" in content]
    assert len(tables) == 1 + 3
    for content, position in zip(tables, (1, 0, 0, 0), strict=True):
        named = [lines(row[position])[1] for rows in content.values() for row in rows]
        assert sorted(named) == encoders


def test_ranked_stand_above_incomplete_and_controls_below(headline):
    assert list(headline) == ["ranked", "incomplete", "control"]
    assert [lines(row[1])[1] for row in headline["ranked"]] == ["lite0-112", "skin-only", "lite2-112", "dinov2-block6"]
    assert [lines(row[0])[0] for row in headline["ranked"]] == ["1", "2", "3", "4"]


def test_incomplete_has_no_rank_no_score_and_a_reason(headline):
    (row,) = headline["incomplete"]
    assert lines(row[1])[1] == "half-run"
    assert [lines(cell)[0] for cell in (row[0], row[3])] == [NONE, NONE]
    assert "demo-chest: missing: not run" in row[-1]


def test_control_has_a_score_and_no_rank(headline):
    (row,) = headline["control"]
    assert lines(row[0])[0] == NONE
    # Skin and chest: .25 x (.455 + .402) / 2 + .15 x (.221 + .163) / 2 = .107125 + .0288.
    assert lines(row[3])[0] == "0.136"


def test_numbers_are_those_of_a_hand_calculation(headline):
    row = headline["ranked"][1]
    # Over skin and chest, which all ranked encoders have: D = (2/4 + 2/4) / 2, I = (.703 + .691) / 2,
    # W = (.588 + .561) / 2; CRS = .6 x .5 + .25 x .697 + .15 x .5745 = .5604. Label efficiency = (.942 + .950) / 2.
    assert [lines(cell)[0] for cell in row[3:6]] == ["0.560", "0.500", "0.697"]
    assert lines(row[9])[0] == "0.946"
    # AUROC: lite2 .886, lite0 .8775, skin-only .8765, dinov2 .8205; by CRS lite0, skin-only, lite2, dinov2.
    heads = [(lines(row[1])[1], [lines(cell)[0] for cell in row[14:16]]) for row in headline["ranked"]]
    assert heads == [
        ("lite0-112", ["2", "+1"]),
        ("skin-only", ["3", "+1"]),
        ("lite2-112", ["1", f"{MINUS}2"]),
        ("dinov2-block6", ["4", "0"]),
    ]


def test_coverage_stands_wherever_the_number_is(headline):
    cells = {lines(row[1])[1]: lines(row[11])[0] for rows in headline.values() for row in rows}
    assert (cells["lite0-112"], cells["skin-only"], cells["half-run"]) == ("3 of 3", "2 of 2", "1 of 3")


def test_dataset_tables_state_absent_missing_and_at_null(page, reader):
    fundus = reader.tables[page.dataset_title(FUNDUS)]
    states = {lines(row[0])[1]: row[-1] for rows in fundus.values() for row in rows}
    assert "absent: made for one organ" in states["skin-only"]
    assert "missing: not run" in states["half-run"]
    assert "at null" in states["dinov2-block6"]
    assert "at null" not in states["lite0-112"]
    assert "at null" not in states["pixels-16"]
    skin = reader.tables[page.dataset_title(SKIN)]
    assert {lines(row[0])[1]: lines(row[2])[0] for row in skin["ranked"]}["lite0-112"] == "3/4"


def test_rows_have_a_cell_for_every_column(reader):
    for content in reader.tables.values():
        assert len({len(row) for rows in content.values() for row in rows}) <= 1


def test_agreement_in_words_by_hand(reader):
    text = "".join(reader.texts)
    # Two pairs turn round (lite2 with lite0 and with skin-only): tau = (4 - 2) / 6; rho = 1 - 6 (1 + 1 + 4) / (4 x 15).
    assert (
        "AUROC against CRS (demo-v1), 4 ranked encoders: 2 of 6 pairs reversed; Kendall's tau-b 0.333, Spearman's rho "
        "0.400; mean displacement 1.000 places; 3 of the first 3 in both." in text
    )
    assert "CRS demo-v1 against demo-v1-skill, 4 ranked encoders: 0 of 6 pairs reversed" in text


def test_says_what_a_crs_is_not_and_what_the_ranking_rests_on(page, reader):
    text = " ".join("".join(reader.texts).split())
    assert "not a predictor of performance at another hospital" in text
    assert "0.529 against 0.864" in text
    assert f"because not every ranked encoder has it: {page.dataset_title(FUNDUS)}" in text


def test_unrankable_dataset_is_said_to_be_left_out(page_of, entries):
    page = page_of(entries, rankable=(SKIN,))
    text = " ".join("".join(read(render_html(page)).texts).split())
    assert "no encoder of the panel is above its null controls there" in text
    assert "over 1 data set: Skin lesions" in text


def test_phantom_banner_stands_only_where_there_are_phantoms(page, html):
    real = render_html(replace(page, phantoms=False))
    assert html.count("says nothing") == 0
    assert (PHANTOM_WARNING.replace("'", "&#39;") in html, "say nothing about any encoder" in real) == (True, False)


def test_titles_reasons_and_versions_are_escaped(page_of, entry_of):
    cells = {SKIN: ((1, 1), 0.6, 0.5, (0.9, 0.1, 0.9, 0.1))}
    nasty = entry_of(
        "a", "<script>alert(1)</script> & Co", cells, states={FUNDUS: "absent: <b>x</b>", CHEST: "absent: y"}
    )
    page = page_of([nasty], title="A < B & C", provenance={"device": "<i>gpu</i>"}, panel="p<q")
    html = render_html(page)
    assert "<script>alert(1)" not in html
    assert "<b>x</b>" not in html
    assert "<i>gpu</i>" not in html
    assert "A < B" not in html
    text = "".join(read(html).texts)
    for expected in ("<script>alert(1)</script> & Co", "absent: <b>x</b>", "<i>gpu</i>", "A < B & C", "p<q"):
        assert expected in text


def test_same_page_gives_the_same_bytes_whatever_the_order_of_provenance(page, html):
    turned = dict(reversed(page.provenance.items()))
    assert render_html(page) == html
    assert render_html(replace(page, provenance=turned)) == html


def test_a_page_without_ranked_encoders_says_so(page_of, entries):
    page = page_of(entries, rankable=())
    reader = read(render_html(page))
    text = " ".join("".join(reader.texts).split())
    assert "No encoder is ranked" in text
    assert "there are no rankings to compare" in text
    assert list(reader.tables["Encoders by CRS, protocol demo-v1"]) == ["incomplete", "control"]


def test_equal_scores_share_a_rank_and_have_no_correlation(page_of, entry_of):
    cells = {SKIN: ((1, 1), 0.6, 0.5, (0.9, 0.1, 0.9, 0.1))}
    states = {FUNDUS: "absent: a", CHEST: "absent: a"}
    page = page_of([entry_of("a", "A", cells, states=states), entry_of("b", "B", cells, states=states)])
    reader = read(render_html(page))
    ranked = reader.tables["Encoders by CRS, protocol demo-v1"]["ranked"]
    assert [lines(row[0])[0] for row in ranked] == ["1.5", "1.5"]
    assert "0 of 1 pair reversed, 1 tied; Kendall's tau-b undefined (one ranking is a single tie)" in "".join(
        reader.texts
    )


def test_one_reading_needs_no_further_columns(page):
    board = replace(
        page.board,
        rows=page.board.rows.filter(page.board.rows["reading"] == "demo-v1"),
        cells=page.board.cells.filter(page.board.cells["reading"] == "demo-v1"),
    )
    html = render_html(replace(page, readings=("demo-v1",), board=board))
    assert "CRS skill" not in html
    assert len(read(html).tables["Encoders by CRS, protocol demo-v1"]["ranked"]) == 4
