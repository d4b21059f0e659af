"""The page in a browser: figures, sorting, filters, keyboard, themes, and scripts in the names of runs.

The tests need chromium, chromedriver and the Python package selenium. They are skipped if one is missing.
"""

import importlib.util
import shutil
import time
from pathlib import Path

import pytest
from helpers.run_folders import write_run, write_sweep

from lightning_ssl.app import report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
missing = [
    words
    for words, found in (
        ("chromium (apt-get install chromium)", CHROMIUM),
        ("chromedriver (apt-get install chromium-driver)", DRIVER),
        ("selenium (pip install selenium)", importlib.util.find_spec("selenium")),
    )
    if not found
]
pytestmark = pytest.mark.skipif(bool(missing), reason="missing: " + ", ".join(missing))

HOSTILE = "<script>window.ran=1</script><img src=x onerror=window.ran=2><b>bold</b>"


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # Parallel coordinates need WebGL, here in software. Chromium as root, as in a container, needs --no-sandbox.
    for flag in (
        "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900",
        "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of a page with four losses, two batch sizes, two seeds, a failed run and a script as a name."""
    folder = tmp_path_factory.mktemp("runs")
    for batch in (128, 256):
        write_sweep(folder / f"{batch}", ("direct", "infonce", "square", "entropy"), 2, epochs=5, batch_size=batch)
    write_run(folder / "dead", "direct", 9, 0.2, epochs=5, points=2, status="failed", error="nan at step 7")
    name = HOSTILE.replace("/", "∕")

    def rename(config):
        config["model"]["init_args"]["importance"]["class_path"] = "mine." + HOSTILE.replace(".", "")

    write_run(folder / name, "direct", 0, 0.9, epochs=5, batch_size=128, change=rename)
    return report.build([folder], figures=False, title=HOSTILE).page.resolve().as_uri()


@pytest.fixture(scope="module")
def opened(browser, address):
    """The page in a window of desktop size with the light theme."""
    emulate(browser)
    browser.get(address)
    wait(browser, "return document.querySelectorAll('#plot-spectrum-0 .scatterlayer .trace').length > 0")
    return browser


@pytest.fixture
def page(opened):
    """The page without filters. A test that hides a line must show it again."""
    opened.execute_script(
        "document.querySelectorAll('input[type=search], select[data-filter]').forEach(c => {"
        "if (c.value) { c.value = ''; c.dispatchEvent(new Event('input')); } })"
    )
    wait(
        opened,
        "return document.getElementById('plot-spectrum-0').data.filter(t => t.name).length"
        " === document.querySelectorAll('#legend [aria-pressed=true]').length",
    )
    return opened


def emulate(browser, width=1280, dark=False):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    # With reduced motion the page does not scroll smoothly, so an element does not move while a test clicks it.
    preferences = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in preferences.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def wait(browser, condition, seconds=90):
    end = time.monotonic() + seconds
    while not browser.execute_script(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.1)


def column(browser, k, table="comparison"):
    """Return the texts of the visible cells of a column, from top to bottom."""
    script = (
        "return [...document.querySelectorAll(`#${arguments[0]} tbody tr:not(.detail)`)]"
        ".filter(r => !r.hidden).map(r => r.cells[arguments[1]].innerText.trim())"
    )
    return browser.execute_script(script, table, k)


def headings(browser, table="comparison"):
    return browser.find_elements("css selector", f"#{table} thead button")


def lines(browser, panel):
    """Return the names of the lines that Plotly draws in a panel."""
    script = "return document.getElementById(arguments[0]).data.filter(t => t.name).map(t => t.name)"
    return browser.execute_script(script, f"plot-{panel}-0")


def test_every_figure_is_drawn_without_errors(page):
    for key in ("final", "accuracy", "loss", "alpha", "spectrum"):
        assert page.execute_script(f"return document.querySelectorAll('#plot-{key}-0 svg.main-svg').length") > 0
    page.execute_script("document.getElementById('plot-parameters').scrollIntoView()")
    wait(page, "return document.querySelectorAll('#plot-parameters .parcoords .y-axis').length >= 3")
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_page_makes_no_network_request(page):
    requests = [entry["message"] for entry in page.get_log("performance") if "requestWillBeSent" in entry["message"]]
    assert requests
    assert all('"url":"file:' in r or '"url":"data:' in r or '"url":"blob:' in r for r in requests)


def test_scripts_from_runs_are_not_executed(page):
    page.execute_script(
        "const place = document.getElementById('plot-accuracy-0');"
        "Plotly.Fx.hover(place, [{curveNumber: place.data.findIndex(t => t.name?.includes('bold')), pointNumber: 2}])"
    )
    wait(page, "return document.querySelector('#plot-accuracy-0 .hoverlayer').textContent.includes('<b>bold')")
    assert page.execute_script("return window.ran") is None
    assert page.execute_script("return document.images.length") == 0
    assert HOSTILE in page.execute_script("return document.querySelector('h1').innerText")
    legend = page.execute_script("return [...document.querySelectorAll('#legend button')].map(b => b.innerText)")
    assert any("<b>bold<" in name for name in legend)
    # Plotly interprets <b>, unless it is escaped.
    drawn = page.execute_script("return document.querySelector('#plot-final-0').textContent")
    assert "<script>" in drawn


def test_click_sorts_and_second_click_reverses(page):
    accuracy = headings(page)[2]
    accuracy.click()
    down = column(page, 2)
    assert page.execute_script("return document.querySelector('#comparison [aria-sort]').innerText").startswith(
        "accuracy"
    )
    accuracy.click()
    up = column(page, 2)
    assert down == sorted(down, key=lambda text: float(text.split()[0]), reverse=True)
    assert up == down[::-1]


def test_sorting_and_choosing_work_by_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    headings(page)[0].send_keys(Keys.ENTER)
    names = [name.split("\n")[-1] for name in column(page, 0)]
    assert names == sorted(names, key=str.casefold)
    box = page.find_element("css selector", "#comparison tbody input")
    title = box.get_attribute("aria-label").removeprefix("show in the figures: ")
    box.send_keys(Keys.SPACE)
    wait(page, "return document.querySelectorAll('#legend [aria-pressed=false]').length > 0")
    off = page.find_element("css selector", "#legend [aria-pressed=false]").get_attribute("textContent")
    assert off == title
    box.send_keys(Keys.SPACE)
    wait(page, "return document.querySelectorAll('#legend [aria-pressed=false]').length === 0")


def test_missing_values_sort_last_in_both_orders(page):
    final = next(k for k, th in enumerate(headings(page, "runs")) if th.text.startswith("final"))
    for _ in range(2):
        headings(page, "runs")[final].click()
        assert column(page, final, "runs")[-1] == "–"


def test_filter_applies_to_the_table_and_the_figures(page):
    page.find_element("id", "filter").send_keys("square")
    wait(page, "return document.getElementById('matches').textContent.startsWith('2 of')")
    wait(page, "return document.getElementById('plot-loss-0').data.filter(t => t.name).length === 2")
    assert all(name.startswith("AlphaCL Square") for name in lines(page, "loss"))
    batch = page.find_element("css selector", "select[data-filter=s0]")
    batch.send_keys("256")
    wait(page, "return document.getElementById('matches').textContent.startsWith('1 of')")
    assert column(page, 1) == ["256"]


def test_runs_are_filtered_by_status_and_opened(page):
    page.find_element("css selector", "select[data-filter=status]").send_keys("failed")
    wait(page, "return document.getElementById('run-matches').textContent.startsWith('1 of')")
    assert [name.removesuffix(" !") for name in column(page, 0, "runs")] == ["dead"]
    row = page.find_element("xpath", "//table[@id='runs']//tr[not(@hidden)]//button[@class='open']")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", row)
    row.click()
    detail = page.find_element("css selector", "#runs tr.detail:not([hidden])").text
    assert "nan at step 7" in detail
    assert "lightning-ssl fit" in detail
    assert "class_path: lightning_ssl.methods.AlphaCL" in detail


def test_legend_button_toggles_its_line(page):
    before = lines(page, "accuracy")
    button = page.find_element("css selector", "#legend button")
    button.click()
    wait(
        page, f"return document.getElementById('plot-accuracy-0').data.filter(t => t.name).length === {len(before) - 1}"
    )
    assert set(lines(page, "spectrum")) < set(before)
    page.execute_script("document.querySelector('#legend button').click()")
    wait(page, f"return document.getElementById('plot-accuracy-0').data.filter(t => t.name).length === {len(before)}")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_page_fits_the_window_and_has_the_theme_of_the_system(browser, address, width, dark):
    emulate(browser, width, dark)
    browser.get(address)
    wait(browser, "return document.querySelectorAll('#plot-spectrum-0 .scatterlayer .trace').length > 0")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    ink, paper = browser.execute_script(
        "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
        ".map(c => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 3)"
    )
    assert (ink > paper) == dark


def test_chosen_theme_survives_a_reload(page, address):
    button = page.find_element("id", "theme")
    button.click()
    button.click()
    page.get(address)
    assert page.execute_script("return document.documentElement.dataset.theme") == "dark"


CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize(("system", "chosen"), [("light", None), ("dark", None), ("light", "dark"), ("dark", "light")])
def test_every_text_is_readable_in_every_theme(browser, two_sets, system, chosen):
    emulate(browser, dark=system == "dark")
    browser.get(two_sets)
    browser.execute_script("sessionStorage.clear()")
    browser.get(two_sets)
    for _ in range(("light", "dark").index(chosen) + 1 if chosen else 0):
        browser.find_element("id", "theme").click()
    browser.execute_script("document.getElementById('plot-parameters').scrollIntoView()")
    wait(browser, "return document.querySelectorAll('#plot-parameters .parcoords .y-axis').length >= 2")
    browser.execute_script("document.querySelector('#runs button.open').click()")
    ratio, text = browser.execute_script(CONTRAST)
    assert ratio > 4.5, text
    # The browser draws its own parts, such as drop-down lists, in the same theme.
    scheme = browser.execute_script("return getComputedStyle(document.documentElement).colorScheme")
    assert scheme == (chosen or "light dark")
    browser.execute_script("sessionStorage.clear()")


@pytest.fixture(scope="module")
def two_sets(tmp_path_factory):
    """The address of a page with two data sets, a failed and a running run."""
    folder = tmp_path_factory.mktemp("two")
    for data, losses in (("shapes", ("direct", "infonce", "square")), ("cifar10", ("infonce", "square", "direct"))):
        write_sweep(folder / data, losses, 2, epochs=4, data=data)
    write_run(folder / "dead", "direct", 9, 0.2, epochs=4, points=2, status="failed", error="nan at step 7")
    write_run(folder / "going", "direct", 8, 0.2, epochs=4, points=2, status="running")
    return report.build([folder], figures=False).page.resolve().as_uri()


def test_each_data_set_has_its_own_axes_and_a_loss_one_colour(browser, two_sets):
    emulate(browser)
    browser.get(two_sets)
    wait(browser, "return document.querySelectorAll('#plot-spectrum-1 .scatterlayer .trace').length > 0")
    colours = browser.execute_script(
        "return [0, 1].map(k => Object.fromEntries(document.getElementById(`plot-accuracy-${k}`).data"
        ".filter(t => t.name).map(t => [t.name, t.line.color + t.line.dash])))"
    )
    assert colours[0] == colours[1]
    assert len(set(colours[0].values())) == 3
    assert len(browser.find_elements("css selector", "#legend button")) == 3  # one for each loss
    browser.find_element("css selector", "select[data-filter=data]").send_keys("shapes")
    wait(browser, "return document.getElementById('plot-final-0').closest('.axes').hidden")  # cifar10 is first
    assert not browser.execute_script("return document.getElementById('plot-final-1').closest('.axes').hidden")
