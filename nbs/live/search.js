// What Quarto's search box asks: every word of the query, in any order; titles before prose, prose before code, what is under the hood last.
// Quarto loads an index of its own kind, Fuse, and calls `add` and `search`: this one stands in for it.

// What a reader calls it: what the pages call it.
const SYNONYMS = {
  ntk: ["tangent kernel"], nngp: ["kernel"], gp: ["gaussian process"], gps: ["gaussian process"],
  mup: ["µp"], "μp": ["µp"],
  vanishing: ["fade", "vanish", "die", "hardly learn"], exploding: ["grow", "explode"],
  pdf: ["density"], cdf: ["distribution function", "tail"], sample: ["draw", "rvs"], sampling: ["draw", "rvs"], simulate: ["draw", "rvs"],
  initialization: ["initialisation"], init: ["initialisation"], huggingface: ["hugging face"], pytorch: ["torch"],
  norm: ["norm", "gradient of"], norms: ["norm", "gradient of"], depth: ["depth", "block"], layer: ["layer", "block"],
  wrong: ["wrong", "as we read it", "condition that we add"], error: ["error", "refuse"], proof: ["proof"], sd: ["standard deviation"], std: ["standard deviation"],
  neural: ["neural", "network"], sqrt: ["√"], temperature: ["temperature", "score scale", "standard deviation of a score"], collapse: ["collapse", "tokens become alike"],
  training: ["train", "descent"], finetuning: ["train"], heavy: ["heavy", "tail"], kl: ["divergence"], install: ["install", "pip"],
  signal: ["signal", "gram matrices", "stream"], propagation: ["propagation", "markov chain", "block by block"], positional: ["position", "rotary"], encoding: ["encoding", "position", "embedding"],
  lora: ["lora", "low rank"], license: ["licence", "license"], tau: ["τ"], rezero: ["rezero", "branch_scale"], layerscale: ["layerscale", "branch_scale"], finetune: ["train"],
};
// Words that many pages use, and the page that explains them.
const HOME_OF = {
  kurtosis: "distributions/hierarchical", density: "distributions/hierarchical", pdf: "distributions/hierarchical", sample: "attention/layer", width: "attention/layer", ntk: "transformer/gradients", "tangent": "transformer/gradients",
  rotary: "transformer/block", rmsnorm: "transformer/block", layernorm: "transformer/block", netsor: "netsor/program", assumption: "netsor/program", convergence: "convergence/rates", rates: "convergence/rates", fast: "convergence/rates", mask: "convergence/robustness", evidence: "learning/regressor", posterior: "learning/regressor", softmax: "attention/layer",
  score: "theory/score_clt", scores: "theory/score_clt", initialisation: "initialisation/which_initialisation", initialization: "initialisation/which_initialisation", install: "index", heads: "attention/layer",
  proof: "theory/proof", heavy: "convergence/regimes", tails: "convergence/regimes", sqrt: "convergence/regimes", temperature: "convergence/regimes", api: "api/index", license: "index", tau: "reference/notation", propagation: "transformer/network", positional: "transformer/block", encoding: "transformer/block", lora: "scope", rezero: "huggingface/roles", layerscale: "huggingface/roles", collapse: "transformer/network", "tensor": "netsor/program",
};
const IDLE = new Set("a an and are as at be by can do does for from how i in is it my of on or that the to two four eight twelve what when where which why with".split(" "));
const UNDER_THE_HOOD = .35, REFERENCE = .8, LISTS = .3; // of names and of methods: they have every word

const plain = text => (text ?? "").normalize("NFC").toLowerCase().replace(/[-‐–—]/g, " ");
const stem = word => word.length > 4 ? word.replace(/(ies|es|s)$/, "") : word;
const wordsOf = query => {
  const all = plain(query).split(/[^\p{L}\p{N}_.]+/u).filter(Boolean);
  const busy = all.filter(word => !IDLE.has(word) && !/^(\d{3,}|.)$/u.test(word)); // a width of 512 is a width, d is a letter
  return busy.length ? busy : all;
};
const waysToSay = word => [...new Set([stem(word), ...(SYNONYMS[word] ?? []), ...(SYNONYMS[stem(word)] ?? [])])];

// How often one of the ways to say a word begins a word of the text.
function count(text, ways) {
  let found = 0;
  for (const way of ways)
    for (let at = text.indexOf(way); at !== -1 && found < 20; at = text.indexOf(way, at + way.length))
      if (at === 0 || !/[\p{L}\p{N}]/u.test(text[at - 1])) found += 1;
  return found;
}

export class Words {
  constructor() {
    this.documents = [];
    this.pages = new Map(); // address -> all that stands on the page
  }

  add(item) {
    const crumbs = String(item.crumbs ?? ""), page = item.href.split("#")[0];
    const weight = crumbs.includes("Under the hood") ? UNDER_THE_HOOD : /^api\//.test(page) ? LISTS : crumbs.includes("'Reference'") ? REFERENCE : 1;
    const doc = {item, weight, page, title: plain(item.title), section: plain(item.section), text: plain(item.text), code: plain(item.code)};
    this.documents.push(doc);
    this.pages.set(page, `${this.pages.get(page) ?? ""} ${doc.title} ${doc.section} ${doc.text}`);
  }

  // How well a section answers: what it has itself, and, for less, what its page has elsewhere.
  answer(doc, words, phrase) {
    const dilution = 1 + doc.text.length/4000;
    let score = 0;
    for (const {ways, rarity, pages, home} of words) {
      const [title, section, text, code] = [doc.title, doc.section, doc.text, doc.code].map(part => count(part, ways));
      score += rarity*((title > 0)*5 + (section > 0)*5 + 3*Math.log2(1 + text)/dilution + .3*Math.log2(1 + code) + pages.has(doc.page)*.5 + (doc.page === home)*8);
    }
    if (words.length > 1) score += 8*(count(doc.section, [phrase]) > 0) + 6*(count(doc.title, [phrase]) > 0) + 4*Math.log2(1 + count(doc.text, [phrase]))/dilution;
    return score*(words.some(({home}) => home === doc.page) ? 1 : doc.weight);
  }

  search(query, {limit = 20} = {}) {
    const phrase = wordsOf(query).join(" ");
    const words = wordsOf(query).map(word => {
      const ways = waysToSay(word);
      const pages = new Set([...this.pages].filter(([, text]) => count(text, ways)).map(([page]) => page));
      const home = `${HOME_OF[word] ?? HOME_OF[stem(word)]}.html`;
      if (this.pages.has(home)) pages.add(home);
      return {ways, pages, home, rarity: Math.log(1 + this.pages.size/(1 + pages.size))};
    });
    const covered = page => words.filter(({pages}) => pages.has(page)).length;
    const most = Math.max(0, ...[...this.pages.keys()].map(covered)); // all words, or as many as some page has
    if (!most) return [];
    return this.documents.filter(doc => covered(doc.page) === most).map(doc => ({doc, score: this.answer(doc, words, phrase)}))
      .sort((a, b) => b.score - a.score).slice(0, limit).map(({doc}) => ({item: {...doc.item, text: this.excerpt(doc, words)}}));
  }

  // The text around the first word of the query that it has.
  excerpt(doc, words) {
    const at = words.flatMap(({ways}) => ways.map(way => doc.text.indexOf(way))).filter(k => k >= 0);
    const text = doc.item.text ?? "", from = Math.max(0, Math.min(...at, text.length) - 60);
    const start = from ? text.indexOf(" ", from) + 1 : 0;
    return (start ? "… " : "") + text.slice(start, start + 220) + (text.length > start + 220 ? " …" : "");
  }
}

if (typeof window !== "undefined") window.Fuse = Words;
