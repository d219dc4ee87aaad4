"use strict";
// Draws the singular values of one matrix on a logarithmic axis.

const SVG = "http://www.w3.org/2000/svg";
const BOX = { width: 560, height: 300, left: 58, right: 14, top: 22, bottom: 40 };
const SMALLEST_SHARE = 1e-8;  // what float32 rounding leaves says nothing

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function readable(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(4)));
}

function ticks(low, high) {
  const found = [], steps = Math.log10(high / low) < 1.5 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(Math.log10(high / low) / 6));
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += every) {
    for (const step of steps) {
      const value = step * 10 ** power;
      if (value >= low && value <= high) found.push(value);
    }
  }
  return found;
}

function scales(matrix, shown, reference) {
  const floor = matrix.largest * SMALLEST_SHARE;
  const heights = [...shown.map((point) => point[1]), ...reference.map((point) => point[1]), matrix.random_edge]
    .filter((value) => value > floor);
  const low = Math.min(...heights) / 1.3, high = Math.max(...heights) * 1.4;
  const across = BOX.width - BOX.left - BOX.right, down = BOX.height - BOX.top - BOX.bottom;
  return {
    low, high,
    x: (place) => BOX.left + across * (place - 0.5) / matrix.num_values,
    y: (value) => BOX.top + down * Math.log(high / Math.max(value, low)) / Math.log(high / low),
  };
}

// Spread evenly over the places 1 to num_values.
function placed(matrix) {
  const values = matrix.singular_values, last = Math.max(values.length - 1, 1);
  return values.map((value, place) => [1 + place * (matrix.num_values - 1) / last, value ?? 0]);
}

function randomTwin(matrix, references) {
  const quantiles = references[matrix.reference] ?? [];
  return quantiles.map((share, place) =>
    [0.5 + matrix.num_values * (place + 0.5) / quantiles.length, share * matrix.random_edge]);
}

function line(points, { x, y }) {
  return "M" + points.map(([place, value]) => `${x(place).toFixed(1)} ${y(value).toFixed(1)}`).join("L");
}

function frame(svg, matrix, { low, high, x, y }) {
  const bottom = BOX.height - BOX.bottom, right = BOX.width - BOX.right;
  for (const value of ticks(low, high)) {
    svg.append(shape("path", { class: "grid", d: `M${BOX.left} ${y(value)}H${right}` }));
    svg.append(shape("text", { class: "tick", x: BOX.left - 8, y: y(value) + 4, "text-anchor": "end" },
      value >= 1e-3 && value < 1e5 ? String(Number(value.toPrecision(2))) : value.toExponential(0)));
  }
  svg.append(shape("path", { class: "axis", d: `M${BOX.left} ${BOX.top}V${bottom}H${right}` }));
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const place = Math.round(1 + share * (matrix.num_values - 1));
    if (share > 0 && (share < 1 ? matrix.num_values < 5 : matrix.num_values < 2)) continue;
    svg.append(shape("text", { class: "tick", x: x(place), y: bottom + 16, "text-anchor": share === 1 ? "end" : "middle" },
      place.toLocaleString("en")));
  }
  svg.append(shape("text", { class: "name", x: BOX.left - 8, y: 11 }, "singular value"));
  svg.append(shape("text", { class: "name", x: (BOX.left + right) / 2, y: BOX.height - 5, "text-anchor": "middle" },
    "number of the singular value"));
}

function drawSpectrum(matrix, references) {
  const floor = matrix.largest * SMALLEST_SHARE;
  const shown = placed(matrix).filter((point) => point[1] > floor);
  if (!shown.length) return null;
  const reference = matrix.random_edge > 0 ? randomTwin(matrix, references) : [];
  const axes = scales(matrix, shown, reference);
  const svg = shape("svg", {
    viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img",
    "aria-label": `${matrix.num_values} singular values, the largest ${readable(matrix.largest)}; ` +
      `${matrix.outliers} above the random edge ${readable(matrix.random_edge)}`,
  });
  frame(svg, matrix, axes);
  if (reference.length) svg.append(shape("path", { class: "twin", d: line(reference, axes) }));
  if (matrix.random_edge > 0) {
    const y = axes.y(matrix.random_edge), right = BOX.width - BOX.right;
    svg.append(shape("path", { class: "edge", d: `M${BOX.left} ${y}H${right}` }));
    svg.append(shape("text", { class: "edge", x: right, y: y - 6, "text-anchor": "end" }, "random edge"));
  }
  svg.append(shape("path", { class: "values", d: line(shown, axes) }));
  for (const [place, value] of shown) {
    const isOutlier = matrix.random_edge > 0 && value > matrix.random_edge;
    if (!isOutlier && shown.length > 64) continue;
    svg.append(shape("circle", { class: isOutlier ? "outlier" : "value", cx: axes.x(place), cy: axes.y(value), r: isOutlier ? 3 : 2 }));
  }
  return svg;
}
