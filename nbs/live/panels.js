// On a phone the panels of a figure stand one below the other, so that their labels can be read.
// A figure is cut where a column of pixels is blank: between panels, never through one.
const NARROW = matchMedia("(max-width: 600px)");
const LARGE = 600; // pixels on a desk: figures that are narrower are readable as they are
const BODY = .12;  // of the width: what is narrower is a label, not a panel
const GAP = .0035;  // of the width: a narrower gap is within a drawing

function blankColumns(pixels, width, height) {
  const blank = new Array(width).fill(true);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      if (pixels[y*width + x] !== pixels[0]) blank[x] = false;
  return blank;
}

// [start, end) of what is drawn, from left to right
function drawn(blank, gap) {
  const found = [];
  blank.forEach((is, x) => {
    if (is) return;
    if (found.length && x - found.at(-1)[1] < gap) found.at(-1)[1] = x + 1;
    else found.push([x, x + 1]);
  });
  return found;
}

// Where the panels end but the last: in the widest gap before the next one, since labels
// of axes stand nearer to their own panel.
export function cuts(pixels, width, height) {
  const parts = drawn(blankColumns(pixels, width, height), GAP*width);
  const found = [];
  let widest = null;
  parts.forEach(([start, end], k) => {
    if (k) {
      const gap = [parts[k - 1][1], start];
      if (!widest || gap[1] - gap[0] > widest[1] - widest[0]) widest = gap;
    }
    if (end - start < BODY*width) return;
    if (found.length) found.at(-1).cut = (widest[0] + widest[1]) >> 1;
    found.push({});
    widest = null;
  });
  return found.slice(0, -1).map(({cut}) => cut);
}

function crop(image, from, to) {
  const panel = document.createElement("canvas");
  Object.assign(panel, {width: to - from, height: image.naturalHeight});
  panel.getContext("2d").drawImage(image, from, 0, to - from, image.naturalHeight,
                                   0, 0, to - from, image.naturalHeight);
  return panel;
}

async function stack(image) {
  await image.decode();
  const {naturalWidth: width, naturalHeight: height} = image;
  const whole = crop(image, 0, width);
  const {data} = whole.getContext("2d").getImageData(0, 0, width, height);
  const edges = [0, ...cuts(new Uint32Array(data.buffer), width, height), width];
  if (edges.length < 3) return image.classList.add("whole");
  const panels = document.createElement("span");
  panels.className = "panels";
  panels.role = "img";
  panels.ariaLabel = image.alt;
  const scale = +image.getAttribute("width")/width || .5;
  for (let k = 1; k < edges.length; k++) {
    const panel = crop(image, edges[k - 1], edges[k]);
    panel.style.width = `${scale*panel.width}px`;
    panels.append(panel);
  }
  image.classList.add("in-panels");
  image.after(panels);
}

function stackAll() {
  if (!NARROW.matches) return;
  for (const image of document.querySelectorAll(".cell-output-display img:not(.in-panels, .whole)")) {
    if (+image.getAttribute("width") > LARGE) stack(image).catch(() => image.classList.add("whole"));
  }
}

stackAll();
NARROW.addEventListener("change", stackAll);
