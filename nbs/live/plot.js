// The few things that all live figures need: elements, sliders, axes, normal numbers.
const NS = "http://www.w3.org/2000/svg";

export const el = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
  node.append(...children);
  return node;
};

export const svg = (tag, attributes = {}, text) => {
  const node = document.createElementNS(NS, tag);
  for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
  if (text !== undefined) node.textContent = text;
  return node;
};

// A slider over the entries of a list, with its name and value beside it.
export function slider(name, values, start, show, changed) {
  const input = el("input", {type: "range", min: 0, max: values.length - 1, step: 1,
                             value: values.indexOf(start), "aria-label": name});
  const out = el("output");
  const update = () => {
    out.textContent = show(values[input.value]);
    input.setAttribute("aria-valuetext", out.textContent);
  };
  input.addEventListener("input", () => { update(); changed(); });
  update();
  return {box: el("label", {}, el("span", {}, name), input, out), input,
          get value() { return values[input.value]; },
          set value(v) { input.value = values.indexOf(v); update(); changed(); }};
}

// A choice between a few words.
export function choice(name, words, changed, start = words[0]) {
  const box = el("div", {class: "live-choice", role: "group", "aria-label": name});
  const state = {box, value: start};
  for (const word of words) {
    const b = el("button", {type: "button", "aria-pressed": word === state.value}, word);
    b.addEventListener("click", () => {
      state.value = word;
      for (const c of box.children) c.setAttribute("aria-pressed", c.textContent === word);
      changed();
    });
    box.append(b);
  }
  return state;
}

// What does nothing now cannot be pressed.
export function enable(state, on) { for (const b of state.box.children) b.disabled = !on; }

export function button(name, pressed) {
  const b = el("button", {type: "button"}, name);
  b.addEventListener("click", pressed);
  return b;
}

// On a phone a panel is drawn smaller, so that its labels stay as large as the text.
export const narrow = () => innerWidth < 600;

// What a figure shows; on a phone a touch away.
export function caption(text) {
  const fold = el("details", {class: "live-caption"}, el("summary", {}, "What is shown"), text);
  fold.open = !narrow();
  return fold;
}

// A panel with axes: x and y map data to pixels; `log` makes y logarithmic.
export function panel({width = narrow() ? 320 : 440, height = narrow() ? 180 : 280, x, y, log = false, xlabel = "",
                       ylabel = "", title = "", xticks, yticks, describe = title}) {
  const left = 58, right = 14, top = title ? 24 : 10, bottom = 40;
  const root = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img",
                           "aria-label": describe, class: "live-panel"});
  const Y = log ? v => Math.log10(Math.max(v, 1e-300)) : v => v;
  const [y0, y1] = y.map(Y);
  const px = v => left + (v - x[0])/(x[1] - x[0])*(width - left - right);
  const py = v => height - bottom - (Y(v) - y0)/(y1 - y0)*(height - top - bottom);
  const id = "clip" + Math.random().toString(36).slice(2);
  const inside = {x: left, y: top, width: width - left - right, height: height - top - bottom};
  const clip = svg("clipPath", {id});
  clip.append(svg("rect", inside));
  root.append(clip, svg("rect", {...inside, class: "live-frame"}));
  for (const t of xticks ?? ticks(...x)) {
    root.append(svg("path", {d: `M${px(t)} ${height - bottom}v4`, class: "live-tick"}),
                svg("text", {x: px(t), y: height - bottom + 17, "text-anchor": "middle"}, label(t)));
  }
  for (const t of yticks ?? (log ? powers(y0, y1) : ticks(...y))) {
    root.append(svg("path", {d: `M${left} ${py(t)}h-4`, class: "live-tick"}),
                svg("text", {x: left - 7, y: py(t) + 4, "text-anchor": "end"}, label(t)));
  }
  root.append(svg("text", {x: (left + width - right)/2, y: height - 6, "text-anchor": "middle"}, xlabel),
              svg("text", {x: 0, y: 0, "text-anchor": "middle",
                           transform: `translate(12 ${(top + height - bottom)/2}) rotate(-90)`}, ylabel));
  if (title) root.append(svg("text", {x: (left + width - right)/2, y: 15, "text-anchor": "middle"}, title));
  const marks = svg("g", {"clip-path": `url(#${id})`});
  root.append(marks);
  return {root, px, py, marks,
          line(xs, ys, kind) {
            let d = "";
            for (let i = 0; i < xs.length; i++) {
              const v = py(ys[i]);
              d += `${i ? "L" : "M"}${px(xs[i]).toFixed(1)} ${(Number.isFinite(v) ? Math.min(Math.max(v, -99), 2*height) : 2*height).toFixed(1)}`;
            }
            const path = svg("path", {d, class: "live-" + kind});
            marks.append(path);
            return path;
          },
          dots(xs, ys, kind, r = 2) {
            for (let i = 0; i < xs.length; i++)
              marks.append(svg("circle", {cx: px(xs[i]), cy: py(ys[i]), r, class: "live-" + kind}));
          },
          bars(edges, heights, kind) {
            heights.forEach((h, i) => marks.append(svg("rect", {
              x: px(edges[i]), y: py(h), class: "live-" + kind,
              width: Math.max(px(edges[i + 1]) - px(edges[i]) - .5, .5),
              height: Math.max(height - bottom - py(h), 0)})));
          },
          note(v, w, text, anchor = "start") {
            marks.append(svg("text", {x: px(v), y: py(w), "text-anchor": anchor, class: "live-note"}, text));
          }};
}

function ticks(a, b) { // about five round numbers
  const raw = (b - a)/5, power = 10**Math.floor(Math.log10(raw)), f = raw/power;
  const d = power*(f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10), out = [];
  for (let k = Math.ceil(a/d - 1e-9); k*d <= b + 1e-9*d; k++) out.push(+(k*d).toPrecision(10));
  return out;
}

function powers(a, b) {
  const every = Math.max(1, Math.ceil((b - a)/5)), out = [];
  for (let k = Math.ceil(a - 1e-9); k <= b + 1e-9; k += every) out.push(10**k);
  return out;
}

const SUPER = {"-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹"};
export const label = t => {
  const k = Math.log10(Math.abs(t));
  if (t && (k < -3 || k > 4)) return (Math.abs(k - Math.round(k)) < 1e-6 ? "" : (t/10**Math.floor(k)).toPrecision(2) + "·")
    + "10" + [...String(Math.floor(k + 1e-6))].map(c => SUPER[c]).join("");
  return String(+t.toPrecision(6)).replace("-", "−");
};

export const linspace = (a, b, n) => Array.from({length: n}, (_, i) => a + (b - a)*i/(n - 1));

export function normal() { // Box and Muller
  return Math.sqrt(-2*Math.log(1 - Math.random()))*Math.cos(2*Math.PI*Math.random());
}

export function chi2(k) { // Marsaglia and Tsang
  if (k < 2) return k ? normal()**2 : 0;
  const d = k/2 - 1/3;
  const c = 1/Math.sqrt(9*d);
  for (;;) {
    const z = normal();
    const u = (1 + c*z)**3;
    if (u > 0 && Math.log(Math.random()) < z*z/2 + d*(1 - u + Math.log(u))) return 2*d*u;
  }
}

export const bell = (y, v) => Math.exp(-y*y/(2*v))/Math.sqrt(2*Math.PI*v);
export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
