"""The rendered site, in a browser: every page in the light and in the dark theme, on a
desk and on a phone. Wants Quarto and any Chromium. Formulas are set by MathJax, from
the network or from the folder that INFATTN_MATHJAX names (where
`es5/tex-chtml-full.js` lies).
"""

import gzip
import html
import http.server
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pack_source
import pytest
from conftest import CHROMIUM, browser
from panels import places_in
from run_pages import figures, read
from run_pages import name as name_of
from test_figures import png_of
from written import CFG, PAGES, ROOT

pytestmark = [
    pytest.mark.rendered,
    pytest.mark.xdist_group("browser"),  # its fixtures are made once
]
PUBLISHED, HOSTS = CFG.getboolean("published"), (CFG["git_url"], CFG["doc_host"])
MATHJAX = os.environ.get("INFATTN_MATHJAX")
API = (
    "api/index.html",
    "api/attentionregressor.html",
    "api/exchangeablescores.html",
    "api/transformer.html",
)  # with the longest names and signatures
PARTS = pack_source.PACKAGE


@pytest.fixture(scope="session")
def rendering(tmp_path_factory):
    "What `nbdev_docs` says, and the folder of the site."
    if not shutil.which("quarto"):
        pytest.skip("Quarto is not installed")
    here = tmp_path_factory.mktemp("rendered")
    for part in PARTS:
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(
            ROOT / part, here / part
        )
    run = subprocess.run(
        [Path(sys.executable).with_name("nbdev_docs")],
        cwd=here,
        capture_output=True,
        text=True,
    )
    return run.returncode, run.stdout + run.stderr, here / "_docs"


def test_quarto_renders_without_a_warning(rendering):
    code, log, site = rendering
    assert code == 0, log[-4000:]
    assert not re.search("WARN|ERROR|Unable to resolve", log), log[-4000:]
    for page in site.rglob("*.html"):
        assert "?@" not in page.read_text(encoding="utf-8"), page.name


def to_root(name):
    return "../" * name.count("/") or "./"


def test_every_page_offers_its_notebook(rendering):
    "By a relative link, which holds in every copy of the site."
    site = rendering[-1]
    for name in map(name_of, PAGES):
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        file = f"{Path(name).name}.zip"
        link = f'href="{to_root(name)}notebooks/{name}.zip" download="{file}"'
        assert link in page
        assert (site / f"notebooks/{name}.zip").stat().st_size > 1000


def test_the_menu_marks_the_page_that_is_open(rendering):
    marked = {}
    for name in map(name_of, PAGES):
        entries = re.findall(
            r'<a class="nav-link active" href="([^"]+)" aria-current="page"',
            (rendering[-1] / f"{name}.html").read_text(encoding="utf-8"),
        )
        assert not set(entries) - {f"{to_root(name)}{name}.html"}, name
        marked[name] = len(entries)
    assert marked["recipes"] == marked["essay"] == marked["reference/notation"] == 1
    assert marked["attention/layer"] == 0


def test_no_link_is_shown_as_it_is_written(rendering):
    for page in rendering[-1].rglob("*.html"):
        text = re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))
        assert "`](http" not in text, page.name
        assert not re.search(r"\w\]\(http", text), page.name


def test_names_of_arguments_are_no_links(rendering):
    "`width` in a text is an argument, not the check of that name."
    for page in rendering[-1].rglob("*.html"):
        assert not re.search(
            r'href="[^"]*checks\.html#\w+"[^>]*><code>',
            page.read_text(encoding="utf-8"),
        ), page.name


def test_links_lead_somewhere(rendering):
    """Nothing points to a code host or to a site that are not there yet; every other
    link inside the site has its target.
    """
    site = rendering[-1]
    pages = {
        str(page.relative_to(site)): page.read_text(encoding="utf-8")
        for page in site.rglob("*.html")
    }
    for name, page in pages.items():
        for link in re.findall(r'<a [^>]*href="([^"]+)"', page):
            file, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                assert PUBLISHED or not link.startswith(HOSTS), f"{name}: {link}"
                continue
            lead = os.path.normpath(Path(name).parent / file) if file else name
            assert (site / lead).exists(), f"{name}: {link}"
            target = pages.get(lead, "")
            assert not anchor or not target or f'id="{anchor}"' in target, (
                f"{name}: {link}"
            )


def test_published_pages_say_where_they_live(rendering, tmp_path):
    """One switch in settings.ini shows the links to the code host, the other way round
    `test_links_lead_somewhere`.
    """
    here, name = rendering[-1].parent, "numerics/checks"
    for part in ("nbs", "infattn_nb", "tools", "_proc", "_quarto.yml"):
        (shutil.copytree if (here / part).is_dir() else shutil.copy)(
            here / part, tmp_path / part
        )
    (tmp_path / "settings.ini").write_text(
        re.sub(
            r"(?m)^published *=.*",
            "published = True",
            (here / "settings.ini").read_text(encoding="utf-8"),
        ),
        encoding="utf-8",
    )
    subprocess.run(
        ["quarto", "render", f"{name}.ipynb"],
        cwd=tmp_path / "_proc",
        check=True,
        capture_output=True,
    )
    page = (tmp_path / f"_proc/_docs/{name}.html").read_text(encoding="utf-8")
    for address in (
        f"/blob/{CFG['branch']}/nbs/{name}.ipynb",
        "/issues/new",
        f"/blob/{CFG['branch']}/infattn_nb/numerics/checks.py#L",
    ):
        assert f'href="{CFG["git_url"]}{address}' in page, address


def test_pages_load_nothing_but_mathjax_from_elsewhere(rendering):
    for page in rendering[-1].rglob("*.html"):
        hosts = re.findall(
            r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(https?://[^"]*)"',
            page.read_text(encoding="utf-8"),
        )
        assert all("/mathjax@3/" in h for h in hosts), f"{page.name}: {hosts}"


def test_home_page_is_light(rendering):
    "What a visitor loads, compressed, without MathJax."
    site = rendering[-1]
    page = (site / "index.html").read_text(encoding="utf-8")
    files = set(
        re.findall(
            r'<(?:script|img|link)[^>]+(?:src|href)="(?:\./)?([^":?#]+\.(?:js|css|png|svg))"',
            page,
        )
    ) | {"index.html", "search.json"}
    assert len(files) > 10
    assert sum(len(gzip.compress((site / f).read_bytes())) for f in files) < 1e6


def test_nothing_is_printed_raw(rendering):
    "No types of numbers, no arguments that say nothing."
    for page in rendering[-1].rglob("*.html"):
        text = html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))
        assert not re.search(
            r"dtype: \w+|np\.float64\(|\*args, \*\*kwargs|slice\(None, None, None|\b1 heads\b|\binf heads\b",
            text,
        ), page.name


def test_pages_say_where_panels_are(rendering):
    "All that the stored pictures say has come through."
    for path in PAGES:
        page = (rendering[-1] / f"{name_of(path)}.html").read_text(encoding="utf-8")
        stored = [places_in(png_of(data)) for _, data in figures(read(path))]
        said = re.findall(r'<img src="[^"]*" data-panels="([^"]*)"', page)
        found = [json.loads(html.unescape(places)) for places in said]
        assert found == [places for places in stored if places["pieces"]], path


# What the search finds


def test_every_document_of_the_search_has_its_place(rendering):
    "Its page and the part of the page that its address names are there."
    site = rendering[-1]
    entries = json.loads((site / "search.json").read_text(encoding="utf-8"))
    assert len(entries) > 1000
    ids, lost = {}, []
    for entry in entries:
        page, _, part = entry["href"].partition("#")
        if page not in ids:
            text = (site / page).read_text(encoding="utf-8")
            ids[page] = {*re.findall(r' id="([^"]*)"', text)}
        if part and html.unescape(part) not in ids[page]:
            lost.append(entry["href"])
    assert not lost


# In the browser

LOOK = r"""<script>
window.errors = [];
addEventListener('error', e => errors.push(e.message || 'not loaded: ' + (e.target.src || e.target.href)), true);
addEventListener('DOMContentLoaded', () => document.head.insertAdjacentHTML('beforeend', '<style>*, *::before, *::after { transition: none !important; animation: none !important }</style>'));
addEventListener('unhandledrejection', e => errors.push(String(e.reason)));
</script>"""
SHELL = r"""<!doctype html><meta charset="utf-8"><style>body { margin: 0 } iframe { border: 0; height: 2400px }</style><iframe></iframe><script>
const frame = document.querySelector('iframe'), wait = ms => new Promise(done => setTimeout(done, ms));
const shown = e => e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true});

function fits(doc, page) {
  const width = doc.documentElement.scrollWidth, window_ = doc.documentElement.clientWidth;
  return width > window_ ? [`${width} px wide, the window ${window_}`] : [];
}

function figures(doc, page) { // an image that is missing, or that its box or the window cuts off
  const out = [];
  for (const img of doc.images) {
    const name = img.src.split('/').pop().slice(0, 60), r = img.getBoundingClientRect();
    if (!img.complete || !img.naturalWidth) { if (img.getAttribute('src')) out.push(`${name} is missing`); continue; }
    let box = img.parentElement;
    while (page.getComputedStyle(box).display.startsWith('inline')) box = box.parentElement;
    const style = page.getComputedStyle(box), left = box.getBoundingClientRect().left + box.clientLeft;
    const right = Math.min(doc.documentElement.clientWidth, left + box.clientWidth - parseFloat(style.paddingRight));
    if (r.width && r.right > right + 1) out.push(`${name} is cut by ${Math.round(r.right - right)} px`);
    const s = page.getComputedStyle(img), inner = (a, b, whole) => whole - parseFloat(s[a]) - parseFloat(s[b]); // without the card
    const ratio = inner('paddingLeft', 'paddingRight', r.width)/inner('paddingTop', 'paddingBottom', r.height);
    if (r.width && Math.abs(ratio*img.naturalHeight/img.naturalWidth - 1) > .02) out.push(`${name} is stretched`);
  }
  return out;
}

function contrast(doc, page) { // text against the ground under it: WCAG's ratio
  const dot = Object.assign(document.createElement('canvas'), {width: 1, height: 1}).getContext('2d', {willReadFrequently: true}), known = {}, out = {};
  const rgba = css => known[css] ??= (dot.clearRect(0, 0, 1, 1), dot.fillStyle = css, dot.fillRect(0, 0, 1, 1), [...dot.getImageData(0, 0, 1, 1).data].map((v, k) => k < 3 ? v : v/255));
  const over = (a, b) => [0, 1, 2].map(k => a[k]*a[3] + b[k]*(1 - a[3])).concat(1);
  const linear = v => (v /= 255) <= .04045 ? v/12.92 : ((v + .055)/1.055)**2.4;
  const luminance = c => .2126*linear(c[0]) + .7152*linear(c[1]) + .0722*linear(c[2]);
  const grounds = new Map(), ground = e => { if (!e) return [255, 255, 255, 1]; if (!grounds.has(e)) grounds.set(e, over(rgba(page.getComputedStyle(e).backgroundColor), ground(e.parentElement))); return grounds.get(e); };
  const words = [...doc.querySelectorAll('mjx-container')].map(e => [e, 'a formula']);
  for (const walk = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT); walk.nextNode();)
    if (walk.currentNode.data.trim()) words.push([walk.currentNode.parentElement, walk.currentNode.data.trim().slice(0, 30)]);
  for (const [e, text] of words) {
    if (/^(script|style|noscript)$/i.test(e.tagName) || e.closest('mjx-assistive-mml') || !shown(e)) continue;
    const {width, height} = e.getBoundingClientRect(), style = page.getComputedStyle(e);
    if (width <= 1 || height <= 1) continue; // for screen readers alone
    const ink = [...rgba(e.closest('svg') ? style.fill : style.color)], below = ground(e);
    for (let p = e; p; p = p.parentElement) ink[3] *= page.getComputedStyle(p).opacity;
    const [a, b] = [luminance(over(ink, below)), luminance(below)], ratio = (Math.max(a, b) + .05)/(Math.min(a, b) + .05);
    if (ratio < 4.5) out[`${ratio.toFixed(2)}: ${e.tagName.toLowerCase()}.${[...e.classList].join('.')}, ${style.color}`] ??= text;
  }
  return Object.entries(out).map(([what, text]) => `${what}, e.g. "${text}"`);
}

function formulas(doc, page) {
  const raw = [...doc.querySelectorAll('span.math')].filter(e => !e.querySelector('mjx-container'));
  const wrong = [...doc.querySelectorAll('mjx-merror')].map(e => e.textContent.slice(0, 80));
  if (raw.length && !page.MathJax?.startup?.promise) return ['MathJax could not be loaded'];
  const cut = [...doc.querySelectorAll('main .math.display, main mjx-container[display="true"]')].filter(e => e.clientWidth && e.scrollWidth > e.clientWidth + 3);
  return wrong.concat(raw.map(e => 'not typeset: ' + e.textContent.slice(0, 60)), cut.map(e => 'wider than the page on a desk: ' + e.textContent.slice(0, 60)));
}

function code(doc, page) { // a line of 88 characters fits on a desk, and none is broken anywhere
  const out = [];
  for (const block of doc.querySelectorAll('main pre > code')) {
    if (!shown(block)) continue;
    if (page.getComputedStyle(block).whiteSpace !== 'pre') out.push('broken: ' + block.textContent.slice(0, 60));
    if (doc.documentElement.clientWidth < 1000) continue;
    const line = block.appendChild(Object.assign(doc.createElement('span'), {textContent: 'x'.repeat(88), style: 'display: inline-block'}));
    const over = line.getBoundingClientRect().width + 2*(block.getBoundingClientRect().left - block.closest('pre').getBoundingClientRect().left) - block.closest('pre').clientWidth;
    line.remove();
    if (!block.closest('.bash, .bibtex') && block.closest('pre').scrollWidth > block.closest('pre').clientWidth + 1) out.push('cut: ' + block.textContent.slice(0, 60));
    if (over > 0) out.push(`88 characters are ${Math.round(over)} px too long: ${block.textContent.slice(0, 60)}`);
  }
  return out;
}

function words(doc, page) { // a name is broken where it may be: after a dot or a line below, not within a word
  const out = [], range = doc.createRange();
  for (const e of doc.querySelectorAll('main td, main th, main h1, main h2, main h3, main li code, main p code')) {
    const walk = doc.createTreeWalker(e, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const node = walk.currentNode;
      if (node.parentElement.closest('mjx-container, .math, pre') || !node.data.trim() || !shown(node.parentElement)) continue;
      for (const {0: word, index} of node.data.matchAll(/[A-Za-z]{4,}/g)) {
        range.setStart(node, index);
        range.setEnd(node, index + word.length);
        if (new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1) out.push(word);
      }
    }
  }
  return out;
}

function hints(doc, page) { // what scrolls sideways has a shaded edge
  const out = [];
  for (const e of doc.querySelectorAll('main table, main pre, main div, main .math.display, main p')) {
    const style = page.getComputedStyle(e);
    if (!shown(e) || !/auto|scroll/.test(style.overflowX) || e.scrollWidth <= e.clientWidth + 3) continue;
    if (!style.backgroundImage.includes('linear-gradient')) out.push(`${e.tagName.toLowerCase()}.${[...e.classList].join('.')}: ${e.textContent.trim().slice(0, 50)}`);
  }
  return out;
}

function small(doc, page) { // on a phone no label is smaller than ten pixels
  const out = [];
  if (doc.documentElement.clientWidth > 500) return out;
  for (const walk = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT); walk.nextNode();) {
    const e = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
    if (!text || /^(script|style|noscript|sup|sub)$/i.test(e.tagName) || e.closest('mjx-container') || !shown(e)) continue;
    const {width, height} = e.getBoundingClientRect(), drawn = e.getScreenCTM?.(); // in a picture letters are scaled, some turned
    const size = parseFloat(page.getComputedStyle(e).fontSize)*(drawn ? Math.hypot(drawn.a, drawn.b) : 1);
    if (width > 1 && height > 1 && size < 9.95) out.push(`${size.toFixed(1)} px: ${text.slice(0, 40)}`);
  }
  return out;
}

function labels(doc) { // of figures, on a phone: an inch is 111 px on a desk, numbers at axes are 9 points high
  const out = [];
  for (const img of doc.querySelectorAll('main .cell-output-display img[width]')) {
    const desk = img.getAttribute('width')/img.naturalWidth; // a pixel of the file
    const shown = img.matches('.in-panels') ? [...img.nextElementSibling.children].map(e => [e, e.width]) : [[img, img.naturalWidth]];
    for (const [e, width] of shown) {
      const size = 9/72*111*e.getBoundingClientRect().width/(width*desk);
      if (size < 7) out.push(`${size.toFixed(1)} px: ${img.src.split('/').pop()}`);
    }
  }
  return out;
}

function pieces(doc) { // on a phone a large figure is in pieces: those that it names, its axes pixel by pixel
  const out = [];
  for (const img of doc.querySelectorAll('main .cell-output-display img[width]')) {
    const name = img.src.split('/').pop(), {frames, pieces} = JSON.parse(img.dataset.panels ?? '{"pieces": []}');
    const canvases = img.matches('.in-panels') ? [...img.nextElementSibling.children] : [];
    const wanted = img.getAttribute('width') > 600 ? pieces.length : 0;
    if (canvases.length !== wanted) out.push(`${name}: ${canvases.length} pieces, not ${wanted}`);
    if (canvases.length !== wanted || !wanted) continue;
    const whole = Object.assign(doc.createElement('canvas'), {width: img.naturalWidth, height: img.naturalHeight}).getContext('2d');
    whole.drawImage(img, 0, 0);
    for (const [left, top, right, bottom] of frames) {
      const k = pieces.findIndex(({parts: [[x, y, w, h]]}) => x <= left && y <= top && x + w >= right && y + h >= bottom);
      const [x, y, , , toX, toY] = pieces[k]?.parts[0] ?? [], size = [right - left, bottom - top];
      const [a, b] = k < 0 ? [] : [whole.getImageData(left, top, ...size), canvases[k].getContext('2d').getImageData(left - x + toX, top - y + toY, ...size)];
      if (k < 0 || a.data.some((v, i) => v !== b.data[i])) out.push(`${name}: the axes at ${left}, ${top} are not in a piece`);
    }
  }
  return out;
}

function tall(doc) { // the live figure of the home page is at most one screen of a phone
  const live = doc.documentElement.clientWidth < 500 && doc.location.pathname === '/index.html' && doc.querySelector('[data-live]');
  return live && live.offsetHeight > 844 ? [`${live.offsetHeight} px tall`] : [];
}

function titles(doc) { // no title says a word twice running
  const again = /(\p{L}{4,})[^\p{L}\p{N}]+\1(?!\p{L})/iu;
  return [...doc.querySelectorAll('main h1, main h2, #quarto-sidebar .menu-text')].map(e => e.textContent.trim()).filter(text => again.test(text));
}

function folds(doc) { // a fold says what it holds
  return [...doc.querySelectorAll('main details > summary')].map(e => e.textContent.trim()).filter(text => /^(Code|Show code|)$/.test(text));
}

function openings(doc) { // no open block of imports above the first picture
  const picture = doc.querySelector('main figure img, main [data-live]');
  const before = e => picture && e.compareDocumentPosition(picture) & Node.DOCUMENT_POSITION_FOLLOWING;
  const imports = text => /\S/.test(text) && text.trim().split('\n').every(line => /^(import |from |\s*#|\s*$)/.test(line));
  return [...doc.querySelectorAll('main pre > code')].filter(e => before(e) && !e.closest('details') && imports(e.textContent)).map(e => e.textContent.slice(0, 60));
}

async function load(name, width) { // until all live figures are drawn
  frame.style.width = width + 'px';
  await new Promise(done => { frame.onload = done; frame.src = name; });
  const waiting = () => [...frame.contentDocument.querySelectorAll('[data-live]')].some(e => !e.querySelector('svg, table'));
  for (let k = 0; k < 200 && waiting(); k++) await wait(50);
}

async function look(name) {
  const found = {};
  const note = (check, mode, list) => { for (const what of new Set(list)) ((found[check] ??= {})[what] ??= []).push(mode); };
  await load(name, 390);
  const loading = () => [...frame.contentDocument.querySelectorAll('main .cell-output-display img[width]')].some(e => e.getAttribute('width') > 600 && e.dataset.panels && !e.matches('.in-panels'));
  for (let k = 0; k < 200 && loading(); k++) await wait(50); // until figures are cut into panels
  for (const check of [small, tall, labels, pieces]) note(check.name, 'on a phone', check(frame.contentDocument, frame.contentWindow));
  await load(name, 1400);
  const page = frame.contentWindow, doc = frame.contentDocument;
  await Promise.race([page.MathJax?.startup?.promise, wait(30000)]);
  note('openings', 'all', openings(doc));
  note('titles', 'all', titles(doc));
  note('folds', 'all', folds(doc));
  for (const fold of doc.querySelectorAll('details')) fold.open = true;
  note('formulas', 'all', formulas(doc, page));
  if (!page.MathJax?.startup?.promise) for (const e of doc.querySelectorAll('span.math')) e.textContent = 'x'; // raw TeX is no line of ours
  for (const [width, theme] of [[1400, 'dark'], [1400, 'light'], [390, 'light']]) { // a theme changes no size, a width no colour
    frame.style.width = width + 'px';
    if (doc.body.classList.contains('quarto-dark') !== (theme === 'dark')) page.quartoToggleColorScheme();
    const dark = () => parseInt(page.getComputedStyle(doc.body).backgroundColor.match(/\d+/)) < 128;
    for (let k = 0; k < 100 && dark() !== (theme === 'dark'); k++) await wait(50); // the stylesheet comes in
    await wait(250);
    if (doc.body.classList.contains('quarto-dark') !== (theme === 'dark')) note('errors', theme, ['the theme cannot be chosen']);
    const checks = [...(width > 390 ? [contrast] : []), ...(theme === 'light' ? [fits, figures, code, words, hints] : [])];
    for (const check of checks) note(check.name, `${theme} ${width}`, check(doc, page));
  }
  for (const e of doc.querySelectorAll('main button, main input, main select, main summary')) if (shown(e)) e.click();
  await wait(100);
  note('errors', 'all', page.errors.filter(e => !/mathjax/i.test(e))); // what the network holds is not this site's
  return found;
}

(async () => {
  const all = {};
  for (const name of PAGES) try { all[name] = await look(name); } catch (e) { all[name] = {errors: {[String(e)]: ['the test']}}; }
  await fetch('/found', {method: 'POST', body: JSON.stringify(all)});
})();
</script>"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """The site, with a script in each page that keeps its errors; /shell looks at the
    pages and sends what it finds.
    """

    def __init__(self, *args, found, **kwargs):
        self.found = found
        super().__init__(*args, **kwargs)

    def do_GET(self):
        name, pages = (
            self.path.partition("?")[0].lstrip("/"),
            [*API, "404.html", *(f"{name_of(page)}.html" for page in PAGES)],
        )
        if name == "shell":
            self.reply(SHELL.replace("PAGES", json.dumps(pages)))
        elif name in pages:
            text = (
                (Path(self.directory) / name)
                .read_text(encoding="utf-8")
                .replace("<head>", "<head>" + LOOK, 1)
            )
            if MATHJAX:
                text = re.sub(r'https://[^"]*/mathjax@3/', "/mathjax/", text)
            self.reply(text)
        else:
            super().do_GET()

    def translate_path(self, path):
        if not path.startswith("/mathjax/"):
            return super().translate_path(path)
        return str(Path(MATHJAX) / path.removeprefix("/mathjax/").partition("?")[0])

    def do_POST(self):
        self.found.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.reply("")

    def reply(self, text):
        body = text.encode()
        self.send_response(200)
        for header in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(body))),
        ):
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def found(rendering, tmp_path_factory):
    "page -> check -> what is wrong -> where (theme and width)"
    if not CHROMIUM:
        pytest.skip("no Chromium is installed")
    answer = queue.Queue()
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, found=answer, directory=str(rendering[-1]))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        profile = tmp_path_factory.mktemp("profile")
        try:
            with browser(
                f"http://127.0.0.1:{server.server_port}/shell",
                profile,
                "--hide-scrollbars",
                "--window-size=1500,2500",
            ):
                return answer.get(timeout=900)
        finally:
            server.shutdown()


def report(found, check):
    return [
        f"{page} ({', '.join(modes)}): {what}"
        for page, checks in found.items()
        for what, modes in checks.get(check, {}).items()
    ]


@pytest.mark.parametrize(
    "check",
    """fits figures contrast code words hints openings small labels pieces tall titles
    folds errors""".split(),
)
def test_every_page(found, check):
    """No page wider than its window, no figure cut, contrast at least 4.5, no line of
    code and no word broken, no script error, a shaded edge where something scrolls,
    no open imports above the first picture, no label below ten pixels on a phone,
    none in a figure below seven, figures cut into the pieces that they name, home's
    live figure on one screen, no title that says a word twice running, no fold that
    does not say what it holds.
    """
    assert len(found) > 20
    assert not (bad := report(found, check)), "\n".join(bad)


def test_formulas_are_typeset(found):
    bad = report(found, "formulas")
    if bad and all(b.endswith("MathJax could not be loaded") for b in bad):
        pytest.skip(
            "MathJax could not be loaded: set INFATTN_MATHJAX to a folder of MathJax 3"
        )
    assert not bad, "\n".join(bad)
