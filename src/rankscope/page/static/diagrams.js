// The view "Diagrams": a workspace whose diagram lives on the server. The page sends edits, one at
// a time, and shows the view that comes back; it keeps nothing but what is selected.
import { ask, download } from "./api.js";
import { Canvas } from "./diagram_canvas.js";
import { linkAll } from "./diagram_links.js";
import { costTable, einsumField, inspector, programLines, timelinePanel } from "./diagram_panels.js";
import { byId, h, picture, say } from "./dom.js";

const state = { view: null, choices: null, selected: [], wire: null, step: null };
let canvas;
const waiting = [];
let sending = null;

export async function mount(root) {
  document.head.append(h("link", { rel: "stylesheet", href: "/static/diagrams.css" }));
  root.append(h("h1", { class: "unseen" }, "Diagrams"));
  try {
    const view = await ask("/diagrams");
    state.choices = view.choices;
    root.append(skeleton());
    canvas = new Canvas(byId("diagram-canvas"), { select, edit, run: command, wire: selectWire });
    linkAll(root);
    root.addEventListener("keydown", shortcuts);
    show(view);
  } catch (error) {
    root.append(h("p", { class: "alert", role: "alert" }, error.message));
  }
}

// --- What stands where ----------------------------------------------------------------------------

const TOOLS = [
  ["undo", "Undo", "Ctrl+Z"], ["redo", "Redo", "Ctrl+Y"], ["tensor", "Add tensor", "T"],
  ["leg", "Add leg", "L"], ["connect", "Connect", "C"], ["barrier", "Barrier", "X"],
  ["contract", "Contract", "M"], ["delete", "Delete", "Del"], ["release", "Lay out again", "Shift+L"],
  ["compare", "Compare with now", ""], ["collapse", "Collapse repeats", ""], ["clear", "Clear", ""],
];

function skeleton() {
  const templates = state.choices.templates.map((each) =>
    h("li", {}, h("button", {
      type: "button", class: "quiet template", "data-template": each.name, title: each.summary,
      onclick: () => edit({ do: "template", name: each.name, settings: {} }),
    }, each.title)));
  const tools = TOOLS.map(([name, title, keys]) => h("button", {
    type: "button", id: `tool-${name}`, class: "quiet", title: keys ? `${title} (${keys})` : title,
    onclick: () => command(name),
  }, title));
  const formats = state.choices.formats.map((format) => h("button", {
    type: "button", class: "quiet", id: `export-${format}`, onclick: () => save(format),
  }, format === "python" ? "Python" : format.toUpperCase()));
  return h("div", { class: "workspace" },
    h("aside", { class: "left", "aria-label": "Templates and tensors" },
      h("h2", {}, "Templates"), h("ul", { class: "plain" }, templates),
      h("h2", {}, "Tensors"), h("ul", { class: "plain", id: "diagram-tensors" }),
      h("h2", {}, "Wires"), h("ul", { class: "plain", id: "diagram-wires" })),
    h("div", { class: "middle" },
      h("div", { role: "toolbar", "aria-label": "Edit the diagram", class: "tools" }, tools),
      einsumField((text) => edit({ do: "einsum", text })),
      h("p", { id: "diagram-problem", class: "alert", role: "alert", hidden: true }),
      h("div", { class: "pictures" },
        h("figure", { id: "diagram-compared", hidden: true }),
        h("div", { id: "diagram-canvas", class: "canvas", role: "region", "aria-label": "Picture", tabindex: "0" })),
      h("div", { id: "diagram-timeline" })),
    h("aside", { class: "right", "aria-label": "Details" },
      h("div", { id: "diagram-inspector" }),
      h("div", { id: "diagram-cost" }),
      h("h2", {}, "Equations"), h("div", { id: "diagram-program", class: "code", tabindex: "0", role: "region", "aria-label": "Equations" }),
      h("h2", {}, "Export"), h("div", { class: "tools" }, formats),
      h("h2", {}, "PyTorch"), h("pre", { id: "diagram-code", class: "code", tabindex: "0", role: "region", "aria-label": "PyTorch code" }),
      h("p", { class: "muted" }, "Drag a leg onto another to connect them. Keys: T tensor, L leg, C connect two tensors, X barrier, M contract, Del delete, arrows walk, Shift+arrows move, Ctrl+Z undo.")));
}

// --- Edits: all are sent, in order; only a slider or a text that goes on replaces what waits -------

export function edit(change, continues = false) {
  const last = waiting.at(-1)?.body;
  const isSame = continues || (change.do === "einsum" && last?.edit?.do === "einsum");
  if (last?.edit && isSame) last.edit = change;
  else waiting.push({ path: "/diagrams/edit", body: { edit: change, continues } });
  return send();
}

function change(path, body) {
  waiting.push({ path, body });
  return send();
}

// Resolves when nothing waits any more.
function send() {
  sending ??= sendAll().finally(() => { sending = null; });
  return sending;
}

async function sendAll() {
  while (waiting.length) {
    const { path, body } = waiting.shift();
    await taking(ask(path, body));
  }
}

async function taking(answer) {
  const problem = byId("diagram-problem");
  try {
    const view = await answer;
    if (view.error_at) return showTypo(view.error_at);
    problem.hidden = true;
    show(view);
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
  }
}

function showTypo({ message, position }) {
  const field = byId("diagram-einsum");
  const shown = byId("diagram-typo");
  const text = field.value;
  field.setAttribute("aria-invalid", "true");
  const at = position ?? text.length;
  shown.replaceChildren(
    h("code", {}, text.slice(0, at), h("mark", {}, text.slice(at, at + 1) || " "), text.slice(at + 1)),
    h("span", {}, message.replace(/^Einsum '.*?': /, "")));
  shown.hidden = false;
}

async function command(name) {
  const { selected, view } = state;
  switch (name) {
    case "undo": case "redo": return change(`/diagrams/${name}`, {});
    case "compare": return change("/diagrams/compare", { is_on: !view.compared });
    case "collapse": return change("/diagrams/collapse", { is_on: !view.is_collapsed });
    case "tensor": return edit({ do: "add-tensor", legs: freshLegs(2) });
    case "leg": return selected[0] && edit({ do: "add-leg", tensor: selected[0] });
    case "delete":
      return (selected.length || state.region) && edit({ do: "remove", names: state.region ? [state.region] : selected });
    case "barrier": return edit({ do: "wrap", members: selected, function: "softmax" });
    case "contract": return edit({ do: "contract", names: selected });
    case "connect": return connectSelected();
    case "release": return edit({ do: "release" });
    case "clear": return edit({ do: "clear" });
  }
}

function freshLegs(count) {
  const taken = new Set(state.view.wires.map((wire) => wire.name));
  return [..."ijklmnpqstuvwxyzabcdefgh"].filter((letter) => !taken.has(letter)).slice(0, count);
}

// The last open leg of the first tensor and the first open leg of the second become one wire.
function connectSelected() {
  const [one, other] = state.selected.map((name) => state.view.tensors.find((each) => each.name === name));
  const open = (tensor) => tensor.legs.filter((leg) => state.view.wires.find((wire) => wire.name === leg)?.is_open);
  if (!one || !other) return problem("Select two tensors, then connect them; or select a wire and choose another below.");
  const [first, second] = [open(one).at(-1), open(other)[0]];
  if (!first || !second) return problem("Each of the two tensors needs an open leg; add one with L.");
  return edit({ do: "connect", first, second });
}

function problem(text) {
  const shown = byId("diagram-problem");
  shown.textContent = text;
  shown.hidden = false;
}

async function save(format) {
  await send();
  try {
    say(`Saved ${await download("/diagrams/export", { format })}.`);
    byId("diagram-problem").hidden = true;
  } catch (error) {
    problem(error.message);
  }
}

// --- Showing a view -------------------------------------------------------------------------------

function show(view) {
  state.view = view;
  state.step = null;
  const names = new Set(view.tensors.map((tensor) => tensor.name));
  state.selected = state.selected.filter((name) => names.has(name));
  if (!view.wires.some((wire) => wire.name === state.wire)) state.wire = null;
  if (!view.regions.some((region) => region.name === state.region)) state.region = null;
  canvas.show(view, state);
  byId("tool-undo").disabled = !view.can_undo;
  byId("tool-redo").disabled = !view.can_redo;
  byId("tool-compare").textContent = view.compared ? "Stop comparing" : "Compare with now";
  byId("tool-collapse").textContent = view.is_collapsed ? "Show repeats" : "Collapse repeats";
  if (view.is_collapsed && !view.runs.length && view.tensors.length) say("No four alike tensors follow each other.");
  for (const each of document.querySelectorAll("[data-template]")) {
    each.setAttribute("aria-pressed", String(each.dataset.template === view.template?.name));
  }
  const field = byId("diagram-einsum");
  if (document.activeElement !== field) {
    field.value = view.einsum.text ?? "";
    field.placeholder = view.einsum.reason ? "more than one equation, see the right" : "ij,jk->ik";
  }
  field.removeAttribute("aria-invalid");
  byId("diagram-typo").hidden = true;
  byId("diagram-program").replaceChildren(...programLines(view.program));
  byId("diagram-cost").replaceChildren(...costTable(view));
  showCompared(view.compared);
  showLists(view);
  showDetails();
  timelinePanel(byId("diagram-timeline"), view.timeline, { step: showStep });
  showCode();
  say(`${view.name}: ${view.tensors.length} tensors.`);
}

function showLists(view) {
  byId("diagram-tensors").replaceChildren(...view.tensors.map((tensor) =>
    h("li", {}, h("button", {
      type: "button", class: "quiet row", "data-tensor": tensor.name, "aria-pressed": String(state.selected.includes(tensor.name)),
      onclick: (event) => select(tensor.name, event.shiftKey || event.ctrlKey),
    }, h("span", {}, tensor.name), h("span", { class: "muted" }, tensor.shape)))));
  byId("diagram-wires").replaceChildren(...view.wires.map((wire) =>
    h("li", {}, h("button", {
      type: "button", class: "quiet row", "data-wire": wire.name, "aria-pressed": String(state.wire === wire.name),
      onclick: () => selectWire(wire.name),
    }, h("span", {}, wire.name, wire.is_open ? " (open)" : ""), h("span", { class: "muted" }, wire.size ?? "?")))));
}

function showDetails() {
  inspector(byId("diagram-inspector"), state, edit, (region) => {
    state.region = region;
    state.wire = null;
    state.selected = [];
    showDetails();
  });
}

function showCompared(compared) {
  const figure = byId("diagram-compared");
  figure.hidden = !compared;
  if (!compared) return figure.replaceChildren();
  const svg = picture(compared.svg);
  figure.replaceChildren(h("figcaption", {}, `Before: ${compared.name}`), svg);
}

let code = 0;
async function showCode() {
  const number = ++code;
  const { text, reason } = await ask("/diagrams/code").catch((error) => ({ reason: error.message }));
  if (number !== code) return;
  const arrays = new Map(state.view.tensors.map((tensor) => [tensor.array, tensor.name]));
  const words = (text ?? reason ?? "").split(/(\b\w+\b)/);
  byId("diagram-code").replaceChildren(...words.map((word) =>
    arrays.has(word) ? h("span", { "data-tensor": arrays.get(word) }, word) : word));
}

async function showStep(number) {
  state.step = number;
  if (number === 0) return canvas.show(state.view, state);
  try {
    const answer = await ask("/diagrams/step", { number });
    if (state.step === number) canvas.showStill(answer.svg, answer.caption);
    return answer;
  } catch (error) {
    problem(error.message);
  }
}

// --- Selection and keys ---------------------------------------------------------------------------

function select(name, isMore) {
  if (!isMore) state.selected = state.selected.length === 1 && state.selected[0] === name ? [] : [name];
  else if (state.selected.includes(name)) state.selected = state.selected.filter((each) => each !== name);
  else state.selected = [...state.selected, name];
  state.wire = null;
  state.region = null;
  canvas.mark(state);
  showLists(state.view);
  showDetails();
  say(state.selected.length ? `Selected: ${state.selected.join(", ")}` : "Nothing selected");
}

function selectWire(name) {
  state.wire = state.wire === name ? null : name;
  state.selected = [];
  state.region = null;
  canvas.mark(state);
  showLists(state.view);
  showDetails();
}

function shortcuts(event) {
  const inField = event.target.closest("input, select, textarea");
  const key = event.key.toLowerCase();
  if ((event.ctrlKey || event.metaKey) && !inField) {
    const name = key === "z" && !event.shiftKey ? "undo" : key === "y" || key === "z" ? "redo" : null;
    if (name) {
      event.preventDefault();
      command(name);
    }
    return;
  }
  if (inField || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.shiftKey && key === "l") return command("release");
  const name = { t: "tensor", l: "leg", c: "connect", x: "barrier", m: "contract", delete: "delete", backspace: "delete" }[key];
  if (!name) return;
  event.preventDefault();
  command(name);
}
