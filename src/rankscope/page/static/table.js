// Every tensor: sorted, filtered, opened; vectors folded away.
import { h, s } from "./dom.js";

const COLUMNS = [
  ["Tensor", "Name in the file", (t) => t.name],
  ["Part", "Part of the model", (t) => t.part],
  ["Shape", "Sorted by the number of entries", (t) => t.shape.reduce((a, b) => a * b, 1)],
  ["Effective", "Effective rank: exponential of the entropy of the squares' shares", (t) => t.matrices[0]?.[4]],
  ["Of full", "Effective rank over the number of singular values", (t) => (t.matrices[0] ? t.matrices[0][4] / t.matrices[0][3] : undefined)],
  ["Stable", "Stable rank: sum of squares over the largest square", (t) => t.matrices[0]?.[5]],
  ["90 %", "Singular values that hold 90 % of the squares", (t) => t.matrices[0]?.[6]],
  ["Largest", "Largest singular value", (t) => t.matrices[0]?.[8]],
  ["Outliers", "Singular values above the edge of a random matrix of this shape", (t) => t.matrices[0]?.[7]],
  ["Not random", "Distance from the spectrum of a random matrix, 0 to 1", (t) => t.matrices[0]?.[9]],
];
const SHOWN = 400;

export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

export function tensorTable(root, view) {
  let order = null;
  let limit = SHOWN;
  const filter = h("input", { type: "text", id: "filter", placeholder: "name, part or reason", autocomplete: "off", spellcheck: "false", "aria-label": "Filter" });
  const count = h("span", { class: "muted", role: "status" });
  const body = h("tbody", {});
  const heads = COLUMNS.map(([title, description], column) => h("th", { scope: "col", "aria-sort": "none", class: column > 1 ? "number" : null },
    h("button", { type: "button", class: "quiet", title: description, onclick: () => sortBy(column) }, title)));
  const more = h("button", { type: "button", hidden: true, onclick: () => { limit += 2000; refresh(); } }, "Show more");
  const vectors = h("details", { class: "vectors" });
  root.replaceChildren(
    h("div", { class: "card-head" }, h("h2", { id: "tensors-title" }, "Every tensor"), filter, count),
    h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-labelledby": "tensors-title" },
      h("table", { class: "tensors" }, h("thead", {}, h("tr", {}, heads, h("th", { scope: "col" }, "Spectrum"))), body)),
    more, vectors);
  filter.addEventListener("input", refresh);

  function sortBy(column) {
    const isDescending = order?.column === column && !order.isDescending;
    order = { column, isDescending };
    heads.forEach((head, place) => head.setAttribute("aria-sort", place !== column ? "none" : isDescending ? "descending" : "ascending"));
    refresh();
  }

  function sorted(tensors) {
    if (!order) return tensors;
    const value = COLUMNS[order.column][2];
    const sign = order.isDescending ? -1 : 1;
    return [...tensors].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
      return sign * (typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true }));
    });
  }

  function refresh() {
    const words = filter.value.trim().toLowerCase().split(/\s+/);
    const fits = (each) => words.every((word) => `${each.name} ${each.part} ${each.reason ?? ""}`.toLowerCase().includes(word));
    const wanted = view.model.tensors.filter(fits);
    const matrices = sorted(wanted.filter((each) => !each.reason));
    const rest = wanted.filter((each) => each.reason);
    body.replaceChildren(...matrices.slice(0, limit).map(row));
    more.hidden = matrices.length <= limit;
    count.textContent = `${matrices.length.toLocaleString("en")} matrices` + (rest.length ? `, ${rest.length.toLocaleString("en")} without a spectrum` : "");
    vectors.hidden = !rest.length;
    vectors.replaceChildren(h("summary", {}, `${rest.length.toLocaleString("en")} without a spectrum (vectors, single numbers, …)`),
      h("ul", {}, rest.slice(0, limit).map((each) => h("li", {}, h("code", {}, each.name), ` ${each.shape.join(" × ")} `, h("span", { class: "muted" }, each.reason)))));
  }

  function row(tensor) {
    const m = tensor.matrices[0];
    const share = m ? m[4] / m[3] : null;
    const bar = h("td", { class: "number share" }, share === null ? "" : `${Math.round(100 * share)} %`);
    if (share !== null) bar.style.setProperty("--share", share.toFixed(3));
    const extra = tensor.matrices.length > 1 ? ` and ${tensor.matrices.length - 1} parts` : "";
    return h("tr", {},
      h("td", {}, h("button", { type: "button", class: "link", onclick: () => view.open(tensor.name, 0) }, tensor.name),
        tensor.same_as ? h("span", { class: "muted" }, ` same as ${tensor.same_as}`) : null,
        extra ? h("span", { class: "muted" }, extra) : null),
      h("td", {}, tensor.part),
      h("td", { class: "number" }, tensor.shape.map((size) => size.toLocaleString("en")).join(" × ")),
      h("td", { class: "number" }, m ? number(m[4]) : ""), bar,
      ...[5, 6, 8, 7, 9].map((place) => h("td", { class: "number" }, m ? number(m[place]) : "")),
      h("td", {}, tensor.spark ? spark(tensor.spark) : null));
  }

  refresh();
  return { refresh };
}

function spark(depths) {
  const last = Math.max(depths.length - 1, 1);
  const points = depths.map((depth, place) => `${(1 + 86 * place / last).toFixed(0)} ${(1 + 0.18 * depth).toFixed(1)}`);
  return s("svg", { class: "spark", viewBox: "0 0 88 20", "aria-hidden": "true" }, s("path", { d: `M${points.join("L")}` }));
}
