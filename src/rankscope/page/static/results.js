// What `certify` found, in the page that it wrote.
import { h } from "./dom.js";

export function certificationSection(found) {
  const percent = (share) => `${(100 * share).toFixed(2)} %`;
  return h("section", { class: "card", "aria-labelledby": "certified-title" },
    h("h2", { id: "certified-title" }, "Certified accuracy"),
    h("table", { class: "totals" }, h("thead", {}, h("tr", {}, ["radius", "certified", "after the attack"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, found.radii.map((row) => {
        const bar = h("td", { class: "share number" }, percent(row.certified));
        bar.style.setProperty("--share", row.certified.toFixed(3));
        return h("tr", {}, h("th", { scope: "row" }, String(Number(row.radius.toPrecision(4)))), bar, h("td", { class: "number" }, percent(row.attacked)));
      }))),
    h("p", { class: "muted" }, `${percent(found.clean)} of ${found.samples.toLocaleString("en")} samples are right without a perturbation. ${found.norm}, ${found.method}, run in ${found.arithmetic ?? "its own floats"}. The true robust accuracy is between certified and attacked.`));
}
