// Is the limit good enough for my layer? Looked up in the library's table, said in one sentence.
import {choice, el, slider} from "./plot.js";
import {readable} from "./kernel.js";

const short = x => x >= .01 ? x.toPrecision(2) : x > 0 ? x.toExponential(1).replace("-", "−") : "0";

// What the library's table says of a layer; null where no such layer exists.
export function judge(table, τ, H, s, n, kind) {
  const limit = table.limits[`${τ},${H},${s}`], at = table.widths[`${τ},${H},${s},${n},${kind}`];
  if (!limit || !at) return null;
  const [fromGaussian, limitKurtosis, limitRatio] = limit;
  const [divergence, kurtosis, ratio] = at;
  return {divergence, kurtosis, limitKurtosis, ratio, limitRatio, fromGaussian,
          off: Math.sqrt(divergence/2), share: kurtosis > 0 ? Math.min(1, limitKurtosis/kurtosis) : 1};
}

// The same thresholds as in the recipe: a probability off by at most one per cent, a tail by at most a half.
export function verdict({off, ratio, limitRatio, fromGaussian}) {
  const bulk = off < .01 ? "The limit is good enough in the bulk: no probability of one output is off by more than " + short(off)
    : "At this width the limit is a rough guide: a probability of one output may be off by " + short(off);
  const tails = ratio/limitRatio < 1.5 ? "" : "; not in the tails, which are heavier at this width";
  const gaussian = ratio < 1.5 ? "and even the Gaussian would do, out to six standard deviations."
    : Math.sqrt(fromGaussian/2) < .01 ? `the Gaussian would do in the bulk, but not in the tails (beyond 6 sd: ${readable(ratio)} times).`
      : `the Gaussian would not do (beyond 6 sd an output is ${readable(ratio)} times as likely).`;
  return `${bulk}${tails}; ${gaussian}`;
}

export default async function calculator(box, data) {
  const table = await data("judge.json");
  const n = slider("width n", table.width, 768, String, () => draw());
  const H = slider("heads H", table.heads, 8, String, () => draw());
  const s = slider("tokens s", table.tokens, 8, String, () => draw());
  const τ = slider("score standard deviation", table.tau, 1, String, () => draw());
  const kind = choice("width of a head", table.kind, () => draw());
  const answer = el("p", {class: "live-answer", "aria-live": "polite"}), figures = el("table", {class: "live-figures"});
  const m = el("span", {class: "live-head"});
  box.append(el("div", {class: "live-controls"}, n.box, H.box, s.box, τ.box, el("span", {}, "heads of width ", kind.box), m), answer, figures);

  function draw() {
    m.textContent = kind.value === "n/H" ? `= ${n.value/H.value}` : `= ${n.value}`;
    const j = judge(table, τ.value, H.value, s.value, n.value, kind.value);
    answer.textContent = verdict(j);
    const rows = [["divergence of one output at this width from the limit", short(j.divergence)],
                  ["no probability of one output is off by more than", short(j.off)],
                  ["excess kurtosis at this width, and of the limit", `${short(j.kurtosis)}, ${short(j.limitKurtosis)}`],
                  ["share of the random kernel: what of it no width removes", `${Math.round(100*j.share)} %`],
                  ["beyond 6 sd, times as likely as a Gaussian: at this width, and in the limit", `${readable(j.ratio)}, ${readable(j.limitRatio)}`]];
    figures.replaceChildren(el("tbody", {}, ...rows.map(([name, x]) => el("tr", {}, el("th", {scope: "row"}, name), el("td", {}, x)))));
    Object.assign(box.dataset, {...j, tau: τ.value, heads: H.value, tokens: s.value, width: n.value, kind: kind.value});
  }

  draw();
}
