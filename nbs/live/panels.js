// On a phone the panels of a figure stand one below the other, so that their labels can be read.
// Where they are was written when the figure was drawn (tools/panels.py): nothing is guessed here.
const NARROW = matchMedia("(max-width: 600px)");
const LARGE = 600; // pixels on a desk: figures that are narrower are readable as they are

// A panel, put together from parts of the picture: itself, and labels that it shares with others.
function drawn(image, {size: [width, height], parts}) {
  const panel = Object.assign(document.createElement("canvas"), {width, height});
  const context = panel.getContext("2d");
  for (const [x, y, w, h, toX, toY] of parts) context.drawImage(image, x, y, w, h, toX, toY, w, h);
  return panel;
}

const widthOf = image => +image.getAttribute("width"); // on a desk

async function stack(image) {
  await image.decode();
  const panels = document.createElement("span");
  panels.className = "panels";
  panels.role = "img";
  panels.ariaLabel = image.alt;
  const scale = widthOf(image)/image.naturalWidth;
  for (const piece of JSON.parse(image.dataset.panels).pieces) {
    const panel = drawn(image, piece);
    panel.style.width = `${scale*panel.width}px`;
    panels.append(panel);
  }
  image.classList.add("in-panels");
  image.after(panels);
}

function stackAll() {
  if (!NARROW.matches) return;
  for (const image of document.querySelectorAll("img[data-panels]:not(.in-panels)"))
    if (widthOf(image) > LARGE) stack(image);
}

stackAll();
NARROW.addEventListener("change", stackAll);
