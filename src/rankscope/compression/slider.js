// The keep slider of a notebook: it sends the budget, and shows the plan that Python solved for it.

function element(tag, text, style) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  Object.assign(made.style, style ?? {});
  return made;
}

function render({ model, el }) {
  const slide = element("input", undefined, { width: "22em", verticalAlign: "middle" });
  slide.type = "range";
  slide.min = model.get("smallest");
  slide.max = 1;
  slide.step = 0.005;
  slide.value = model.get("keep");
  slide.setAttribute("aria-label", "Share of the parameters to keep");
  const share = element("output", undefined, { marginLeft: "1em", fontVariantNumeric: "tabular-nums" });
  const summary = element("p");
  const table = element("table", undefined, { borderCollapse: "collapse" });
  const label = element("label", "keep ");
  label.append(slide);
  el.append(label, share, summary, table);

  let timer = 0;
  slide.addEventListener("input", () => {
    share.textContent = `${(100 * slide.value).toFixed(1)} %`;
    clearTimeout(timer);
    timer = setTimeout(() => {
      model.set("keep", Number(slide.value));
      model.save_changes();
    }, 40);
  });

  function show() {
    share.textContent = `${(100 * model.get("keep")).toFixed(1)} %`;
    summary.textContent = model.get("summary");
    const head = element("tr");
    for (const word of ["weight", "format", "ranks", "kept", "error"]) {
      const cell = element("th", word, { textAlign: "left", paddingRight: "1em" });
      cell.scope = "col";
      head.append(cell);
    }
    const rows = model.get("rows").map((row) => {
      const line = element("tr");
      for (const text of [row.name, row.format, row.ranks]) line.append(element("td", text, { paddingRight: "1em" }));
      const kept = element("td", undefined, { paddingRight: "1em" });
      const bar = element("meter");
      bar.max = 1;
      bar.value = row.share;
      bar.setAttribute("aria-label", `share of ${row.name} that is kept`);
      kept.append(bar);
      line.append(kept, element("td", row.error, { fontVariantNumeric: "tabular-nums" }));
      return line;
    });
    table.replaceChildren(head, ...rows);
  }

  model.on("change:rows", show);
  model.on("change:summary", show);
  show();
}

export default { render };
