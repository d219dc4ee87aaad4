// The page: tabs, theme, running work. Each view is a module with `mount(root)`, loaded when shown.
import { ask, listen } from "./api.js";
import { byId, h } from "./dom.js";
import { keepTheme } from "./theme.js";

const VIEWS = {
  model: () => import("./model.js"),
  diagrams: () => import("./diagrams.js"),
  split: () => import("./split.js"),
};
const mounted = new Set();

async function show(name) {
  for (const each of Object.keys(VIEWS)) {
    const tab = byId(`tab-${each}`);
    tab.setAttribute("aria-selected", String(each === name));
    tab.tabIndex = each === name ? 0 : -1;
    byId(`view-${each}`).hidden = each !== name;
  }
  history.replaceState(null, "", `#${name}`);
  if (mounted.has(name)) return;
  mounted.add(name);
  const root = byId(`view-${name}`);
  try {
    (await VIEWS[name]()).mount(root);
  } catch (error) {
    root.replaceChildren(h("p", { class: "alert", role: "alert" }, `This view did not load: ${error.message}`));
  }
}

function moveBetweenTabs(event) {
  const names = Object.keys(VIEWS);
  const now = names.findIndex((name) => byId(`tab-${name}`) === document.activeElement);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (now < 0 || !step) return;
  event.preventDefault();
  const next = names[(now + step + names.length) % names.length];
  byId(`tab-${next}`).focus();
  show(next);
}

const running = new Map();

function showJob(job) {
  const over = ["done", "failed", "cancelled"].includes(job.state);
  if (over) running.delete(job.number);
  else running.set(job.number, job);
  byId("jobs").replaceChildren(...[...running.values()].map((each) => {
    const { what, done, total } = each.progress;
    const part = total ? `${what} ${done.toLocaleString("en")} of ${total.toLocaleString("en")}` : "starting";
    return h("span", { class: "job" },
      h("span", {}, `${each.kind}: ${part}`),
      h("progress", { max: total || 1, ...(total ? { value: done } : {}), "aria-label": each.kind }),
      h("button", {
        type: "button", class: "quiet", "aria-label": `Cancel ${each.kind}`,
        onclick: () => ask("/jobs/cancel", { number: each.number }),
      }, "×"));
  }));
}

async function start() {
  keepTheme();
  for (const name of Object.keys(VIEWS)) byId(`tab-${name}`).addEventListener("click", () => show(name));
  document.querySelector(".tabs").addEventListener("keydown", moveBetweenTabs);
  const wanted = location.hash.slice(1);
  show(wanted in VIEWS ? wanted : "model");
  listen("job", (event) => showJob(event.job));
  const lost = byId("lost");
  listen("connection", (event) => {
    lost.hidden = event.is_up;
    lost.textContent = event.is_up ? "" : "The server has gone. Start rankscope open again; what was saved is in the output folder.";
  });
}

start();
