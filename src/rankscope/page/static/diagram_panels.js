// Panels of the workspace: fields for what is selected, costs, equations, the contraction timeline.
import { debounce, h } from "./dom.js";

const number = (value) => value.toLocaleString("en");

export function short(value) {
  for (const [scale, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= scale) return `${(value / scale).toPrecision(3)} ${unit}`;
  }
  return String(value);
}

export function einsumField(send) {
  const later = debounce(200, (text) => text.trim() && send(text));
  return h("div", { class: "einsum" },
    h("label", { for: "diagram-einsum" }, "einsum"),
    h("input", {
      type: "text", id: "diagram-einsum", spellcheck: "false", autocomplete: "off",
      "aria-describedby": "diagram-typo", placeholder: "ij,jk->ik", oninput: (event) => later(event.target.value),
    }),
    h("p", { id: "diagram-typo", class: "typo", role: "alert", hidden: true }));
}

export function programLines(lines) {
  return lines.map((pieces) => h("p", {}, pieces.map(([text, kind, name]) =>
    kind ? h("span", { [`data-${kind}`]: name }, text) : text)));
}

export function costTable(view) {
  const { cost, compared } = view;
  if (!cost) return [];
  if (cost.reason) return [h("p", { class: "muted" }, cost.reason)];
  const rows = [["parameters", "parameters"], ["operations", "operations"], ["largest_intermediate", "largest product"], ["peak_memory", "peak memory"]];
  const other = compared?.cost && !compared.cost.reason ? compared.cost : null;
  const table = h("table", { class: "costs" },
    h("caption", { class: "unseen" }, "Costs"),
    other && h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "now"), h("th", { scope: "col" }, "before"), h("th", { scope: "col" }, "ratio"))),
    h("tbody", {}, rows.map(([key, word]) => h("tr", {},
      h("th", { scope: "row" }, word), h("td", { title: number(cost[key]) }, short(cost[key])),
      other && h("td", { title: number(other[key]) }, short(other[key])),
      other && h("td", {}, other[key] ? (cost[key] / other[key]).toPrecision(3) : "")))));
  const parts = [table];
  if (compared) {
    const words = [];
    if (compared.only_after.length) words.push(`New: ${compared.only_after.join(", ")}.`);
    if (compared.only_before.length) words.push(`Gone: ${compared.only_before.join(", ")}.`);
    for (const each of compared.changed) words.push(`${each.name}: ${each.before} is now ${each.after}.`);
    parts.push(h("p", { class: "muted" }, words.join(" ") || "The same tensors."));
  }
  return [h("h2", {}, "Cost"), ...parts];
}

// --- The inspector: rebuilt when something else is selected, else only its values change -----------

export function inspector(root, state, edit, chooseRegion) {
  const fields = new Fields(edit);
  const { view } = state;
  if (state.wire) wireFields(fields, view, view.wires.find((wire) => wire.name === state.wire));
  else if (state.region) regionFields(fields, state, view.regions.find((region) => region.name === state.region));
  else if (state.selected.length === 1) tensorFields(fields, state, view.tensors.find((tensor) => tensor.name === state.selected[0]));
  else if (state.selected.length > 1) fields.title(`${state.selected.length} tensors`).note(`${state.selected.join(", ")}. Barrier wraps them, Contract merges them, Connect joins the first two.`);
  else documentFields(fields, view);
  for (const region of view.regions) {
    if (region.name !== state.region) fields.button(`Barrier ${region.name}: ${region.function}`, () => chooseRegion(region.name));
  }
  const active = document.activeElement;
  if (root.dataset.signature === fields.signature && root.contains(active)) {
    for (const element of root.querySelectorAll("[data-key]")) {
      if (element !== active && element.type !== "checkbox") element.value = fields.values.get(element.dataset.key);
    }
    return;
  }
  const key = root.contains(active) ? active.dataset?.key ?? active.textContent : null;
  root.dataset.signature = fields.signature;
  root.replaceChildren(...fields.parts);
  if (key) [...root.querySelectorAll("[data-key], button")].find((each) => (each.dataset.key ?? each.textContent) === key)?.focus();
}

class Fields {
  constructor(edit) {
    this.edit = edit;
    this.parts = [];
    this.values = new Map();
    this.signature = "";
  }

  title(text) { this.parts.push(h("h2", {}, text)); this.signature += `|${text}`; return this; }

  note(text) { this.parts.push(h("p", { class: "muted" }, text)); this.signature += `|${text}`; return this; }

  labelled(key, label, control) {
    const id = `field-${key.replace(/[^\w-]/g, "_")}`;
    control.id = id;
    control.dataset.key = key;
    this.values.set(key, control.value);
    this.signature += `|${key}`;
    this.parts.push(h("div", { class: "field" }, h("label", { for: id }, label), control));
    return this;
  }

  text(key, label, value, change) {
    return this.labelled(key, label, h("input", { type: "text", value: value ?? "", onchange: (event) => change(event.target.value.trim()) }));
  }

  choice(key, label, value, options, change) {
    const select = h("select", { onchange: (event) => change(event.target.value) }, options.map((option) => h("option", { value: option }, option)));
    select.value = value;
    return this.labelled(key, label, select);
  }

  // A number with a slider beside it; while the slider moves, one step of undo holds all of it.
  size(key, label, value, change) {
    const top = Math.max(8, 2 ** Math.ceil(Math.log2(Math.max(1, value ?? 1)) + 1));
    let isMoving = false;
    const slide = h("input", {
      type: "range", min: "1", max: String(top), value: value ?? 1,
      oninput: (event) => { change(Number(event.target.value), isMoving); isMoving = true; },
      onchange: () => { isMoving = false; },
    });
    this.labelled(key, label, h("input", { type: "number", min: "1", value: value ?? "", onchange: (event) => event.target.value && change(Number(event.target.value), false) }));
    slide.dataset.key = `${key}-slider`;
    slide.setAttribute("aria-label", `${label}, slider`);
    this.values.set(slide.dataset.key, String(value ?? 1));
    this.parts.at(-1).append(slide);
    return this;
  }

  button(text, action) {
    this.parts.push(h("button", { type: "button", onclick: action }, text));
    this.signature += `|${text}`;
    return this;
  }

  check(key, label, isOn, change) {
    const id = `field-${key}`;
    this.parts.push(h("div", { class: "field" }, h("label", { for: id }, label),
      h("input", { type: "checkbox", id, "data-key": key, checked: isOn, onchange: (event) => change(event.target.checked) })));
    this.signature += `|${key}${isOn}`;
    return this;
  }
}

function documentFields(fields, view) {
  if (view.template) {
    fields.title(view.template.title);
    for (const setting of view.template.settings) {
      const label = `${setting.name} (${setting.description})`;
      const isNumber = /^\d+$/.test(setting.value);
      if (isNumber) fields.size(setting.name, label, Number(setting.value), (size, continues) => size > 0 && fields.edit({ do: "size", name: setting.name, size }, continues));
      else if (setting.value) {
        fields.text(setting.name, label, setting.value, (value) => fields.edit({
          do: "template", name: view.template.name,
          settings: { ...Object.fromEntries(view.template.settings.filter((each) => each.value).map((each) => [each.name, each.value])), [setting.name]: value },
        }));
      }
    }
    return;
  }
  if (!view.tensors.length) return;
  fields.title("Sizes");
  const symbols = new Map();
  for (const wire of view.wires) if (!symbols.has(wire.symbol)) symbols.set(wire.symbol, wire.size);
  for (const [symbol, size] of symbols) fields.size(`size-${symbol}`, symbol, size, (value, continues) => fields.edit({ do: "size", name: symbol, size: value }, continues));
}

function tensorFields(fields, state, tensor) {
  const { edit } = fields;
  fields.title(`Tensor ${tensor.name}`).note(`${tensor.shape}; legs ${tensor.legs.join(", ") || "none"}`);
  fields.text("tensor-name", "name", tensor.name, (to) => {
    state.selected = [to];
    edit({ do: "rename", name: tensor.name, to });
  });
  fields.choice("tensor-role", "role", tensor.role, state.choices.roles, (role) => edit({ do: "role", tensor: tensor.name, role }));
  for (const leg of tensor.legs) {
    const wire = state.view.wires.find((each) => each.name === leg);
    if (wire.ends.length > 1) fields.button(`Take off ${leg}`, () => edit({ do: "detach", tensor: tensor.name, wire: leg }));
  }
  if (tensor.legs.length > 1) {
    let rank = 8;
    fields.choice("factor-form", "write it as", "svd", state.choices.forms, () => {});
    fields.size("factor-rank", "with rank", rank, (value) => { rank = value; });
    fields.button("Factor", (event) => {
      const form = event.target.parentElement.querySelector("[data-key=factor-form]").value;
      edit({ do: "factor", tensor: tensor.name, form, rank });
    });
  }
}

function wireFields(fields, view, wire) {
  const { edit } = fields;
  fields.title(`Wire ${wire.name}`).note(`${wire.meaning} ${wire.ends.join(", ")}`);
  fields.size("wire-size", "size", wire.size, (size, continues) => edit({ do: "size", name: wire.symbol, size }, continues));
  fields.text("wire-name", "name", wire.name, (to) => edit({ do: "rename", name: wire.name, to }));
  fields.choice("wire-kind", "kind", wire.kind, ["generic", "feature", "sequence", "head", "rank", "batch", "space"], (kind) => edit({ do: "kind", wire: wire.name, kind }));
  fields.check("wire-open", "open: stays in the result", wire.is_open, (isOpen) => edit({ do: "open", wire: wire.name, is_open: isOpen }));
  const others = view.wires.filter((each) => each.name !== wire.name).map((each) => each.name);
  if (others.length) fields.choice("wire-connect", "connect with", "", ["", ...others], (second) => second && edit({ do: "connect", first: wire.name, second }));
}

function regionFields(fields, state, region) {
  const { edit } = fields;
  const send = (change) => edit({
    do: "barrier", region: region.name, function: region.function,
    over: region.normalizes ? region.over : [], scale: region.scale, ...change,
  });
  fields.title(`Barrier ${region.name}`).note(`Around ${region.members.join(", ")}`);
  fields.choice("barrier-function", "function", region.function, state.choices.functions.map((each) => each.name), (name) => send({ function: name, over: [] }));
  if (region.normalizes) fields.choice("barrier-over", "over", region.over[0], region.legs, (leg) => send({ over: [leg] }));
  fields.text("barrier-scale", "scale", region.scale, (scale) => send({ scale: scale || null }));
  fields.button("Remove the barrier", () => edit({ do: "remove", names: [region.name] }));
}

// --- The timeline ---------------------------------------------------------------------------------

let playing = 0;

export function timelinePanel(root, timeline, actions) {
  clearInterval(playing);
  if (!timeline) return root.replaceChildren();
  if (timeline.reason) return root.replaceChildren(h("p", { class: "muted" }, timeline.reason));
  const { steps, best, written, hand } = timeline;
  const most = Math.max(1, ...steps.map((step) => step.operations));
  const slide = h("input", { type: "range", id: "diagram-step", min: "0", max: "0", value: "0", "aria-label": "Step of the contraction" });
  const go = async (step) => {
    slide.value = step;
    const answer = await actions.step(Number(step));
    if (answer) slide.max = answer.last;
  };
  slide.max = String(steps.length + new Set(steps.map((step) => step.region).filter(Boolean)).size);
  slide.addEventListener("input", () => go(slide.value));
  const play = h("button", { type: "button", onclick: () => {
    clearInterval(playing);
    if (play.textContent === "Stop") { play.textContent = "Play"; return; }
    play.textContent = "Stop";
    go(0);
    playing = setInterval(() => {
      if (Number(slide.value) >= Number(slide.max)) { clearInterval(playing); play.textContent = "Play"; } else go(Number(slide.value) + 1);
    }, 1100);
  } }, "Play");
  const rows = steps.map((step, place) => h("tr", { "data-tensor": step.tensors.join(" ") },
    h("td", {}, place + 1), h("td", {}, step.operands.join(" · ")), h("td", {}, h("code", {}, step.equation)),
    h("td", { class: "number", title: number(step.operations) }, short(step.operations)),
    h("td", {}, h("meter", { min: "0", max: String(most), value: String(step.operations), "aria-label": `operations of step ${place + 1}` }))));
  const ratio = written / Math.max(1, best);
  const order = `Best order: ${short(best)} operations. As written, from left to right: ${short(written)}${ratio > 1.005 ? `, ${ratio.toPrecision(3)} times as many` : ", the same"}.`;
  const own = hand && `By hand: ${short(hand.spent)} so far and ${short(hand.rest)} at best for the rest, against ${short(hand.best)} for the best order from the start.`;
  root.replaceChildren(
    h("h2", {}, "Contraction order"),
    h("p", { class: "muted" }, order, " ", own),
    h("div", { class: "tools" }, play, slide),
    h("table", { class: "steps" }, h("caption", { class: "unseen" }, "Steps of the best order"),
      h("thead", {}, h("tr", {}, ["", "tensors", "equation", "operations", "share"].map((word) => h("th", { scope: "col" }, word || h("span", { class: "unseen" }, "step"))))),
      h("tbody", {}, rows)));
}
