// Layers against kinds of matrices: how far each is below its largest possible rank.
import { download, embedded } from "./api.js";
import { h } from "./dom.js";

const METRICS = {
  effective: ["effective rank", (m) => m[4] / m[3]],
  stable: ["stable rank", (m) => m[5] / m[3]],
  energy: ["rank that holds 90 % of the squares", (m) => m[6] / m[3]],
};
const NUMBERED = /(head|expert) \d+/;
const MOST_NUMBERED = 16;  // more columns leave no space for a number in a cell
const MOST_CELLS = 4000;
const MOST_FIGURED = 100;  // rows outside of blocks in a figure

// Kind -> column -> { name, matrix, share, count }: of several matrices that with the lowest share.
function arrange(tensors, share) {
  const seen = tensors.filter((each) => !each.reason && each.shape.length > 1);
  const layers = [...new Set(seen.map((each) => each.layer).filter((layer) => layer !== null))].sort((a, b) => a - b);
  const kinds = new Map();
  const others = [];
  for (const tensor of seen) {
    if (tensor.layer === null) {
      others.push(tensor);
      continue;
    }
    for (const [view, cell] of viewsOf(tensor, share)) {
      const kind = kindOf(tensor) + (view ? `: ${view}` : "");
      if (!kinds.has(kind)) kinds.set(kind, new Map());
      keepLower(kinds.get(kind), tensor.layer, cell);
    }
  }
  return { layers, kinds: shortened(kinds), others };
}

function viewsOf(tensor, share) {
  if (!tensor.matrices.length) return [["", { name: tensor.name, matrix: 0, share: null, full: Math.min(...tensor.shape.slice(0, 2)), count: 1 }]];
  return tensor.matrices.map((matrix, number) => [
    matrix[0].replace(NUMBERED, "$1 *").split(" on ")[0],
    { name: tensor.name, matrix: number, view: matrix[0], share: share(matrix, tensor), full: matrix[3], count: 1 },
  ]);
}

function kindOf(tensor) {
  const words = tensor.name.split(".");
  const place = words.indexOf(String(tensor.layer));
  if (place >= 0) words.splice(place, 1);
  return words.map((word) => (/^\d+$/.test(word) ? "*" : word)).join(".").replace(/\.weight$/, "");
}

function keepLower(cells, column, cell) {
  const old = cells.get(column);
  if (!old) cells.set(column, cell);
  else cells.set(column, { ...((cell.share ?? 1) < (old.share ?? 1) ? cell : old), count: old.count + 1 });
}

// Without the first words that all names share.
function shortened(kinds) {
  const split = [...kinds.keys()].map((kind) => kind.split("."));
  let common = 0;
  while (split.length && split.every((words) => words.length > common + 1 && words[common] === split[0][common])) common += 1;
  const names = split.map((words) => words.slice(common).join("."));
  if (new Set(names).size < names.length) return kinds;
  return new Map([...kinds.values()].map((cells, place) => [names[place], cells]));
}

export function heatMap(root, view) {
  const metric = h("select", { id: "metric", "aria-label": "Kind of rank" },
    Object.entries(METRICS).map(([value, [name]]) => h("option", { value }, name)),
    h("option", { value: "plan", disabled: true }, "rank that the plan keeps"));
  const place = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "heat-title" });
  const note = h("p", { class: "muted small" });
  root.replaceChildren(
    h("div", { class: "card-head" }, h("h2", { id: "heat-title" }, "Ranks across the model"), metric,
      h("span", { class: "scale", "aria-hidden": "true" }, "0 %", h("i", {}), "100 %")),
    place, note, embedded ? null : figureButtons("Figure of this map", (ending) => download("/figure/heat", figureBody(ending))));
  metric.addEventListener("change", refresh);
  place.addEventListener("keydown", moveInside);
  place.addEventListener("click", (event) => {
    const cell = event.target.closest("button[data-name]");
    if (cell) view.open(cell.dataset.name, Number(cell.dataset.matrix));
  });

  const plannedShare = (matrix, tensor) => {
    const row = matrix[0] ? null : view.plan?.of(tensor.name);
    if (!row) return null;
    return row.format === null ? 1 : Math.min(1, row.ranks[0] / matrix[3]);
  };

  function refresh() {
    const share = metric.value === "plan" ? plannedShare : METRICS[metric.value][1];
    const focused = document.activeElement?.closest?.("button[data-name]");
    const key = focused && place.contains(focused) ? [focused.dataset.name, focused.dataset.matrix] : null;
    const { layers, kinds, others } = arrange(view.model.tensors, share);
    const parts = [];
    if (layers.length) parts.push(table(layers, kinds));
    if (others.length) parts.push(flow(others.slice(0, MOST_CELLS), share, layers.length > 0));
    place.replaceChildren(...parts);
    if (!parts.length) place.append(h("p", { class: "muted" }, view.model.is_complete ? "No tensor has a spectrum." : "Waiting for the first weights …"));
    const cells = [...place.querySelectorAll("button[data-name]")];
    const again = key && cells.find((each) => each.dataset.name === key[0] && each.dataset.matrix === key[1]);
    for (const each of cells) each.tabIndex = -1;
    if (again ?? cells[0]) (again ?? cells[0]).tabIndex = 0;
    again?.focus({ preventScroll: true });
    const unread = view.model.tensors.filter((each) => !each.reason && !each.matrices.length).length;
    note.textContent = [
      "Percent of the largest possible rank; the stronger the colour, the lower. A cell opens its layer.",
      unread ? `${unread.toLocaleString("en")} tensors are still to be read.` : "",
      others.length > MOST_CELLS ? `Only the first ${MOST_CELLS.toLocaleString("en")} of ${others.length.toLocaleString("en")} outside blocks are drawn.` : "",
    ].filter(Boolean).join(" ");
  }

  // What stands where; the numbers are the server's.
  function figureBody(ending) {
    const share = metric.value === "plan" ? plannedShare : METRICS[metric.value][1];
    const { layers, kinds, others } = arrange(view.model.tensors, share);
    const where = (cell) => cell && { tensor: cell.name, matrix: cell.matrix, site: view.siteOf?.(cell.name) ?? null };
    const rows = [...kinds].map(([name, cells]) => ({ name, cells: layers.map((layer) => where(cells.get(layer)) ?? null) }));
    rows.push(...others.slice(0, MOST_FIGURED).map((tensor) => ({ name: tensor.name.replace(/\.weight$/, ""), cells: [where(viewsOf(tensor, share)[0][1])] })));
    return { metric: metric.value, request: metric.value === "plan" ? view.requestBody() : null, columns: layers.map(String), rows, ending };
  }

  function table(layers, kinds) {
    const isNumbered = layers.length <= MOST_NUMBERED;
    return h("table", { class: `heat${isNumbered ? " numbered" : ""}` },
      h("caption", { class: "unseen" }, "Ranks by kind of matrix and block"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "block"),
        layers.map((layer, place) => h("th", { scope: "col", class: !isNumbered && place % 5 ? "faint" : null }, String(layer))))),
      h("tbody", {}, [...kinds].map(([kind, cells]) => h("tr", {},
        h("th", { scope: "row", title: kind }, kind),
        layers.map((layer) => h("td", {}, cells.has(layer) ? cellButton(cells.get(layer), isNumbered) : null))))));
  }

  function flow(tensors, share, isBeside) {
    return h("div", { class: "heat-flow", role: "group", "aria-label": isBeside ? "Outside the blocks" : "All matrices in order" },
      isBeside ? h("span", { class: "muted" }, "outside blocks") : null,
      tensors.map((tensor) => {
        const cells = viewsOf(tensor, share).map(([, cell]) => cell);
        const lowest = cells.reduce((a, b) => ((b.share ?? 1) < (a.share ?? 1) ? b : a));
        return h("span", { class: "flow-cell" }, cellButton(lowest, true), tensors.length <= 24 ? h("span", {}, tensor.name.replace(/\.weight$/, "")) : null);
      }));
  }

  refresh();
  return { refresh, allowPlan: () => { metric.lastElementChild.disabled = false; if (metric.value === "plan") refresh(); }, metric };
}

export function figureButtons(label, save) {
  const said = h("span", { class: "muted small", role: "status" });
  return h("div", { class: "exports", role: "group", "aria-label": label }, h("span", { class: "muted small" }, "Figure"), " ", [".svg", ".pdf", ".tikz"].map((ending) =>
    h("button", {
      type: "button", class: "small", onclick: async () => {
        try {
          said.textContent = `Saved ${await save(ending)}.`;
        } catch (error) {
          said.textContent = error.message;
        }
      },
    }, ending.slice(1).toUpperCase().replace("TIKZ", "TikZ"))), said);
}

function cellButton(cell, isNumbered) {
  const name = cell.view ? `${cell.name}, ${cell.view}` : cell.name;
  const percent = cell.share === null ? null : Math.round(100 * cell.share);
  const text = `${name}: ${percent === null ? `not read yet, at most ${cell.full}` : `${percent} % of ${cell.full}`}${cell.count > 1 ? ` (lowest of ${cell.count})` : ""}`;
  const button = h("button", {
    type: "button", class: `cell${percent === null ? " pending" : ""}`, title: text, "aria-label": text,
    "data-name": cell.name, "data-matrix": cell.matrix,
  }, isNumbered && percent !== null ? String(percent) : "");
  if (percent !== null) button.style.setProperty("--share", cell.share.toFixed(3));
  return button;
}

function moveInside(event) {
  if (!event.key.startsWith("Arrow") || !event.target.closest("button[data-name]")) return;
  const next = neighbour(event.target, event.key);
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function neighbour(cell, key) {
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[key];
  const row = cell.closest("tr");
  if (!row || (key !== "ArrowUp" && key !== "ArrowDown")) {
    const all = [...cell.closest("table, .heat-flow").querySelectorAll("button[data-name]")];
    return all[all.indexOf(cell) + step];
  }
  const column = cell.closest("td").cellIndex;
  for (let line = sibling(row, step); line; line = sibling(line, step)) {
    const found = line.cells[column]?.querySelector("button");
    if (found) return found;
  }
  const outside = [...document.querySelectorAll(".heat-flow button[data-name]")];
  return step > 0 ? outside[0] : null;
}

const sibling = (row, step) => (step > 0 ? row.nextElementSibling : row.previousElementSibling);
