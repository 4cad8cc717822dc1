// What Quarto's search box asks. Documents are sections, boxed statements, figures, equations and public names (tools/search_index.py).
// A document answers if it has the words of the query; where none does, one result says so and names the nearest page.
// Quarto loads an index of its own kind, Fuse, and calls `add` and `search`: this one stands in for it.

// What a reader calls it: what the pages call it. Everything else is found by the words of the pages.
const SYNONYMS = {
  ntk: ["tangent kernel"], nngp: ["kernel"], gp: ["gaussian process"], gps: ["gaussian process"], mup: ["µp"], "μp": ["µp"],
  pdf: ["density"], cdf: ["distribution function"], sd: ["standard deviation"], std: ["standard deviation"], kl: ["divergence"],
  vanishing: ["fade", "vanish"], exploding: ["grow"], simulate: ["draw"], sample: ["draw"], sampling: ["draw"], finetuning: ["fine tuning"], license: ["licence"],
  tau: ["τ"], dtype: ["float"], neural: ["network"], layer: ["block"], depth: ["block"],
};
const PHRASES = {"sqrt": "√", "square root": "√", "dot product": "inner product"};
const IDLE = new Set(`a about an and any are as at be been by can could do does drawn for from has have how if in into is it its me mine more my no not of on one or our question s
  questions should so some than that the their them there these they this to use used uses using was we what when where which who why will with without would you your`.split(/\s+/));
const WEIGHTS = {name: 4, section: 4, title: 5, claim: 2, text: 3, code: .4, page: 2, pair: 3};
const LESS = {code: .4, reference: .8, api: .3, letter: .3}; // what has every word: pages of code, tables, lists of parameters; letters and numbers
const SYMBOLS = "reference/notation.html"; // where a letter is explained
const ENDING = 3; // letters
const LONG = 4, OF_A_LONG_QUERY = .5; // of its words, weighed by how rare they are, a document has at least so many

// Text as its words with single spaces, at both ends, too: British spelling, 0.02 for .02, no commas in numbers.
const plain = text => Object.entries(PHRASES).reduce((said, [phrase, word]) => said.replaceAll(` ${phrase} `, ` ${word} `), ` ${(text ?? "").normalize("NFC").toLowerCase()
  .replace(/(^|[^\p{L}\p{N}])\.(?=\d)/gu, "$10.").replace(/(\d),(?=\d{3})/g, "$1").replace(/√/g, " √ ").replace(/iz(?=[aei])/g, "is").replace(/parameteris/g, "parametris")
  .match(/[\p{L}\p{N}√∞]+(?:[._][\p{L}\p{N}]+)*/gu)?.join(" ") ?? ""} `);
const wordsOf = query => {
  const all = [...new Set(plain(query).split(" ").filter(Boolean))], busy = all.filter(word => !IDLE.has(word));
  return busy.length ? busy : all;
};
// Neighbouring words of a query, as they stand in a text.
const pairsOf = query => {
  const all = plain(query).trim().split(" ");
  return all.slice(1).map((word, k) => ` ${all[k]} ${stem(word)}`).filter((_, k) => !IDLE.has(all[k]) && !IDLE.has(all[k + 1]));
};
const stem = word => word.length > 4 && !/\d/.test(word) ? word.replace(/(ies|es|s|ing|e)$/, "") : word;
// A short word or a number stands alone, a longer one may go on by a few letters: `score` in `scores`.
const pattern = way => stem(way).length > 3 && !/\d$/.test(way) ? ` ${stem(way)}` : ` ${way} `;
const waysToSay = word => [word, ...(SYNONYMS[word] ?? [])].map(pattern);

function count(text, ways, most = 20) {
  let found = 0;
  for (const way of ways)
    for (let at = text.indexOf(way); at !== -1 && found < most; at = text.indexOf(way, at + way.length - 1))
      found += text.indexOf(" ", at + way.length - 1) <= at + way.length + ENDING;
  return found;
}
const some = (text, ways) => count(text, ways, 1) > 0;
const often = (times, length) => times/(times + .6 + length/6000); // the tenth time adds little, less in a long text

export class Words {
  constructor() {
    this.documents = [];
    this.pages = new Map(); // address -> its first document, and all that stands on it
  }

  add(item) {
    const page = item.href.split("#")[0], crumbs = String(item.crumbs ?? "");
    const less = crumbs.includes("Code") ? LESS.code : /^api\/(?!index)/.test(page) ? LESS.api : crumbs.includes("Reference") ? LESS.reference : 1;
    const named = item.kind && item.kind !== "section";
    const doc = {item, page, less, title: plain(item.title), section: plain(named ? "" : item.section), name: plain(named ? item.section || item.title : ""), text: plain(item.text), code: plain(item.code)};
    doc.all = doc.title + doc.section + doc.name + doc.text + doc.code;
    if (!this.pages.has(page)) this.pages.set(page, {first: doc, all: ""});
    this.pages.get(page).all += doc.all;
    doc.claim = this.pages.get(page).first.text; // with which the page begins
    doc.before = this.documents.push(doc);
  }

  // The words of a query: how rare each is, and how much of it each page has.
  read(query) {
    const words = wordsOf(query).map(word => {
      const ways = waysToSay(word), found = this.documents.filter(doc => some(doc.all, ways)).length;
      const pages = new Map([...this.pages].map(([page, {all, first}]) => [page, often(count(all, ways), all.length/8)*first.less]));
      return {word: SYNONYMS[word]?.[0] ?? word, ways, found, pages, rarity: Math.log(1 + this.documents.length/(1 + found))*(/^(\p{L}|\d+)$/u.test(word) ? LESS.letter : 1)};
    });
    const known = words.filter(({found}) => found); // in a long query words that are nowhere say nothing
    return words.length >= LONG && known.length > words.length/2 ? known : words;
  }

  // The share of a query that a text has.
  share(text, words) {
    const weight = kept => kept.reduce((sum, {rarity}) => sum + rarity, 0);
    return weight(words.filter(({ways}) => some(text, ways)))/weight(words);
  }

  score(doc, words, phrase, pairs) {
    let score = 0;
    for (const {ways, rarity, pages} of words) {
      const here = WEIGHTS.text*often(count(doc.text, ways), doc.text.length) + WEIGHTS.code*some(doc.code, ways) + WEIGHTS.page*pages.get(doc.page);
      score += rarity*(here + ["name", "section", "title", "claim"].reduce((sum, field) => sum + WEIGHTS[field]*some(doc[field], ways), 0));
    }
    for (const pair of pairs) for (const field of ["section", "title", "claim", "text"]) score += WEIGHTS[field]*WEIGHTS.pair*often(count(doc[field], [pair]), doc[field].length);
    if (doc.page === SYMBOLS && words.every(({word}) => /^\p{L}$/u.test(word))) return 500 - doc.before/1000;
    const named = doc.name === phrase || /\d $/.test(phrase) && doc.name.startsWith(phrase); // `theorem 1`
    return named ? 1000 - doc.before/1000 : score*doc.less*this.share(doc.all, words)**2;
  }

  search(query, {limit = 20} = {}) {
    const words = this.read(query), phrase = plain(query), pairs = pairsOf(query);
    if (!words.length) return [];
    const wanted = words.length < LONG ? 1 : OF_A_LONG_QUERY;
    const found = this.documents.filter(doc => this.share(doc.all, words) >= wanted);
    if (!found.length) return [{item: this.nearest(words)}];
    return found.map(doc => ({doc, score: this.score(doc, words, phrase, pairs)})).sort((a, b) => b.score - a.score).slice(0, limit)
      .map(({doc}) => ({item: {...doc.item, text: this.excerpt(doc, words)}}));
  }

  // One result where there is none: the page that has most of the words.
  nearest(words) {
    const [[page, {first}]] = [...this.pages].map(([page, {all, first}]) => [page, {first}, this.share(all, words)])
      .sort((a, b) => b[2] - a[2] || words.reduce((sum, {pages}) => sum + pages.get(b[0]) - pages.get(a[0]), 0));
    const none = words.every(({found}) => !found);
    const home = none ? this.documents.find(({page}) => page === "index.html") ?? first : first;
    return {...home.item, href: none ? home.page : page, title: "Nothing here has these words", section: "", text: `The nearest page: ${home.item.title}`, nothing: true};
  }

  // The text around the first word of the query that it has.
  excerpt(doc, words) {
    const text = doc.item.text ?? "", low = text.toLowerCase();
    const at = words.flatMap(({ways}) => ways.map(way => low.search(new RegExp(`(?<![\\p{L}\\p{N}])${way.trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}`, "u")))).filter(k => k >= 0);
    const from = Math.max(0, Math.min(...at, text.length) - 60), start = from && at.length ? text.indexOf(" ", from) + 1 : 0;
    return (start ? "… " : "") + text.slice(start, start + 220) + (text.length > start + 220 ? " …" : "");
  }
}

if (typeof window !== "undefined") window.Fuse = Words;
