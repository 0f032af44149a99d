"""The page in a real browser: it opens, asks for nothing, complains of nothing, fits a phone."""

import pytest
from made_up_page import write_result, write_run, write_verdict
from support.chromium import BINARY, Chromium

from loopless.report.gathering import gather
from loopless.report.page import page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BINARY is None, reason="no browser is installed"),
]


@pytest.fixture(scope="module")
def browser():
    found = Chromium()
    yield found
    found.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    runs = [write_run(folder / name) for name in ("one", "a-run-with-quite-a-long-name-" * 3)]
    path = folder / "page.html"
    results = [write_result(folder / "returns.json"), folder / "no.json"]
    path.write_text(page(gather(runs, results, [write_verdict(folder / "verify.json")])))
    return path


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_is_quiet_with_everything_open(browser, file, width, dark):
    browser.open(file, width, dark)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate("document.querySelectorAll('svg path').length") > 3
    assert [url for url in browser.requests if not url.startswith("data:")] == [file.as_uri()]
    assert browser.complaints == []


def test_the_themes_differ_and_can_be_read(browser, file):
    shades = []
    for dark in (False, True):
        browser.open(file, 1280, dark)
        style = "getComputedStyle(document.body)"
        shades.append([_light(browser.evaluate(f"{style}.{key}"))
                       for key in ("backgroundColor", "color")])  # fmt: skip
    (paper, ink), (dark_paper, dark_ink) = shades
    assert paper - ink > 180
    assert dark_ink - dark_paper > 180


def test_pictures_are_shown(browser, file):
    browser.open(file)
    decoded = "Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth)))"
    assert browser.evaluate(decoded) == [1, 1]


def _light(colour):
    red, green, blue = (int(part) for part in colour[4:-1].split(","))
    return (red + green + blue) / 3
