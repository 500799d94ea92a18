"""The report in a real Chromium: it renders, sorts, compares, folds, prints; nothing is asked of any network."""

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from report_evidence import make_evidence

from crs_assets.report.report import render_report

pytestmark = pytest.mark.slow
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_CHROMIUM = (
    f"no Chromium is installed: none of {', '.join(NAMES)} is on PATH and playwright has none of its own; "
    "`apt-get install chromium` or `.venv/bin/playwright install chromium` brings one"
)
MINUS = "\N{MINUS SIGN}"
LIMIT = 6_000_000


@pytest.fixture(scope="module")
def address(page, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    html = render_report(make_evidence(page)).html
    assert len(html) < LIMIT
    path.write_text(html, encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as tool:
        paths = [*map(shutil.which, NAMES), tool.chromium.executable_path]
        chromium = next((path for path in paths if path and Path(path).exists()), None)
        if chromium is None:
            pytest.skip(NO_CHROMIUM)
        found = tool.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(params=[1360, 390], ids=["desktop", "phone"])
def opened(browser, address, request):
    """The page at a width; whatever it complains of or asks for is an error at the end."""
    tab = browser.new_page(viewport={"width": request.param, "height": 844})
    complaints, asked = [], []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda wanted: asked.append(wanted.url))
    tab.goto(address)
    yield tab
    tab.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith("data:")] == [address]


def test_renders_every_picture_and_never_wider_than_the_screen(opened):
    opened.get_by_role("button", name="Open all folded parts").click()
    sizes = opened.eval_on_selector_all("img", "all => all.map(one => [one.complete, one.naturalWidth])")
    assert len(sizes) >= 15
    assert all(complete and width > 100 for complete, width in sizes)
    inside, across = opened.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert inside <= across


def test_a_click_and_a_key_sort_rows_within_their_section(opened):
    table = opened.locator("table", has=opened.locator("caption", has_text="Encoders by CRS")).first

    def ranked():
        return table.locator("tbody.ranked tr:not(.section)").evaluate_all(
            "rows => rows.map(row => row.cells[1].querySelector('small').textContent)"
        )

    # By CRS lite0, skin-only, lite2, dinov2; by AUROC lite2 .886, lite0 .8775, skin-only .8765, dinov2 .8205.
    by_crs = ["lite0-112", "skin-only", "lite2-112", "dinov2-block6"]
    by_auroc = ["lite2-112", "lite0-112", "skin-only", "dinov2-block6"]
    assert ranked() == by_crs
    heading = table.get_by_role("button", name="AUROC", exact=True)
    heading.click()
    assert ranked() == by_auroc
    assert table.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    heading.press("Enter")
    assert ranked() == by_auroc[::-1]
    assert table.locator("tbody.control tr:not(.section)").count() == 1


def test_compares_two_encoders_and_turns_the_sign_with_them(opened):
    shown = opened.locator("#comparison-table")

    def auroc():
        cells = shown.locator("tbody").first.locator("tr", has_text="AUROC").first.locator("td")
        return cells.all_inner_texts()

    # Over skin and chest lite0 has .8775 and lite2 .8860; the interval reaches .0012 to either side.
    values = auroc()
    assert values[:2] == ["0.877", "0.886"] or values[:2] == ["0.878", "0.886"]
    assert values[2].startswith(f"{MINUS}0.00")
    assert values[4] == "second is better"
    one, other = opened.get_by_label("First encoder"), opened.get_by_label("Second encoder")
    first, second = one.input_value(), other.input_value()
    one.select_option(second)
    other.select_option(first)
    turned = auroc()
    assert turned[:2] == values[1::-1]
    assert turned[2] == values[2].replace(MINUS, "+")
    assert turned[4] == "first is better"
    assert "lite2-112 minus lite0-112" in shown.inner_text()


def test_works_by_keyboard_from_the_first_key_on(opened):
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.className") == "skip"
    opened.keyboard.press("Enter")
    assert opened.url.endswith("#in-short")
    fold = opened.locator("summary", has_text="Each data set by itself")
    fold.focus()
    opened.keyboard.press("Enter")
    assert fold.evaluate("fold => fold.parentElement.open")


def test_prints_the_findings_and_leaves_out_what_is_folded(opened):
    opened.emulate_media(media="print")
    assert opened.locator("nav").is_hidden()
    assert opened.get_by_text("What must not be concluded?").is_visible()
    assert opened.locator("details:not([open])").first.is_hidden()
    assert opened.pdf(prefer_css_page_size=True)[:5] == b"%PDF-"


def test_says_without_a_script_where_the_numbers_are(browser, address):
    tab = browser.new_context(java_script_enabled=False).new_page()
    tab.goto(address)
    assert "needs JavaScript" in tab.locator("noscript").first.inner_text()
    assert tab.locator("#comparison").is_hidden()
    assert tab.get_by_text("Scores with their intervals").first.is_visible()
    tab.close()
