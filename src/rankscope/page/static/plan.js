// One slider: how much of the model to keep. The plan is solved again as it moves, on the server.
import { ask, embedded, listen, listenToJob } from "./api.js";
import { debounce, h, oneAtATime, say } from "./dom.js";
import { number } from "./table.js";

const UNITS = { parameters: "parameters", bytes: "bytes", flops: "operations" };
const REST = 350;  // milliseconds after which the slider is at rest, and the exact plan is asked for

// A tensor's row in a plan; files and modules may differ in what stands before a name.
function finder(rows) {
  const byName = new Map(rows.map((row) => [row.name, row]));
  return (tensor) => {
    const base = tensor.replace(/\.weight$/, "");
    if (byName.has(base)) return byName.get(base);
    const parts = base.split(".");
    for (let start = 1; start < parts.length; start += 1) {
      const found = byName.get(parts.slice(start).join("."));
      if (found) return found;
    }
    return rows.find((row) => row.name.endsWith(`.${base}`)) ?? null;
  };
}

export function siteOf(view, tensor) {
  const known = view.model.candidates;
  view.findSite ??= known && finder(known.sites.map((name) => ({ name })));
  return known?.tensors[tensor] ?? view.findSite?.(tensor)?.name ?? null;
}

export function planPanel(root, view) {
  view.siteOf = (tensor) => siteOf(view, tensor);
  if (embedded) return writtenPlan(root, view, embedded.plan);
  const state = { keep: 0.8, by: "parameters", also: null, forbidden: new Set(), number: 0 };
  const body = h("div", {});
  root.replaceChildren(h("div", { class: "card" }, h("h2", {}, "Keep"), body));
  const start = (candidates, problem) => {
    view.model.candidates = candidates ?? view.model.candidates;
    // Candidates that are scored otherwise are other candidates: pins of the old ones mean nothing.
    const isNew = candidates && view.shownScoring !== `${candidates.scoring} ${candidates.source}`;
    if (isNew && view.shownScoring) view.pins.clear();
    if (candidates) view.shownScoring = `${candidates.scoring} ${candidates.source}`;
    if (view.model.candidates && (isNew || !view.requestPlan)) controls(body, view, state);
    else if (!view.model.candidates) waiting(body, problem);
  };
  view.takeCandidates = start;
  start(view.model.candidates, view.model.problems?.candidates);
  listen("candidates", (event) => start(event.candidates, event.problem));
  return null;
}

function waiting(body, problem) {
  if (problem) {
    body.replaceChildren(h("p", { class: "muted" }, `No plan: ${problem}`),
      h("button", { type: "button", onclick: () => ask("/candidates/retry", {}) }, "Try again"));
  } else {
    body.replaceChildren(h("p", { class: "muted" }, "The candidates of every weight are being computed, once; then this slider moves the whole model."),
      h("input", { type: "range", disabled: true, "aria-label": "Share of the model to keep" }));
  }
}

function controls(body, view, state) {
  const known = view.model.candidates;
  const lowest = Math.ceil(100 * known.smallest_keep + 0.5);
  const slider = h("input", { type: "range", id: "keep", min: Math.min(lowest, 99), max: 100, step: 0.5, value: 100 * state.keep, "aria-label": "Share of the model to keep" });
  const shown = h("output", { for: "keep", class: "big" });
  const units = Object.entries(UNITS).filter(([unit]) => unit !== "flops" || known.has_flops);
  const unit = h("select", { "aria-label": "What is counted" }, units.map(([value, name]) => h("option", { value }, `of the ${name}`)));
  const totals = h("table", { class: "totals" });
  const how = h("p", { class: "muted small", role: "status" });
  const pins = h("ul", { class: "pins" });
  const losses = h("div", { class: "losses" });
  const trouble = h("p", { class: "alert", role: "alert", hidden: true });
  const second = secondBudget(state, units, () => request());
  const formats = h("fieldset", {}, h("legend", {}, "Formats"),
    known.formats.map((name) => h("label", {}, h("input", {
      type: "checkbox", checked: true,
      onchange: (event) => {
        if (event.target.checked) state.forbidden.delete(name);
        else state.forbidden.add(name);
        request();
      },
    }), ` ${name}`)));

  const exactly = debounce(REST, prove);
  const quickly = oneAtATime(() => solve("quick", () => true), exactly);

  view.requestBody = () => ({
    keep: state.keep, by: state.by, also: state.also,
    pinned: Object.fromEntries([...view.pins].map(([name, pin]) => [name, pin.place])), forbidden: [...state.forbidden],
  });

  async function solve(method, isWanted) {
    const begun = performance.now();
    try {
      const plan = await ask("/plan", { ...view.requestBody(), method });
      if (!isWanted()) return;
      trouble.hidden = true;
      show(plan, performance.now() - begun);
    } catch (error) {
      if (!isWanted()) return;
      trouble.hidden = false;
      trouble.textContent = error.message;
    }
  }

  function request() {
    state.number += 1;
    quickly();
  }

  // The proof, unless the slider moves before it is there; one at a time.
  let isProving = false;
  async function prove() {
    if (isProving) return exactly();
    isProving = true;
    const mine = state.number;
    await solve("exact", () => mine === state.number);
    isProving = false;
  }
  view.requestPlan = request;

  function show(plan, milliseconds) {
    const rows = plan.rows.map(([name, format, ranks, parameters, error, place]) => ({ name, format, ranks, parameters, error, place }));
    const byName = new Map(rows.map((row) => [row.name, row]));
    view.plan = { ...plan, rows, of: (tensor) => byName.get(siteOf(view, tensor)) ?? null };
    totals.replaceChildren(...totalRows(plan, view));
    how.textContent = `${howGood(plan)} ${milliseconds.toFixed(0)} ms`;
    view.heat.allowPlan();
    view.layerPlan?.();
    if (plan.method === "exact") say(`Plan for ${(100 * state.keep).toFixed(1)} percent: error ${number(plan.error)}`);
  }

  view.refreshPins = () => {
    pins.replaceChildren(...[...view.pins].map(([name, pin]) => h("li", {}, h("code", {}, name), ` ${pin.text} `,
      h("button", { type: "button", class: "quiet", "aria-label": `Unpin ${name}`, onclick: () => { view.pins.delete(name); view.refreshPins(); request(); } }, "×"))));
    view.layerPlan?.();
  };
  const moved = () => {
    state.keep = Number(slider.value) / 100;
    shown.textContent = `${Number(slider.value).toFixed(1)} %`;
    request();
  };
  slider.addEventListener("input", moved);
  unit.addEventListener("change", () => { state.by = unit.value; request(); });
  body.replaceChildren(
    h("div", { class: "keep-line" }, shown, unit), slider, trouble, totals, how,
    h("details", {}, h("summary", {}, "Second budget, formats"), second, formats), losses, pins, savePart(view));
  lossPart(view, losses);
  view.refreshPins();
  moved();
}

function howGood(plan) {
  if (plan.is_proved) return "Exact: no other choice from these candidates has a smaller error.";
  const above = plan.gap === null ? "not proved" : `at most ${(100 * plan.gap / (plan.score || 1)).toPrecision(2)} % above the best`;
  return plan.method === "exact" ? `The best that was found, ${above}.` : `While it moves: the best gain for its price, ${above}.`;
}

function secondBudget(state, units, changed) {
  const unit = h("select", { "aria-label": "Unit of the second budget" }, h("option", { value: "" }, "no second budget"),
    units.map(([value, name]) => h("option", { value }, `and of the ${name}`)));
  const share = h("input", { type: "number", min: 1, max: 100, step: 1, value: 80, "aria-label": "Second budget in percent", disabled: true });
  const update = () => {
    share.disabled = !unit.value;
    state.also = unit.value ? { by: unit.value, keep: Math.min(100, Math.max(1, Number(share.value) || 1)) / 100 } : null;
    changed();
  };
  unit.addEventListener("change", update);
  share.addEventListener("change", update);
  return h("p", { class: "second" }, unit, " ", share, " %");
}

function sized(count, unit) {
  if (unit !== "bytes") return number(count);
  const [scale, name] = count >= 1e9 ? [1e9, "GB"] : count >= 1e6 ? [1e6, "MB"] : [1e3, "kB"];
  return `${(count / scale).toFixed(count >= 100 * scale ? 0 : 1)} ${name}`;
}

function totalRows(plan, view) {
  const rows = Object.entries(UNITS).filter(([unit]) => plan.dense[unit] > 0).map(([unit, name]) =>
    [name, sized(plan.kept[unit], unit), `of ${sized(plan.dense[unit], unit)}`, plan.kept[unit] / plan.dense[unit]]);
  const cache = keyValueCache(plan, view);
  if (cache) rows.push(cache);
  return [
    h("caption", { class: "unseen" }, "What the plan keeps"),
    h("tbody", {}, rows.map(([name, kept, dense, share]) => {
      const bar = h("td", { class: "share number" }, `${(100 * share).toFixed(1)} %`);
      bar.style.setProperty("--share", share.toFixed(3));
      return h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, kept, h("br", {}), h("span", { class: "muted small" }, dense)), bar);
    }), predicted(plan, view)),
  ];
}

// The loss where it was measured, the error of the weights where not.
function predicted(plan, view) {
  const { scoring, source, loss } = view.model.candidates;
  const row = (name, note, value) => h("tr", {}, h("th", { scope: "row" }, name, h("br", {}), h("span", { class: "muted small" }, note)),
    h("td", { class: "number" }, value), h("td", {}));
  if (scoring !== "loss") return row("predicted error", "relative, mean over weights", number(plan.error));
  if (loss === null) return row("predicted divergence", `in nats, on ${source}`, number(plan.score));
  return row("predicted loss", `in nats per token, on ${source}; ${number(loss)} as it is`, `${(loss + plan.score).toPrecision(4)}`);
}

// Losses are measured on a text of the opened folder, or on the data set of the network.
async function lossPart(view, root) {
  const { sources } = await ask("/losses").catch(() => ({ sources: [] }));
  if (!sources.length) {
    root.replaceChildren(h("p", { class: "muted small" }, "To see a predicted loss, put a text (.txt) into the folder of the model and open it again."));
    return;
  }
  const known = view.model.candidates.source;
  const choice = h("select", { "aria-label": "What losses are measured on" }, sources.map((name) => h("option", { value: name, selected: name === known }, name)));
  const state = h("span", { class: "muted small", role: "status" }, known ? `Measured on ${known}.` : "The error of the weights says little about the loss.");
  const button = h("button", {
    type: "button", onclick: async () => {
      try {
        await ask("/losses/measure", { source: choice.value });
      } catch (error) {
        state.textContent = error.message;
      }
    },
  }, known ? "Measure again" : "Measure losses");
  listenToJob("measuring losses", (job) => {
    const { what, done, total } = job.progress;
    button.disabled = ["waiting", "running"].includes(job.state);
    if (job.state === "running") state.textContent = `${what || "starting"} ${total > 1 ? `${done} of ${total}` : ""}; this can be cancelled above, and goes on where it was.`;
    else if (job.state === "failed") state.textContent = job.error;
    else if (job.state === "cancelled") state.textContent = "Cancelled; what was measured is kept.";
  });
  root.replaceChildren(h("div", { class: "save-line" }, choice, button), state);
}

// Keys and values pass through the ranks of their weights: a cache of those numbers would do.
function keyValueCache(plan, view) {
  const cache = view.model.cache;
  if (!cache || !plan.rows) return null;
  const bytes = 4;
  let kept = 0;
  let found = 0;
  for (const [name, format, ranks] of plan.rows) {
    if (!/(^|[._])(k_proj|v_proj|key|value|k|v)$/.test(name)) continue;
    found += 1;
    kept += format === "svd" ? Math.min(ranks[0], cache.width) : cache.width;
  }
  if (found !== 2 * cache.depth) return null;
  const all = cache.numbers_per_token * cache.tokens * bytes;
  return [`key-value cache of ${cache.tokens.toLocaleString("en")} tokens, at the ranks of keys and values`, sized(kept * cache.tokens * bytes, "bytes"), `of ${sized(all, "bytes")}`, kept / cache.numbers_per_token];
}

// --- Saving ---------------------------------------------------------------------------------------

function savePart(view) {
  const name = h("input", { type: "text", id: "save-name", value: "smaller-model", "aria-label": "Name of the folder", spellcheck: "false" });
  const state = h("div", { role: "status" });
  const button = h("button", {
    type: "button", class: "primary", onclick: async () => {
      try {
        await ask("/save", { ...view.requestBody(), name: name.value });
        state.replaceChildren(h("p", { class: "muted" }, "Saving …"));
      } catch (error) {
        state.replaceChildren(h("p", { class: "alert" }, error.message));
      }
    },
  }, "Save this model");
  listenToJob("saving", (job, isNewest) => {
    const { what, done, total } = job.progress;
    if (job.state === "running") {
      state.replaceChildren(h("p", { class: "muted" }, `${what || "starting"} ${total > 1 ? `${done} of ${total}` : ""}`),
        h("progress", { max: Math.max(total, 1), value: done, "aria-label": "Saving" }),
        h("button", { type: "button", onclick: () => ask("/jobs/cancel", { number: job.number }) }, "Cancel"));
    } else if (job.state === "cancelled") state.replaceChildren(h("p", { class: "muted" }, "Cancelled; nothing was written."));
    else if (job.state === "failed") state.replaceChildren(h("p", { class: "alert" }, job.error));
    else if (job.state === "done") showSaved(state, job, isNewest);
  });
  return h("div", { class: "save" }, h("h3", {}, "Take it away"), h("div", { class: "save-line" }, name, button),
    h("p", { class: "muted small" }, `Written into ${view.model.output}`), state);
}

async function showSaved(state, job, isNewest) {
  const { result } = await ask("/save/result", { number: job.number });
  if (!isNewest()) return;
  state.replaceChildren(h("p", {}, `Saved as ${result.folder}: ${number(result.kept.parameters)} parameters, ${sized(result.kept.bytes, "bytes")}.`),
    h("pre", { class: "code", tabindex: "0" }, result.loader));
}

// --- A plan that `compress` carried out, in the page that it wrote --------------------------------

function writtenPlan(root, view, plan) {
  const rows = plan.layers.map((row) => ({ ...row, parameters: row.kept }));
  view.plan = { rows, of: finder(rows) };
  view.heat.allowPlan();
  const totals = Object.entries({ ...UNITS }).filter(([unit]) => plan.dense[unit] > 0).map(([unit, name]) => {
    const share = plan.kept[unit] / plan.dense[unit];
    const bar = h("td", { class: "share number" }, `${(100 * share).toFixed(1)} %`);
    bar.style.setProperty("--share", share.toFixed(3));
    return h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, sized(plan.kept[unit], unit), h("br", {}), h("span", { class: "muted small" }, `of ${sized(plan.dense[unit], unit)}`)), bar);
  });
  const chosen = rows.filter((row) => row.format);
  root.replaceChildren(h("div", { class: "card" }, h("h2", {}, "The plan"), h("table", { class: "totals" }, h("tbody", {}, totals)),
    h("p", { class: "muted small" }, `${chosen.length} of ${rows.length} modules were written smaller. ${plan.notes.join(" ")}`),
    h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Choices of the plan" }, h("table", { class: "tensors" },
      h("thead", {}, h("tr", {}, ["Module", "Format", "Ranks", "Error"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, chosen.map((row) => h("tr", {}, h("td", {}, row.name), h("td", {}, row.format), h("td", { class: "number" }, row.ranks.join(", ")), h("td", { class: "number" }, number(row.error)))))))));
}

