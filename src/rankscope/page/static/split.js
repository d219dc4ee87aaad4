// The view of splits: mark positions, see the cut and the bounds, measure the rank exactly.
import { ask, download, listenToJob } from "./api.js";
import { debounce, h, still, say } from "./dom.js";
import { figureButtons } from "./heat.js";

const PRESETS = {
  interleaved: (count) => [...Array(count).keys()].filter((place) => place % 2 === 0),
  "left and right": (count) => [...Array(Math.ceil(count / 2)).keys()],
};

export async function mount(root) {
  const known = await ask("/split/subjects");
  const state = { name: known.first, settings: {}, positions: [], left: new Set(), hasRank: false, job: null };
  const name = h("select", { id: "subject", "aria-label": "Network or diagram" },
    h("optgroup", { label: "Networks with exact ranks" }, known.networks.map((each) => h("option", { value: each.name }, each.name))),
    h("optgroup", { label: "Diagrams" }, known.diagrams.map((each) => h("option", { value: each }, each))),
    h("option", { value: "einsum" }, "an einsum …"));
  const equation = h("input", { type: "text", "aria-label": "Einsum", value: "ab,bc,cd->ad", hidden: true, spellcheck: "false" });
  const options = h("div", { class: "split-options" });
  const marks = h("div", { class: "marks", role: "group", "aria-label": "Positions; pressed ones are on the left" });
  const figure = h("figure", { class: "diagram split-figure" });
  const facts = h("div", { "aria-live": "polite" });
  const result = h("div", { role: "status" });
  const trouble = h("p", { class: "alert", role: "alert", hidden: true });
  const measure = h("button", { type: "button", class: "primary", disabled: true, onclick: startMeasuring }, "Measure the exact rank");
  name.value = state.name;
  const exports = figureButtons("Figure of this split", (ending) => download("/split/figure", { ...body(), ending }));
  root.replaceChildren(
    h("div", { class: "title-line" }, h("h1", {}, "Split"), h("p", { class: "muted" }, "How many products of a function of the marked inputs and a function of the others does a network need? At most as many as the cheapest cut between them lets through.")),
    h("div", { class: "layout" },
      h("div", { class: "main-column" },
        h("section", { class: "card", "aria-label": "Positions" },
          h("div", { class: "card-head" }, name, equation,
            Object.entries(PRESETS).map(([title, make]) => h("button", { type: "button", onclick: () => { state.left = new Set(make(state.positions.length)); paint(); update(); } }, title))),
          marks, h("p", { class: "muted small" }, "Click, or arrow keys and space, to put a position on the left (filled) or the right."), trouble),
        h("section", { class: "card", "aria-label": "Picture" }, figure, exports)),
      h("aside", { class: "side-column", "aria-label": "Bounds and rank" },
        h("div", { class: "card" }, h("h2", {}, "Bounds"), facts, h("h2", {}, "Rank"), measure, result),
        h("div", { class: "card" }, h("h2", {}, "Sizes"), options))));

  const body = () => ({ name: state.name, settings: state.settings, left: [...state.left].sort((a, b) => a - b) });

  async function attempt(action) {
    try {
      const value = await action();
      trouble.hidden = true;
      return value;
    } catch (error) {
      trouble.hidden = false;
      trouble.textContent = error.message;
      return null;
    }
  }

  async function choose(isNew) {
    state.name = name.value === "einsum" ? equation.value.trim() : name.value;
    equation.hidden = name.value !== "einsum";
    if (isNew) state.settings = {};
    const found = await attempt(() => ask("/split/subject", { name: state.name, settings: state.settings }));
    if (!found) return;
    state.positions = found.positions;
    state.left = new Set(found.left);
    state.hasRank = found.has_exact_rank;
    measure.disabled = !state.hasRank;
    measure.title = state.hasRank ? "" : "Only the networks above have exact ranks.";
    result.replaceChildren();
    if (isNew) fillOptions(found);
    paint();
    update();
  }

  function fillOptions(found) {
    const network = known.networks.find((each) => each.name === state.name);
    state.settings = { ...found.settings };
    const fields = network ? network.options : Object.keys(state.settings).map((word) => ({ word, description: "size" }));
    options.replaceChildren(...fields.map(({ word, description }) => h("label", { title: description }, h("span", {}, word),
      h("input", {
        type: "text", value: state.settings[word] ?? "", placeholder: "–", "aria-label": `${word}: ${description}`, spellcheck: "false",
        onchange: (event) => {
          if (event.target.value.trim()) state.settings[word] = event.target.value.trim();
          else delete state.settings[word];
          choose(false);
        },
      }))));
    if (!fields.length) options.replaceChildren(h("p", { class: "muted" }, "Its sizes are those of the family."));
  }

  function paint() {
    marks.replaceChildren(...state.positions.map((label, place) => h("button", {
      type: "button", class: "mark", "aria-pressed": String(state.left.has(place)), "aria-label": `${label}, ${state.left.has(place) ? "left" : "right"}`,
      tabindex: place === 0 ? 0 : -1, "data-place": place,
    }, label)));
  }

  function toggle(place) {
    if (state.left.has(place)) state.left.delete(place);
    else state.left.add(place);
    const button = marks.children[place];
    button.setAttribute("aria-pressed", String(state.left.has(place)));
    button.setAttribute("aria-label", `${state.positions[place]}, ${state.left.has(place) ? "left" : "right"}`);
    update();
  }
  marks.addEventListener("click", (event) => {
    const button = event.target.closest("button.mark");
    if (button) toggle(Number(button.dataset.place));
  });
  marks.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const button = event.target.closest("button.mark");
    if (!step || !button) return;
    event.preventDefault();
    const next = marks.children[Number(button.dataset.place) + step];
    if (!next) return;
    button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });

  let asked = 0;
  const update = debounce(60, async () => {
    asked += 1;
    const mine = asked;
    const found = await attempt(() => ask("/split", body()));
    if (!found || mine !== asked) return;
    figure.replaceChildren(still(found.svg));
    const rows = [];
    if (found.cut) rows.push(h("p", { class: "cut-value" }, h("strong", { class: "big" }, found.cut.value.toLocaleString("en")), ` minimal cut, through ${found.cut.indices.join(", ") || "nothing"}`));
    if (found.best_upper) rows.push(h("p", {}, h("strong", {}, found.best_upper), h("br", {}), "best proved upper bound"));
    if (found.best_lower) rows.push(h("p", {}, h("strong", {}, found.best_lower), h("br", {}), "best proved lower bound, for almost all weights"));
    if (found.bounds.length) rows.push(h("details", {}, h("summary", {}, "Every theorem that applies"), h("ul", {}, found.bounds.map(([statement, theorem]) => h("li", {}, statement, h("br", {}), h("span", { class: "muted small" }, theorem))))));
    if (!rows.length) rows.push(h("p", { class: "muted" }, "No theorem covers these sizes."));
    facts.replaceChildren(...rows);
  });

  async function startMeasuring() {
    const started = await attempt(() => ask("/split/measure", { ...body(), seed: 0 }));
    if (!started) return;
    state.job = started.job.number;
    result.replaceChildren(h("p", { class: "muted" }, "Measuring …"));
  }

  listenToJob("measuring", async (job, isNewest) => {
    if (job.state === "running") {
      const { what, done, total } = job.progress;
      result.replaceChildren(h("p", { class: "muted" }, `${what || "starting"} ${total ? `${done} of ${total}` : ""}`),
        h("button", { type: "button", onclick: () => ask("/jobs/cancel", { number: job.number }) }, "Cancel"));
    } else if (job.state === "failed") result.replaceChildren(h("p", { class: "alert" }, job.error));
    else if (job.state === "cancelled") result.replaceChildren(h("p", { class: "muted" }, "Cancelled."));
    else if (job.state === "done") {
      const found = await ask("/split/measured", { number: job.number });
      if (!isNewest()) return;
      say(found.text);
      result.replaceChildren(h("p", {}, h("strong", { class: "big" }, found.rank.toLocaleString("en")), ` for {${found.left.join(", ")}}${found.is_exact ? ", exactly" : " at least"}`), h("p", { class: "muted small" }, found.text),
        h("button", { type: "button", onclick: () => attempt(() => download("/split/certificate", { number: job.number })) }, "Download the certificate"),
        h("p", { class: "muted small" }, "rankscope verify certificate.json"));
    }
  });

  name.addEventListener("change", () => choose(true));
  equation.addEventListener("change", () => choose(true));
  await choose(true);
}
