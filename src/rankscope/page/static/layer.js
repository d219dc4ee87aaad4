// One layer: spectrum with the random edge and a cut, diagram dense beside factored, cost, code.
import { ask, download, embedded } from "./api.js";
import { debounce, h, still } from "./dom.js";
import { figureButtons } from "./heat.js";
import { siteOf } from "./plan.js";
import { SMALLEST_SHARE, drawSpectrum } from "./spectrum.js";
import { number } from "./table.js";

let opener = null;

export async function openLayer(root, view, name, matrixNumber) {
  opener = document.activeElement;
  const panel = h("section", { class: "card layer", role: "region", "aria-label": name, tabindex: "-1" });
  const close = () => {
    root.replaceChildren();
    view.layerPlan = null;
    opener?.focus?.();
  };
  panel.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  const head = h("div", { class: "card-head" }, h("h2", {}, name), h("button", { type: "button", class: "quiet close", "aria-label": "Close", onclick: close }, "×"));
  const content = h("div", {}, h("p", { class: "muted" }, "…"));
  panel.append(head, content);
  root.replaceChildren(panel);
  panel.focus({ preventScroll: true });
  panel.scrollIntoView({ block: "nearest" });
  const tensor = view.model.tensors.find((each) => each.name === name);
  try {
    const spectra = embedded ? embedded.spectra[name] : await ask("/spectrum", { name });
    content.replaceChildren();
    fill(content, view, tensor, spectra, matrixNumber);
  } catch (error) {
    content.replaceChildren(h("p", { class: "alert", role: "alert" }, error.message));
  }
  panel.scrollIntoView({ block: "nearest" });
}

async function fill(content, view, tensor, spectra, matrixNumber) {
  const state = { svg: null, rank: null };
  const spectrum = h("figure", { class: "spectrum" });
  const numbers = h("dl", { class: "numbers" });
  const views = h("div", { class: "views", role: "group", "aria-label": "Matrices seen in this tensor", hidden: spectra.matrices.length < 2 });
  const choose = (chosen) => {
    views.replaceChildren(...spectra.matrices.map((matrix, place) => h("button", {
      type: "button", "aria-pressed": String(place === chosen),
      onclick: () => { choose(place); views.children[place].focus(); },
    }, matrix.name || "the whole")));
    fillSpectrum(spectrum, spectra.matrices[chosen], state);
    if (!embedded && state.svg) {
      spectrum.append(figureButtons("Figure of this spectrum", (ending) => download("/figure/spectrum", {
        name: tensor.name, matrix: chosen, rank: chosen === 0 ? state.rank : null, ending,
      })));
    }
    fillNumbers(numbers, spectra, spectra.matrices[chosen]);
    if (state.svg && chosen === 0 && state.rank !== null) state.svg.cutAt(state.rank);
  };
  const factor = h("div", { class: "factor" });
  content.append(views, h("div", { class: "layer-body" }, spectrum, numbers), factor);
  if (spectra.matrices.length) choose(matrixNumber < spectra.matrices.length ? matrixNumber : 0);
  else spectrum.append(h("p", { class: "muted" }, "Its weights have not been read yet."));
  if (embedded) writtenDiagrams(factor, tensor);
  else await factoring(factor, view, tensor, state);
}

function fillSpectrum(figure, matrix, state) {
  state.svg = drawSpectrum(matrix);
  if (!state.svg) {
    figure.replaceChildren(h("p", { class: "muted" }, "All singular values are zero."));
    return;
  }
  const isCut = matrix.singular_values.some((value) => value <= matrix.largest * SMALLEST_SHARE);
  figure.replaceChildren(state.svg, h("figcaption", {}, h("span", { class: "key values" }, "singular values"),
    matrix.outliers ? h("span", { class: "key outlier" }, "outliers") : null,
    h("span", { class: "key twin" }, "a random matrix of this shape"),
    isCut ? h("span", {}, `Values below ${SMALLEST_SHARE} of the largest are not drawn.`) : null));
}

function fillNumbers(list, tensor, matrix) {
  const shares = Object.keys(matrix.rank_at);
  const rows = [
    ["Tensor", `${tensor.shape.map((size) => size.toLocaleString("en")).join(" × ")}, ${tensor.dtype}`],
    ["Matrix", matrix.shape.map((size) => size.toLocaleString("en")).join(" × ")],
    ["Largest (spectral norm)", number(matrix.largest)],
    ["Frobenius norm", number(matrix.frobenius)],
    ["Numeric rank", `${number(matrix.numeric_rank)} of ${number(matrix.num_values)}`],
    ["Stable rank", number(matrix.stable_rank)],
    ["Effective rank", number(matrix.effective_rank)],
    [`Rank at ${shares.join(", ")} %`, shares.map((share) => number(matrix.rank_at[share])).join(", ")],
    ["Random edge", number(matrix.random_edge)],
    ["Outliers above it", number(matrix.outliers)],
    ["Distance from random", number(matrix.random_distance)],
  ];
  list.replaceChildren(...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

// --- Dense beside factored: the error slider walks along the candidates of one format -------------

async function factoring(root, view, tensor, state) {
  const name = siteOf(view, tensor.name);
  if (!name) {
    const why = view.model.candidates ? "This tensor is not one that the plan may write smaller." : "Candidates are still being computed.";
    root.append(h("p", { class: "muted" }, why));
    await drawPair(root, { kind: "Linear", shape: tensor.shape }, null);
    return;
  }
  const site = await ask("/site", { name });
  const formats = [...new Set(site.candidates.map(([format]) => format).filter(Boolean))];
  const planned = () => view.plan?.of(tensor.name) ?? null;
  const pair = h("div", {});
  if (!formats.length) {
    root.append(h("p", { class: "muted" }, `No format makes it smaller: ${site.refusals.join("; ")}`), pair);
    await drawPair(pair, site, null);
    return;
  }
  const format = h("select", { "aria-label": "Format" }, formats.map((each) => h("option", { value: each }, each)));
  const slider = h("input", { type: "range", min: 0, step: 1, "aria-label": "Error of this layer" });
  const text = h("output", { class: "error-text" });
  const pinButton = h("button", { type: "button" });
  const ladder = () => site.candidates.map(([each, ranks, parameters, flops, error], place) => ({ format: each, ranks, parameters, flops, error, place }))
    .filter((each) => each.format === format.value).sort((a, b) => b.error - a.error);
  const current = () => ladder()[Number(slider.value)];
  const redraw = debounce(120, () => drawPair(pair, site, current()));
  const update = () => {
    const chosen = current();
    slider.max = ladder().length - 1;
    if (!chosen) return;
    state.rank = chosen.format === "svd" ? chosen.ranks[0] : null;
    state.svg?.cutAt(state.rank);
    const dense = site.candidates[0];
    text.textContent = `ranks ${chosen.ranks.join(", ")} · relative error ${number(chosen.error)} · ${(100 * chosen.parameters / dense[2]).toFixed(1)} % of its parameters`;
    slider.setAttribute("aria-valuetext", text.textContent);
    const pin = view.pins.get(name);
    pinButton.textContent = pin?.place === chosen.place ? "Unpin" : "Pin this choice";
    redraw();
  };
  const adopt = () => {
    const row = planned();
    if (row?.format && formats.includes(row.format)) {
      format.value = row.format;
      slider.max = ladder().length - 1;
      slider.value = Math.max(0, ladder().findIndex((each) => each.place === row.place));
    }
  };
  pinButton.addEventListener("click", () => {
    const chosen = current();
    if (view.pins.get(name)?.place === chosen.place) view.pins.delete(name);
    else view.pins.set(name, { place: chosen.place, text: `${chosen.format} ${chosen.ranks.join(", ")}` });
    view.refreshPins?.();
    view.requestPlan?.();
    update();
  });
  const dense = h("button", { type: "button", onclick: () => { view.pins.set(name, { place: 0, text: "dense" }); view.refreshPins?.(); view.requestPlan?.(); } }, "Keep it dense");
  const plannedText = h("span", { class: "muted" });
  view.layerPlan = () => {
    const row = planned();
    plannedText.textContent = !row ? "" : row.format ? `The plan: ${row.format} ${row.ranks.join(", ")}, error ${number(row.error)}.` : "The plan keeps it dense.";
  };
  slider.max = ladder().length - 1;
  slider.value = Math.floor(ladder().length / 2);
  adopt();
  slider.addEventListener("input", update);
  format.addEventListener("change", () => { slider.max = ladder().length - 1; update(); });
  root.append(h("div", { class: "error-line" }, h("label", {}, "Error ", slider), format, text, pinButton, dense, plannedText), pair);
  view.layerPlan();
  update();
}

let drawing = 0;

async function drawPair(root, site, chosen) {
  drawing += 1;
  const mine = drawing;
  const layer = (each) => ({ kind: site.kind ?? "Linear", shape: site.shape.slice(0, 4), format: each?.format ?? null, ranks: each?.ranks ?? [] });
  try {
    const requests = [ask("/layer", layer(null)), chosen ? ask("/layer", layer(chosen)) : null];
    const [dense, factored] = await Promise.all(requests);
    if (mine !== drawing) return;
    root.replaceChildren(h("div", { class: "pair" }, side("Dense", dense, layer(null)), factored ? side(`Factored: ${chosen.format}`, factored, layer(chosen)) : null));
  } catch (error) {
    if (mine === drawing) root.replaceChildren(h("p", { class: "alert" }, error.message));
  }
}

function side(title, drawn, layer) {
  return h("div", { class: "side" }, h("h3", {}, title), h("figure", { class: "diagram" }, still(drawn.svg)),
    h("pre", { class: "equation", tabindex: "0" }, drawn.equation),
    h("p", { class: "muted small" }, `${number(drawn.cost.parameters)} parameters · ${number(drawn.cost.flops)} operations for one input · largest intermediate ${number(drawn.cost.largest_intermediate)}`),
    h("details", {}, h("summary", {}, "Code"), h("pre", { class: "code", tabindex: "0" }, drawn.code)),
    figureButtons(`Figure of ${title}`, (ending) => download("/layer/figure", { ...layer, ending })));
}

function writtenDiagrams(root, tensor) {
  const drawn = embedded.diagrams[tensor.name];
  if (drawn !== undefined) root.append(h("figure", { class: "diagram" }, still(embedded.pictures[drawn])));
  else if (embedded.problem) root.append(h("p", { class: "muted" }, `No diagram: ${embedded.problem}`));
}
