"The live figures: stored tables, and the modules in a browser."

import http.server
import json
import queue
import shutil
import subprocess
import threading
import time
from functools import partial

import numpy as np
import pytest
from conftest import CHROMIUM, browser
from scipy.stats import ks_2samp
from tables import CORRECTED, FINITE, HEADS, JUDGED, POINTS, TAUS, TOKENS
from tables import correction_entry, judge_entry, law_entry, layer_at, limit_entry
from tables import mlp_limit
from written import NBS

from infattn_nb import AttentionDescent, Program, Transformer
from infattn_nb.attention.spec import AttentionSpec
from infattn_nb.learning.circuits import Depth, ReadRows, named
from infattn_nb.learning.descent_step import circuits_from, dynamics, of_each
from infattn_nb.netsor import mlp
from infattn_nb.nonlinearities import cos, relu, softmax, tanh
from infattn_nb.theory import averages

pytestmark = pytest.mark.xdist_group("live")  # its fixtures are made once
stored = lambda name: json.loads((NBS / "data" / name).read_text())

# Tables


@pytest.mark.parametrize(
    "τ, heads, tokens",
    [
        (0.5, 1, 2),
        (2.0, 4, 4),
        *(
            pytest.param(*x, marks=pytest.mark.slow)
            for x in ((1.0, 2, 16), (5.0, 1, 8), (10.0, 64, 2))
        ),
    ],
)
def test_stored_laws_are_the_library(τ, heads, tokens):
    kept, fresh = (
        stored("kernel.json")["laws"][f"{tokens},{heads}"][TAUS.index(τ)],
        law_entry(τ, heads, tokens),
    )
    np.testing.assert_allclose(
        [kept["kurtosis"], kept["ratio"]],
        [fresh["kurtosis"], fresh["ratio"]],
        rtol=1e-4,
    )
    law = layer_at(τ, heads, tokens).law().marginal(0)
    y = np.linspace(0, 7, 29) * law.std()
    f = sum(
        w * np.exp(-(y**2) / 2 / v) / np.sqrt(2 * np.pi * v)
        for v, w in zip(kept["v"], kept["w"])
    )
    # below one per cent of any density drawn
    np.testing.assert_allclose(f, law.pdf(y), rtol=0.005)


def test_stored_corrections_are_the_library():
    f1 = stored("map.json")["f1"]
    assert len(f1) == sum(len(taus) for taus in CORRECTED.values()) * 4
    τ = CORRECTED[2][1]
    fresh = correction_entry(τ, 2, 2)
    np.testing.assert_allclose(
        f1[f"2,2,{τ:g}"], fresh, rtol=1e-3, atol=1e-5 * np.max(np.abs(fresh))
    )
    assert len(fresh) == len(POINTS)


@pytest.mark.power(
    "densities of finite widths off by a tenth within five standard deviations"
)
def test_stored_finite_laws_are_the_library():
    "Other draws: within a tenth, where draws still tell it."
    table = stored("finite.json")
    assert table["widths"] == list(FINITE)
    assert len(table["laws"]["4,1"]) == len(TAUS)
    layer = layer_at(2.0, 2, 4)
    for n, kept in zip(FINITE, table["laws"]["4,2"][TAUS.index(2.0)]):
        law = layer.law(n).marginal(0, draws=2**16, rng=1)
        y = np.linspace(0, 5, 21) * law.std()
        f = sum(
            w * np.exp(-(y**2) / 2 / v) / np.sqrt(2 * np.pi * v)
            for v, w in zip(kept["v"], kept["w"])
        )
        value, error = law.pdf(y, return_error=True)
        assert (np.abs(f - value) < 0.1 * value + 8 * error).all()


def test_the_calculator_is_the_library():
    "A limit exactly, a finite width from the same draws; wider is closer."
    table = stored("judge.json")
    assert len(table["limits"]) * len(JUDGED["width"]) * len(JUDGED["kind"]) == len(
        table["widths"]
    )
    np.testing.assert_allclose(
        table["limits"]["1,4,8"], limit_entry(1.0, 4, 8), rtol=1e-4
    )
    np.testing.assert_allclose(
        table["widths"]["2,2,4,256,n/H"], judge_entry(2.0, 2, 4, 256, "n/H"), rtol=1e-4
    )
    for key, (_, limit, tail_limit) in table["limits"].items():
        for kind in JUDGED["kind"]:
            D, κ, tail = np.transpose(
                [table["widths"][f"{key},{n},{kind}"] for n in JUDGED["width"]]
            )
            assert (np.diff(D) < 0).all(), key
            assert κ[-1] > 0.98 * limit, key
            n, added = np.array(JUDGED["width"]), κ - limit
            # what the width adds falls like 1/n
            assert (added[1:] * n[1:] < 2 * added[:-1] * n[:-1]).all(), key
            assert tail[-1] > 0.9 * tail_limit, key
            # narrow layers have heavier tails
            assert (tail[1:] < 1.2 * tail[:-1]).all(), key


def test_tables_are_small_and_whole():
    for name in "kernel.json map.json theorem.json finite.json judge.json".split():
        assert (NBS / "data" / name).stat().st_size < 300e3
    table = stored("kernel.json")
    assert table["tau"] == list(TAUS)
    assert table["heads"] == list(HEADS)
    assert table["tokens"] == list(TOKENS)
    assert all(
        len(table["laws"][f"{s},{H}"]) == len(TAUS) for s in TOKENS for H in HEADS
    )
    np.testing.assert_allclose(stored("theorem.json")["mlp"], mlp_limit(), rtol=1e-9)


def test_modules_are_small_and_need_nobody():
    for path in (NBS / "live").glob("*.js"):
        source = path.read_text(encoding="utf-8")
        assert len(source.splitlines()) <= 250, path.name
        assert "http" not in source.replace("http://www.w3.org/2000/svg", ""), path.name


# In a browser

USUAL = dict(
    tokens=4,
    layers=3,
    heads=2,
    score=2.0,
    branch=1.0,
    norm="pre",
    mlp=True,
    causal=False,
    width=None,
)  # None: infinite
EXPLORED = {
    "one head": USUAL
    | dict(norm="post", layers=4, heads=1, score=4.0, branch=4.0, mlp=False),
    "narrow": USUAL | dict(width=16, heads=8),
    "post": USUAL | dict(norm="post", causal=True, branch=0.7),
    "narrow, post": USUAL | dict(norm="post", width=16, layers=2),
    "narrow, no norm": USUAL | dict(norm=None, layers=2, heads=4, width=16, branch=0.7),
}
NETWORKS = 1500
BROKEN = {  # name -> (of those explored, code, broken code, networks that show it)
    "gradient independence": (
        "one head",
        "const {g} = sent(S, E, B, F);",
        "const g = sent(S, E, B, F).ξ;",
        NETWORKS,
    ),
    "values of infinite width": (
        "narrow",
        "const V = scale(spread(R, m), c);",
        "const V = scale(R, c);",
        600,
    ),
    "scores that may grow together": (
        "narrow",
        "a*(dA[i][k] - along[i])",
        "a*dA[i][k]",
        600,
    ),
    "nothing past a branch": (
        "narrow",
        "plus(cut(along, 0, wide(x)), added.d)",
        "added.d",
        600,
    ),
}


def page(figures, body, before=""):
    "A page with live figures and a script, which sends what it finds."
    boxes = "".join(f'<div data-live="{name}"></div>' for name in figures.split())
    return f"""<!doctype html><meta charset="utf-8"><body>{boxes}
<script type="module">
const errors = [];
addEventListener("error", e => errors.push(e.message), true);
addEventListener("unhandledrejection", e => errors.push(String(e.reason)));
const wait = ms => new Promise(done => setTimeout(done, ms));
const send = found => fetch("/found", {{method: "POST", body: JSON.stringify(found)}});
{before}
try {{
  await import("./live/load.js");
  for (let k = 0; k < 200 && document.querySelectorAll(".live").length < {len(figures.split())}; k++) await wait(50);
{body}
}} catch (problem) {{ await send({{errors: [...errors, problem.stack]}}); }}
</script>"""


PAGE = page(
    "kernel theorem map judge explorer",
    r"""
  const kernel = await import("./live/kernel.js"), theorem = await import("./live/theorem.js"), beside = await import("./live/averages.js");
  const table = await (await fetch("data/kernel.json")).json();
  const [A, B, C, D, E] = document.querySelectorAll("[data-live]"), wrong = [], shown = [];
  const move = (input, value) => { input.value = value; input.dispatchEvent(new Event("input", {bubbles: true})); };
  const press = (box, name) => [...box.querySelectorAll("button")].find(b => b.textContent === name).click();
  const range = (box, name) => box.querySelector(`input[aria-label="${name}"]`);
  const number = text => Number(text.replace(/·10([⁰¹²³⁴⁵⁶⁷⁸⁹]+)/, (_, d) => "e" + [...d].map(c => "⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(c)).join("")));

  // A: every slider over its range, on both axes; what is written is the library's
  const [τ, H, s] = ["score standard deviation", "heads", "tokens"].map(name => range(A, name));
  const check = () => {
    const law = table.laws[`${table.tokens[s.value]},${table.heads[H.value]}`][τ.value];
    const [, kurtosis, ratio] = A.querySelector(".live-said").textContent.match(/kurtosis ([\d.]+);.*deviations (\S+) times/);
    if (Math.abs(number(kurtosis) - law.kurtosis) > 6e-4) wrong.push(["kurtosis", kurtosis, law.kurtosis]);
    if (Math.abs(number(ratio)/law.ratio - 1) > .06) wrong.push(["ratio", ratio, law.ratio]);
    shown.push(+τ.value);
  };
  for (const axis of ["linear", "logarithmic"]) {
    press(A, axis);
    for (const input of [τ, H, s]) for (let k = 0; k <= +input.max; k++) { move(input, k); check(); }
    move(H, 0); move(s, 1); move(τ, 8);
  }
  const before = +A.dataset.networks;
  for (let k = 0; k < 5; k++) press(A, "new network");
  if (+A.dataset.networks !== before + 5) wrong.push(["networks", before, A.dataset.networks]);
  press(A, "run"); await wait(400); press(A, "stop");
  if (+A.dataset.networks < before + 7) wrong.push(["run", A.dataset.networks]);

  // B: every width, both networks, both scales
  const n = range(B, "width n"), spreads = {};
  for (const kind of ["MLP", "attention"]) for (const scale of ["1/n", "1/√n"]) {
    press(B, kind); press(B, scale);
    for (let k = 0; k <= +n.max; k++) {
      move(n, k); spreads[`${kind} ${scale} ${B.dataset.width}`] = +B.dataset.sd;
      if (+B.dataset.lowest < +B.dataset.low || +B.dataset.highest > 1.05) wrong.push(["frame", kind, scale, k]);
      for (let again = 0; again < (k < 3 ? 8 : 1); again++, press(B, "new networks"))
        if (!(+B.dataset.top > 0)) wrong.push(["bars", kind, scale, k]); // narrow networks reach below zero
    }
  }
  press(B, "MLP");
  const dead = [...B.querySelectorAll("button")].filter(b => b.disabled).map(b => b.textContent).join();
  if (dead !== "1/√n,1/n") wrong.push(["dead switches", dead]);
  press(B, "attention");
  if (B.querySelector("button:disabled")) wrong.push(["disabled for attention"]);

  // C: every place by the keyboard, every slider, both colours
  const svgOf = () => C.querySelector(".live-map svg"), key = k => svgOf().dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true}));
  for (const name of ["tokens", "width of the curve"]) { const input = range(C, name); for (let k = +input.max; k >= 0; k--) move(input, k); }
  press(C, "kurtosis");
  const shades = [...C.querySelectorAll(".live-map .live-panel .live-cell")].map(c => +c.getAttribute("fill-opacity"));
  if (Math.max(...shades) < .5 || C.querySelectorAll(".live-scale li").length < 6) wrong.push(["kurtosis hardly shows", Math.max(...shades)]);
  press(C, "beyond 6 sd");
  const width = range(C, "width of the curve"), valid = [];
  for (let k = 0; k <= +width.max - 1; k++) { move(width, k); valid.push(+C.dataset.valid); }
  if (!(valid[0] < .5 && valid.at(-1) > .6 && valid.every((x, k) => !k || x >= valid[k - 1]))) wrong.push(["where the correction is valid", valid]);
  move(width, width.max);
  let places = 0;
  for (let k = 0; k < 30; k++) key("ArrowLeft");
  for (let j = 0; j < 8; j++) key("ArrowDown");
  for (let j = 0; j < table.heads.length; j++) {
    for (let k = 0; k < table.tau.length - 1; k++) {
      const law = table.laws[`${C.dataset.tokens},${C.dataset.heads}`][table.tau.indexOf(+C.dataset.tau)];
      if (+C.dataset.heads !== table.heads[j] || +C.dataset.ratio !== law.ratio || +C.dataset.kurtosis !== law.kurtosis) wrong.push(["map", j, k]);
      places++;
      if (k < table.tau.length - 2) key("ArrowRight");
    }
    for (let k = 0; k < 30; k++) key("ArrowLeft");
    key("ArrowUp");
  }
  const cell = svgOf().querySelectorAll(".live-cell")[3];
  cell.dispatchEvent(new PointerEvent("pointerdown", {bubbles: true}));
  if (+C.dataset.heads !== table.heads[3]) wrong.push(["pointer", C.dataset.heads]);

  // D: every place of the calculator; what is written is the library's
  const {verdict} = await import("./live/judge.js"), known = await (await fetch("data/judge.json")).json();
  const sliders = ["width n", "heads H", "tokens s", "score standard deviation"].map(name => range(D, name));
  let judged = 0;
  for (const kind of known.kind) {
    press(D, kind);
    for (let a = 0; a <= +sliders[0].max; a++) for (let b = 0; b <= +sliders[1].max; b++) for (let c = 0; c <= +sliders[2].max; c++) for (let d = 0; d <= +sliders[3].max; d++) {
      sliders.forEach((input, k) => move(input, [a, b, c, d][k]));
      const place = `${known.tau[d]},${known.heads[b]},${known.tokens[c]}`;
      const [divergence, kurtosis, ratio] = known.widths[`${place},${known.width[a]},${kind}`], [, , limit] = known.limits[place];
      if (+D.dataset.divergence !== divergence || +D.dataset.kurtosis !== kurtosis || +D.dataset.ratio !== ratio) wrong.push(["calculator", kind, a, b, c, d]);
      const sentence = D.querySelector(".live-answer").textContent, good = sentence.includes("good enough");
      if (good !== Math.sqrt(divergence/2) < .01 || (ratio < 1.5) !== sentence.includes("even the Gaussian") || (ratio < 1.5*limit) === sentence.includes("heavier at this width")) wrong.push(["sentence", sentence]);
      judged++;
    }
  }

  // E: every value of every control, with two blocks; then a hand that does not wait
  const settled = async () => { // the last redraw has come to its end
    for (let k = 0; k < 2000 && (E.dataset.drawn !== E.dataset.asked || +E.dataset.networks !== 20); k++) await wait(10);
  };
  const controls = {layers: "blocks", heads: "heads H", tokens: "tokens s", score: "score scale τ", branch: "residual scale σO", width: "width n"};
  const start = Object.fromEntries(Object.entries(controls).map(([k, name]) => [k, range(E, name).value]));
  let explored = 0;
  const look = async () => {
    await settled();
    const d = E.dataset, paths = [...E.querySelectorAll(".live-panel")].map(p => p.querySelectorAll("path.live-past").length);
    const numbers = E.querySelector(".live-said").textContent.match(/-?[\d.]+/g).map(Number), uniform = Math.log(+d.tokens);
    const said = Math.abs(numbers[1] - d.cosine) < .006 && Math.abs(numbers[3] - d.entropy) < .006 && Math.abs(numbers[4] - uniform) < .006;
    const possible = Math.abs(+d.cosine) <= 1 && d.entropy >= 0 && d.entropy <= uniform + 1e-9 && d.gradient > 0 && Number.isFinite(+d.gradient);
    if (paths.join() !== "20,20,20" || numbers[0] !== +d.layers || !said || !possible) wrong.push(["explorer", JSON.stringify(d), paths.join(), numbers.join()]);
    explored++;
  };
  move(range(E, "blocks"), 0);
  for (const word of ["post-norm", "no norm", "pre-norm", "without", "with MLP", "causal", "all to all"]) { press(E, word); await look(); }
  for (const [k, name] of Object.entries(controls)) {
    const input = range(E, name);
    for (let v = 0; v <= +input.max; v++) {
      if (k === "layers" && v > 3) break;
      move(input, v);
      await look();
      if (input.getAttribute("aria-valuetext").replace("∞", "Infinity") !== E.dataset[k]) wrong.push(["explorer", name, v, E.dataset[k]]);
    }
    move(input, k === "layers" ? 0 : start[k]);
  }
  if (!E.querySelector("path.live-gaussian")) wrong.push(["explorer", "no line of the setting before"]);
  for (let v = 0; v <= +range(E, "blocks").max; v++) move(range(E, "blocks"), v);
  move(range(E, "blocks"), 1);
  await look();
  if (E.dataset.layers !== "4") wrong.push(["explorer", "not the last setting", E.dataset.layers]);
  const before_ = E.querySelector(".live-panel .live-law").getAttribute("d");
  press(E, "new networks"); await look();
  if (E.querySelector(".live-panel .live-law").getAttribute("d") === before_) wrong.push(["explorer", "the same networks"]);

  // random draws, for Python to judge
  const everything = f => [...f.cosine.slice(1), ...f.entropy, ...f.gradient];
  const transformers = async (t, change = [], networks = NETWORKS) => {
    let source = await (await fetch("live/chain.js")).text();
    if (change.length && !source.includes(change[0])) wrong.push(["nothing to break", change[0]]);
    source = source.replace(...(change.length ? change : ["", ""])).replace("./matrices.js", new URL("live/matrices.js", location));
    const {network} = await import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
    const drawn = [];
    for (let k = 0; k < networks; k++) drawn.push(everything(await network({...t, norm: `${t.norm}-norm`, width: t.width ?? Infinity}, () => {})));
    return drawn[0].map((_, j) => drawn.map(statistics => statistics[j]));
  };
  const chains = [], broken = [];
  for (const t of EXPLORED) chains.push(await transformers(t));
  for (const [k, right, wrong_, networks] of BROKEN) broken.push(await transformers(EXPLORED[k], [right, wrong_], networks));
  const times = (m, f) => Array.from({length: m}, f);
  const draws = Object.fromEntries([[2, 1, 4], [1, 4, 2], [3, 1, 8]].map(a => [a.join(), times(20000, () => kernel.drawVariance(...a))]));
  const network = times(4000, () => kernel.drawNetwork(2, 2, 3).S).map(S => [S[0][0], S[0][1], S[1][1]]);
  const own = (m, make) => times(m, () => { const x = make(); return x.F(x.δ); });
  const averages = {attention: own(3000, () => theorem.attentionNetwork(16, "1/√n")), linear: own(3000, () => theorem.attentionNetwork(16, "1/n")),
                    mlp: own(3000, () => theorem.mlpNetwork(16)), four: times(3000, () => beside.attentionAverage(16)), plain: times(3000, () => beside.mlpAverage(16))};
  const f = times(81, (_, k) => .55 + .3*k/80);
  await send({errors, wrong, shown: shown.length, places, judged, explored, chains, broken, spreads, draws, network, averages, f, cdf: f.map(theorem.limitCdf), below: theorem.limitCdf(-.1), spread: theorem.spreadΨ});
""",
)
UNSTYLED = page(
    "explorer kernel circuits",
    r"""
  await wait(300);
  sampling = false;
  await send({errors, samples, unstyled: [...unstyled]});
""",
    before=r"""
document.body.style.color = "rgb(10, 60, 90)"; // no shape is black unless nobody has styled it
const unstyled = new Set();
let sampling = true, samples = 0;
const sample = () => {
  for (const shape of [...document.querySelectorAll("[data-live] svg *")].slice(0, 400)) {
    const style = getComputedStyle(shape);
    if (shape.matches("path, rect, circle, text, line") && !shape.closest("clipPath, defs") && style.fill === "rgb(0, 0, 0)" && shape.checkVisibility()) unstyled.add(`${shape.closest("[data-live]").dataset.live}: ${shape.tagName}.${shape.getAttribute("class")}`);
    samples++;
  }
  if (sampling) requestAnimationFrame(sample);
};
requestAnimationFrame(sample);
""",
)


class Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *args, found, page, late, **kwargs):
        self.found, self.page, self.late = found, page, late
        super().__init__(*args, **kwargs)

    def do_GET(self):
        if self.late and self.path.endswith(self.late):
            time.sleep(0.5)
        if self.path != "/":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        page = self.page
        for name, value in dict(
            EXPLORED=list(EXPLORED.values()),
            BROKEN=[(list(EXPLORED).index(k), *x) for k, *x in BROKEN.values()],
            NETWORKS=NETWORKS,
        ).items():
            page = page.replace(name, json.dumps(value))
        self.wfile.write(page.encode())

    def do_POST(self):
        self.found.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


def reported(page, profile, late=None):
    "What the browser reports of a page, one file of which may come late."
    if not CHROMIUM:
        pytest.skip("no Chromium is installed")
    answer = queue.Queue()
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0),
        partial(Handler, found=answer, page=page, late=late, directory=str(NBS)),
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with browser(f"http://127.0.0.1:{server.server_port}/", profile):
                return answer.get(timeout=300)
        finally:
            server.shutdown()


@pytest.mark.skipif(not shutil.which("pgrep"), reason="nothing lists processes here")
def test_no_browser_outlives_its_page(tmp_path):
    "One that does slows all tests after it."

    def left():
        return (
            subprocess.run(
                ["pgrep", "-f", f"user-data-dir={tmp_path}"], capture_output=True
            ).returncode
            == 0
        )

    if not CHROMIUM:
        pytest.skip("no Chromium is installed")
    with browser("about:blank", tmp_path / "profile"):
        wait_until(left)
    wait_until(lambda: not left())


def wait_until(so):
    end = time.monotonic() + 20
    while not so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_figures_are_styled_while_they_compute(tmp_path):
    """No frame shows a shape in the black that a browser gives to what has no style:
    not when the styles come late; without their rules it is seen.
    """
    found = reported(UNSTYLED, tmp_path / "profile", late="live.css")
    assert not found["errors"], found
    assert not found["unstyled"], found
    assert found["samples"] > 1000, found
    bare = reported(
        UNSTYLED.replace(
            "const unstyled",
            'await new Promise(done => addEventListener("load", done)); document.head.insertAdjacentHTML("beforeend", "<style>[data-live] svg * { fill: black !important }</style>"); const unstyled',
        ),
        tmp_path / "bare",
    )
    assert len(bare["unstyled"]) > 3, bare


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return reported(PAGE, tmp_path_factory.mktemp("profile"))


def test_every_control_shows_the_numbers_of_the_library(found):
    assert not found["errors"], (found["errors"], found["wrong"][:5])
    assert not found["wrong"], (found["errors"], found["wrong"][:5])
    assert found["shown"] == 2 * (len(TAUS) + len(HEADS) + len(TOKENS))
    assert found["places"] == len(HEADS) * (len(TAUS) - 1)
    assert found["judged"] == np.prod([len(x) for x in JUDGED.values()])


@pytest.mark.power("means of v that differ by 6 standard errors, about 1 %")
def test_networks_of_the_browser_have_the_law_of_the_library(found):
    for where, v in found["draws"].items():
        τ, H, s = map(int, where.split(","))
        law = layer_at(float(τ), H, s).law().marginal(0)
        mean, var = law.var(), law.kurtosis() / 3 * law.var() ** 2
        assert abs(np.mean(v) - mean) < 6 * np.std(v) / len(v) ** 0.5
        assert abs(np.var(v) - var) < 6 * np.std((v - np.mean(v)) ** 2) / len(v) ** 0.5
    S = layer_at(2.0, 2, 3).law().covariances(20_000, rng=0)
    for mine, theirs in zip(
        (S[:, 0, 0], S[:, 0, 1], S[:, 1, 1]), np.transpose(found["network"])
    ):
        assert ks_2samp(mine, theirs).pvalue > 1e-7


@pytest.mark.power("distribution functions .06 apart")
def test_averages_of_the_browser_have_the_law_of_the_library(found):
    def head(scale, tokens=2):
        p = Program()
        x = p.inputs(np.eye(tokens))
        Q, K, V, O = (
            p.matrix(name, var=4.0 if name == "Q" else 1.0) for name in "QKVO"
        )
        return p, p.attend(
            [p.score(Q @ x[0], K @ z, scale) for z in x], [O @ (V @ z) for z in x]
        )

    p = Program()
    plain = p, mlp(p, p.inputs([[1.0]]), layers=2, activation=tanh)[0]
    for kind, (p, h) in dict(
        attention=head("sqrt"),
        linear=head("linear"),
        mlp=plain,
        four=head("sqrt", 4),
        plain=plain,
    ).items():
        assert (
            ks_2samp(
                averages(p, cos, h, 16, size=3000, rng=0)[0], found["averages"][kind]
            ).pvalue
            > 1e-7
        ), kind


def chain_statistics(t, size=3 * NETWORKS):
    "Cosines, entropies and gradients by block, from the library."
    s, pairs, τ2, β2 = (
        t["tokens"],
        np.triu_indices(t["tokens"], 1),
        t["score"] ** 2,
        t["branch"] ** 2,
    )
    net = Transformer.uniform(
        np.eye(s),
        layers=t["layers"],
        heads=t["heads"],
        norm_placement=t["norm"],
        mask="causal" if t["causal"] else None,
        activation=relu,
        ff=4 if t["mlp"] else 0,
        var_q=τ2,
        var_o=β2,
        var_2=2 * β2,
    )
    back = net.gradients(t["width"] or np.inf, size, 0)
    return [
        *back.chain.cosine[:, 1:, *pairs].mean(-1).T,
        *back.chain.entropy.mean((2, 3)).T,
        *np.sqrt(np.einsum("...ii", back.gram)).T,
    ]


def same_law(mine, theirs):
    "Smallest p of Kolmogorov and Smirnov, for so many statistics."
    assert len(mine) == len(theirs)
    return len(mine) * min(ks_2samp(x, y).pvalue for x, y in zip(mine, theirs))


@pytest.mark.power("distribution functions .09 apart, and each of four broken chains")
def test_transformers_of_the_browser_have_the_law_of_the_library(found):
    """Whole laws and means of every statistic of every block; what is left out of the
    chain is seen by the same check.
    """
    theirs = {name: chain_statistics(t) for name, t in EXPLORED.items()}
    for (name, y), x in zip(theirs.items(), found["chains"]):
        assert same_law(x, y) > 1e-6, name
        for a, b in zip(x, y):
            assert (
                abs(np.mean(a) - np.mean(b))
                < 6 * np.hypot(np.std(a) / len(a) ** 0.5, np.std(b) / len(b) ** 0.5)
                + 1e-9
            ), name
    for (what, (name, *_)), x in zip(BROKEN.items(), found["broken"]):
        assert same_law(x, theirs[name]) < 1e-6, what


@pytest.mark.power("exact formula, six digits")
def test_the_limit_drawn_by_the_browser(found):
    "Ψ(δ) = exp(−v/2) with v = (1 + tanh²(δ/2))/2, δ ~ N(0, 8)."
    δ = np.sqrt(8) * np.random.default_rng(0).standard_normal(400_000)
    Ψ = np.exp(-(1 + np.tanh(δ / 2) ** 2) / 4)
    empirical = np.searchsorted(np.sort(Ψ), found["f"]) / Ψ.size
    assert np.abs(empirical - found["cdf"]).max() < 6 * 0.5 / Ψ.size**0.5
    assert found["below"] == 0
    assert abs(found["spread"] - Ψ.std()) < 6 * Ψ.std() / Ψ.size**0.5


def test_the_theorem_moves(found):
    "The spread stays for attention with 1/√n, and falls for the rest."
    spread = lambda what, n: found["spreads"][f"{what} {n}"]
    assert spread("attention 1/√n", 4096) > 0.03
    for what in ("attention 1/n", "MLP 1/n", "MLP 1/√n"):
        assert spread(what, 4096) < 0.25 * spread(what, 16)


# Training

TRAINED = page(
    "training",
    r"""
  const {recall, head, reply, loss, step} = await import("./live/training.js");
  const box = document.querySelector("[data-live]"), wrong = [], seen = [];
  const press = name => [...box.querySelectorAll("button")].find(b => b.textContent === name).click();
  const move = (name, value) => { const input = box.querySelector(`input[aria-label="${name}"]`); input.value = value; input.dispatchEvent(new Event("input", {bubbles: true})); };
  for (let H = 0; H < 4; H++) for (let m = 0; m < 6; m++) {
    move("heads H", H); move("width m", m);
    const before = {...box.dataset};
    if (before.steps !== "0" || +before.moved !== 0) wrong.push(["not new", before]);
    press("train"); for (let k = 0; k < 300 && box.dataset.steps === "0"; k++) await wait(10); press("stop");
    const after = {...box.dataset};
    if (!(+after.steps > 0 && +after.moved > 0 && +after.loss >= 0 && +after.weight <= 1)) wrong.push(["did not train", after]);
    seen.push([+after.heads, after.width, +before.loss, +after.loss]);
  }
  press("T = λ = 0.1"); press("train"); await wait(100); press("stop"); press("new network"); press("new task");
  if (box.querySelectorAll("svg").length !== 2) wrong.push("two panels");
  const cases = [];
  for (const m of [3, Infinity]) {
    const {X, y} = recall(), heads = [head(4, m), head(4, m)];
    const start = heads.map(h => m === Infinity ? h.products() : h.weights());
    for (let k = 0; k < 60; k++) step(heads, X, y, .003, 0);
    const end = reply(heads, X);
    cases.push({X, y, start, f: end.map(a => a.f), scores: end.map(a => a.parts.map(b => b.score)), loss: loss(end, y)});
  }
  const noisy = [];
  for (const m of [2, Infinity]) {
    const last = [], zero = [[0]];
    for (let k = 0; k < 4000; k++) {
      const h = head(1, m);
      for (let t = 0; t < 40; t++) h.step(zero, zero, .05, 1.);
      last.push(h.products().B[0][0]);
    }
    noisy.push(last);
  }
  await send({errors, wrong, seen, cases, noisy});
""",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return reported(TRAINED, tmp_path_factory.mktemp("profile"))


def test_the_browser_trains_as_the_library(trained):
    "Sixty steps from the browser's start, at width 3 and ∞."
    assert not trained["errors"], (trained["errors"], trained["wrong"][:5])
    assert not trained["wrong"], (trained["errors"], trained["wrong"][:5])
    assert len(trained["seen"]) == 24
    others = np.array([[True] * 3 + [False]] * 4)
    for case in trained["cases"]:
        names = [
            name for name in ("Q", "K", "V", "O", "B", "ζ") if name in case["start"][0]
        ]
        start = [np.array([h[name] for h in case["start"]]) for name in names]
        if len(start) == 4:
            start[3] = start[3].swapaxes(1, 2)
        width = start[0].shape[2] if len(start) == 4 else np.inf
        X = np.array(case["X"])
        model = AttentionDescent(
            2,
            0.1,
            head_width=width,
            mask=others,
            init=start,
            learning_rate=0.003,
            max_iter=60,
            tol=0.0,
        ).fit(X, case["y"])
        np.testing.assert_allclose(model.values(X)[0], case["f"], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(
            model.scores(X)[0][..., :3],
            np.swapaxes(case["scores"], 0, 1),
            rtol=1e-7,
            atol=1e-8,
        )
        assert model.loss_[0, -1] == pytest.approx(case["loss"], rel=1e-7)


@pytest.mark.power("distribution functions .05 apart")
def test_the_noise_of_the_browser(trained):
    "T = λ = 1 without a loss: the prior's products stay."
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((2, 4000, 2))
    c = 1 / (1 - 0.025)  # of weights that shrink by .95 and gain .1
    for mine, theirs in zip(
        trained["noisy"], ((Q * K).sum(1) / 2**0.5, rng.standard_normal(4000))
    ):
        assert ks_2samp(mine, c * theirs).pvalue > 1e-6


# Circuits

CIRCUITS = page(
    "circuits",
    r"""
  const {CIRCUITS, induction, network, reply, step, strength, without} = await import("./live/circuits.js");
  const box = document.querySelector("[data-live]"), wrong = [];
  const press = name => [...box.querySelectorAll("button")].find(b => b.textContent === name).click();
  const bars = [...box.querySelectorAll(".live-strengths button")];
  if (bars.length !== 9 || box.querySelectorAll("svg").length !== 3) wrong.push("nine circuits, three panels");
  if (box.dataset.steps !== "0") wrong.push(["not new", {...box.dataset}]);
  press("train"); await wait(400); press("stop");
  const after = {...box.dataset};
  if (!(+after.steps > 0 && +after.fresh >= 0 && +after.fresh <= 1)) wrong.push(["did not train", after]);
  for (const bar of bars) {
    bar.click();
    if (box.dataset.cut !== "1" || bar.getAttribute("aria-pressed") !== "true" || !bar.textContent.endsWith("cut")) wrong.push(["not cut", bar.textContent]);
    bar.click();
    if (box.dataset.cut !== "0" || bar.getAttribute("aria-pressed") !== "false") wrong.push(["still cut", bar.textContent]);
  }
  bars[2].click(); bars[7].click(); press("uncut"); press("another sequence"); press("new network");
  if (box.dataset.cut !== "0" || box.dataset.steps !== "0") wrong.push(["not as new", {...box.dataset}]);
  const plain = x => Array.from(x), all = induction(), some = all.slice(0, 40);
  const net = network(), start = net.now.map(plain), losses = [];
  for (let k = 0; k < 30; k++) losses.push(step(net, some, .002, .9));
  const asked = all.slice(-20), said = blocks => asked.map(({tokens}) => plain(reply(without(net, blocks.map(k => CIRCUITS[k])), tokens).f));
  const of = ({letters, answer}) => ({letters, answer});
  await send({errors, wrong, start, losses, end: net.now.map(plain), some: some.map(of), asked: asked.map(of), f: said([]), cuts: CIRCUITS.map((_, k) => said([k])),
              sizes: CIRCUITS.map(c => strength(net, c)), all: all.map(of), weights: asked.map(({tokens}) => reply(net, tokens).weights)});
""",
)
KEYS = [
    ("score", (0, 0, (), ())),
    *(("score", (1, 0, a, b)) for a in ((), ((0, 0),)) for b in ((), ((0, 0),))),
    *(("value", a) for a in ((), ((0, 0),), ((1, 0),), ((0, 0), (1, 0)))),
]


@pytest.fixture(scope="module")
def circuits(tmp_path_factory):
    return reported(CIRCUITS, tmp_path_factory.mktemp("profile"))


def read_letters(sequences):
    "The browser's sequences as the library reads them; the answers."
    letters = np.array([x["letters"] for x in sequences])
    X = np.concatenate(
        [np.eye(5)[letters], np.broadcast_to(np.eye(6), (len(letters), 6, 6))], axis=2
    )
    see = np.where(np.tri(6) > 0, 0.0, -np.inf)
    return ReadRows(
        X,
        np.broadcast_to(see, (len(X), 6, 6)),
        np.full((len(X), 1), 5),
        np.ones((len(X), 1)),
    ), np.eye(5)[[x["answer"] for x in sequences]]


def test_the_browser_trains_circuits_as_the_library(circuits):
    "Thirty steps with momentum; every circuit cut by itself."
    assert not circuits["errors"], (circuits["errors"], circuits["wrong"][:5])
    assert not circuits["wrong"], (circuits["errors"], circuits["wrong"][:5])
    assert len({tuple(x["letters"]) for x in circuits["all"]}) == 480
    for x in circuits["all"]:
        assert x["answer"] == x["letters"][x["letters"].index(x["letters"][-1]) + 1]
    depth, how = (
        Depth(2, AttentionSpec(), True, True, True, 11),
        dynamics(0.002, 0.9, 0.0, 0.0),
    )
    shapes = zip(circuits["start"], depth.shapes(5))
    state = circuits_from([np.reshape(x, shape)[None] for x, shape in shapes], 2)
    rows, y = read_letters(circuits["some"])
    for loss in circuits["losses"]:
        answer = state.reply(depth, rows)
        p = softmax(answer.values, axis=-1)
        assert -(y * np.log(p)).sum() / len(y) == pytest.approx(loss, rel=1e-9)
        slopes = state.slopes(depth, rows, answer, p - y)
        state = state.step(depth, slopes, how, None)
    for mine, theirs in zip(state.products(), circuits["end"]):
        np.testing.assert_allclose(mine.ravel(), theirs, rtol=1e-8, atol=1e-10)
    rows, _ = read_letters(circuits["asked"])
    answer = state.reply(depth, rows)
    np.testing.assert_allclose(answer.values[0], circuits["f"], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        answer.layers[1].weights[0, 0, :, 0], circuits["weights"], rtol=1e-8, atol=1e-10
    )
    for k, (kind, key) in enumerate(KEYS):
        left = of_each(np.copy, state)
        *scores, values = left.products()
        circuit = named(depth, scores, values)[kind][key]
        assert np.sqrt((circuit**2).mean()) == pytest.approx(
            circuits["sizes"][k], rel=1e-8
        )
        circuit[:] = 0.0
        np.testing.assert_allclose(
            left.reply(depth, rows).values[0], circuits["cuts"][k], rtol=1e-8, atol=1e-9
        )
