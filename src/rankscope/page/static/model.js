// The view of the model: verdict, ranks of all layers, a plan under a slider, every tensor.
// The same module shows the page that `audit -o` writes, which has no server: then the data are in it.
import { ask, embedded, listen } from "./api.js";
import { h, oneAtATime, say, still } from "./dom.js";
import { heatMap } from "./heat.js";
import { openLayer } from "./layer.js";
import { planPanel } from "./plan.js";
import { certificationSection } from "./results.js";
import { tensorTable } from "./table.js";

const MARKS = { warning: "▲", advice: "●", note: "○" };

export async function mount(root) {
  root.setAttribute("aria-busy", "true");
  const model = embedded ? embedded.overview : await ask("/model");
  root.setAttribute("aria-busy", "false");
  const view = makeView(root, model);
  if (!embedded) followAudit(view);
}

function makeView(root, model) {
  const view = { model, plan: null, pins: new Map(), choose: null };
  const head = h("header", { class: "hero" });
  const alerts = h("div", {});
  const heatPlace = h("section", { class: "card", "aria-labelledby": "heat-title" });
  const layerPlace = h("div", { id: "layer" });
  const tablePlace = h("section", { class: "card", "aria-labelledby": "tensors-title" });
  const more = h("div", { class: "columns" });
  const left = h("div", { class: "main-column" }, heatPlace, layerPlace, tablePlace, more);
  const side = h("aside", { class: "side-column", "aria-label": "Plan" });
  root.replaceChildren(alerts, head, h("div", { class: "layout" }, left, side));
  view.open = (name, matrix) => openLayer(layerPlace, view, name, matrix);
  view.heat = heatMap(heatPlace, view);
  view.table = tensorTable(tablePlace, view);
  view.refreshHead = () => {
    head.replaceChildren(...hero(view.model));
    alerts.replaceChildren(...Object.values(view.model.problems ?? {}).map((text) => h("p", { class: "alert", role: "alert" }, text)));
    more.replaceChildren(...about(view.model));
  };
  view.refreshHead();
  if (embedded && !embedded.plan) side.remove();
  else planPanel(side, view);
  if (embedded?.certification) left.prepend(certificationSection(embedded.certification));
  return view;
}

function hero(model) {
  const { headline, saving, command, is_final: isFinal } = model.verdict;
  return [
    h("div", { class: "title-line" },
      h("h1", {}, model.name),
      h("p", { class: "muted" }, `${model.total} · ${model.sentence}`)),
    h("div", { class: "verdict" },
      h("p", { class: "headline" }, headline),
      h("p", { class: "muted" }, [saving, isFinal ? "" : "From the shape alone; the weights are being read."].filter(Boolean).join(" ")),
      command ? commandLine(command) : null),
  ];
}

export function commandLine(command) {
  const button = h("button", { type: "button", class: "copy", "aria-label": "Copy the command" }, "Copy");
  const code = h("code", { tabindex: "0" }, command);
  button.addEventListener("click", async () => {
    let said = "Copied";
    try {
      await navigator.clipboard.writeText(command);
    } catch {
      getSelection().selectAllChildren(code);
      said = "Selected";
    }
    button.textContent = said;
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return h("div", { class: "command" }, code, button);
}

function about(model) {
  const findings = h("section", { class: "card", "aria-labelledby": "findings-title" },
    h("h2", { id: "findings-title" }, "What was found"),
    model.findings.length
      ? h("ol", { class: "findings" }, model.findings.map(finding))
      : h("p", { class: "muted" }, "Nothing stands out."));
  const sizes = h("section", { class: "card", "aria-labelledby": "sizes-title" },
    h("h2", { id: "sizes-title" }, "Where the parameters are"), partsBar(model.parameters));
  if (model.plane) {
    sizes.append(h("h2", {}, "Depth against width"),
      h("figure", { class: "plane" }, still(model.plane.svg), h("figcaption", { class: "muted" }, model.plane.caption)));
  }
  return [findings, sizes];
}

function finding(each) {
  return h("li", { class: each.severity, id: `finding-${each.id}` },
    h("details", {},
      h("summary", {}, h("span", { "aria-hidden": "true" }, `${MARKS[each.severity]} `), h("span", { class: "unseen" }, `${each.severity}: `), each.title),
      h("p", {}, each.reason),
      h("p", { class: "muted" }, `Found ${each.value?.toLocaleString("en") ?? "–"}, compared with ${each.threshold?.toLocaleString("en") ?? "–"}.`,
        each.saving ? ` Would save ${each.saving} of all parameters.` : "", ` ${each.reference}`),
      each.command ? commandLine(each.command) : null));
}

function partsBar(parts) {
  const bar = h("div", { class: "bar", "aria-hidden": "true" }, parts.map((each) => {
    const piece = h("span", { class: `part-${each.part}` });
    piece.style.flexGrow = Math.max(each.share, 0.002);
    return piece;
  }));
  const rows = parts.map((each) => h("tr", {},
    h("th", { scope: "row" }, h("span", { class: `swatch part-${each.part}` }), each.name),
    h("td", {}, each.count.toLocaleString("en")),
    h("td", {}, `${(100 * each.share).toFixed(1)} %`)));
  return h("div", {}, bar, h("table", { class: "legend" }, h("tbody", {}, rows)));
}

function followAudit(view) {
  let waiting = 0;
  const repaint = () => {
    if (waiting) return;
    waiting = setTimeout(() => { waiting = 0; view.heat.refresh(); view.table.refresh(); }, 200);
  };
  let places = null;  // of tensors by name, made again whenever the list is
  listen("tensor", (event) => {
    const { tensors } = view.model;
    if (places?.of !== tensors) places = { of: tensors, by: new Map(tensors.map((each, place) => [each.name, place])) };
    const place = places.by.get(event.tensor.name) ?? tensors.length;
    places.by.set(event.tensor.name, place);
    tensors[place] = event.tensor;
    repaint();
  });
  const reload = oneAtATime(async () => {
    const known = view.model.candidates;
    const model = await ask("/model");
    // Candidates that an event brought in the meantime are newer than the answer.
    if (view.model.candidates !== known) model.candidates = view.model.candidates;
    view.model = model;
    view.refreshHead();
    view.heat.refresh();
    view.table.refresh();
    view.takeCandidates(model.candidates, model.problems.candidates);
    if (model.is_complete) say("All weights are read.");
  });
  listen("model", reload);
  // What happened between the first answer and the opening of the stream, or while it was lost.
  listen("connection", (event) => { if (event.is_up) reload(); });
}
