// Singular values of one matrix on a logarithmic axis, with the random edge and a cut.
import { s } from "./dom.js";
import { number } from "./table.js";

const BOX = { width: 560, height: 290, left: 58, right: 14, top: 22, bottom: 40 };
export const SMALLEST_SHARE = 1e-8;  // what float32 rounding leaves says nothing

function ticks(low, high) {
  const decades = Math.log10(high / low);
  const steps = decades < 1.5 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / 6));
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += every) {
    for (const step of steps) {
      const value = step * 10 ** power;
      if (value >= low && value <= high) found.push(value);
    }
  }
  return found;
}

function scales(matrix, points) {
  const floor = matrix.largest * SMALLEST_SHARE;
  const heights = [...points.map((point) => point[1]), matrix.random_edge].filter((value) => value > floor);
  const low = Math.min(...heights) / 1.3;
  const high = Math.max(...heights) * 1.4;
  const across = BOX.width - BOX.left - BOX.right;
  const down = BOX.height - BOX.top - BOX.bottom;
  return {
    low, high,
    x: (place) => BOX.left + across * (place - 0.5) / matrix.num_values,
    y: (value) => BOX.top + down * Math.log(high / Math.max(value, low)) / Math.log(high / low),
  };
}

// The values are spread evenly over the places 1 to num_values.
function placed(matrix) {
  const last = Math.max(matrix.singular_values.length - 1, 1);
  return matrix.singular_values.map((value, place) => [1 + place * (matrix.num_values - 1) / last, value ?? 0]);
}

const line = (points, { x, y }) => `M${points.map(([place, value]) => `${x(place).toFixed(1)} ${y(value).toFixed(1)}`).join("L")}`;

function frame(matrix, { low, high, x, y }) {
  const bottom = BOX.height - BOX.bottom;
  const right = BOX.width - BOX.right;
  const parts = [];
  for (const value of ticks(low, high)) {
    const text = value >= 1e-3 && value < 1e5 ? String(Number(value.toPrecision(2))) : value.toExponential(0);
    parts.push(s("path", { class: "grid", d: `M${BOX.left} ${y(value)}H${right}` }),
      s("text", { class: "tick", x: BOX.left - 8, y: y(value) + 4, "text-anchor": "end" }, text));
  }
  parts.push(s("path", { class: "axis", d: `M${BOX.left} ${BOX.top}V${bottom}H${right}` }));
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const place = Math.round(1 + share * (matrix.num_values - 1));
    if (share > 0 && (share < 1 ? matrix.num_values < 5 : matrix.num_values < 2)) continue;
    parts.push(s("text", { class: "tick", x: x(place), y: bottom + 16, "text-anchor": share === 1 ? "end" : "middle" }, place.toLocaleString("en")));
  }
  parts.push(s("text", { class: "name", x: BOX.left - 50, y: 11 }, "singular value"),
    s("text", { class: "name", x: (BOX.left + right) / 2, y: BOX.height - 5, "text-anchor": "middle" }, "number of the singular value"));
  return parts;
}

// An SVG with a method `cutAt(rank)`; null if all values are zero.
export function drawSpectrum(matrix) {
  const shown = placed(matrix).filter((point) => point[1] > matrix.largest * SMALLEST_SHARE);
  if (!shown.length) return null;
  const random = matrix.random_edge > 0
    ? matrix.random.map((share, place) => [0.5 + matrix.num_values * (place + 0.5) / matrix.random.length, share * matrix.random_edge])
    : [];
  const axes = scales(matrix, [...shown, ...random]);
  const right = BOX.width - BOX.right;
  const bottom = BOX.height - BOX.bottom;
  const cut = s("g", { class: "cut" });
  const svg = s("svg", {
    viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img",
    "aria-label": `${matrix.num_values} singular values, the largest ${number(matrix.largest)}; ${matrix.outliers} above the random edge ${number(matrix.random_edge)}`,
  }, frame(matrix, axes), cut);
  if (random.length) svg.append(s("path", { class: "twin", d: line(random, axes) }));
  if (matrix.random_edge > 0) {
    const y = axes.y(matrix.random_edge);
    svg.append(s("path", { class: "edge", d: `M${BOX.left} ${y}H${right}` }),
      s("text", { class: "edge", x: right, y: y - 6, "text-anchor": "end" }, "random edge"));
  }
  svg.append(s("path", { class: "values", d: line(shown, axes) }));
  for (const [place, value] of shown) {
    const isOutlier = matrix.random_edge > 0 && value > matrix.random_edge;
    if (isOutlier || shown.length <= 64) {
      svg.append(s("circle", { class: isOutlier ? "outlier" : "value", cx: axes.x(place), cy: axes.y(value), r: isOutlier ? 3 : 2 }));
    }
  }
  svg.cutAt = (rank) => {
    if (rank === null) return cut.replaceChildren();
    const x = axes.x(Math.min(rank, matrix.num_values) + 0.5);
    const isRight = x > (BOX.left + right) / 2;
    return cut.replaceChildren(
      s("rect", { class: "lost", x, y: BOX.top, width: Math.max(0, right - x), height: bottom - BOX.top }),
      s("path", { class: "cut-line", d: `M${x} ${BOX.top}V${bottom}` }),
      s("text", { class: "cut-name", x: isRight ? x - 6 : x + 6, y: bottom - 8, "text-anchor": isRight ? "end" : "start" }, `rank ${rank.toLocaleString("en")}`));
  };
  return svg;
}
