import "./search.js";
import "./panels.js";

// Brings every live figure of a page to life; where that fails, the static figure stays.
const here = new URL(".", import.meta.url);
const data = async name => (await fetch(new URL(`../data/${name}`, here))).json();

const style = document.createElement("link");
Object.assign(style, {rel: "stylesheet", href: new URL("live.css", here)});
if (document.querySelector("[data-live]")) {
  document.head.append(style);
  await new Promise(done => { style.onload = style.onerror = done; }); // nothing is drawn unstyled
}

// The live figure takes the number and the address of the static one.
function replace(figure, box) {
  if (!figure) return;
  const [number] = figure.querySelector("figcaption")?.textContent.match(/Figure\s\d+/) ?? [];
  figure.closest(".cell, .quarto-figure").remove();
  box.id = box.dataset.instead;
  if (number) box.insertAdjacentHTML("beforeend", `<p class="live-number">${number}, live</p>`);
}

for (const box of document.querySelectorAll("[data-live]")) {
  box.classList.add("live"); // before the figure computes: what it shows meanwhile has its style
  try {
    const figure = await import(`./${box.dataset.live}.js`);
    await figure.default(box, data);
    replace(document.getElementById(box.dataset.instead), box);
  } catch (problem) {
    box.classList.remove("live");
    box.replaceChildren();
    console.warn(`live figure ${box.dataset.live}: ${problem.message}`);
  }
}
