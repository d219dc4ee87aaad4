// The heat map, the commands to copy, and light and dark.

const heat = document.querySelector("table.heat");
const metric = document.getElementById("metric");
const scheme = document.getElementById("scheme");
const darkWindow = window.matchMedia("(prefers-color-scheme: dark)");

function paintCells() {
  document.querySelector("#heat .on-paper").textContent = metric.selectedOptions[0].textContent;
  for (const cell of heat.querySelectorAll("button")) {
    const share = Number(cell.dataset[metric.value]);
    cell.style.setProperty("--share", share);
    cell.textContent = String(Math.round(100 * share));
    cell.title = `${cell.dataset.name}: ${(100 * share).toFixed(1)} %`;
    cell.setAttribute("aria-label", cell.title);
  }
}

function neighbour(cell, key) {
  const row = cell.closest("tr"), place = cell.closest("td").cellIndex;
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[key];
  const isAcross = key === "ArrowLeft" || key === "ArrowRight";
  const rows = [...row.parentElement.rows];
  for (let number = 1; number < 1000; number += 1) {
    const line = isAcross ? row : rows[rows.indexOf(row) + number * step];
    const beside = line?.cells[isAcross ? place + number * step : place];
    if (!beside) return null;
    const found = beside.querySelector("button");
    if (found) return found;
  }
  return null;
}

function moveInHeat(event) {
  if (!event.key.startsWith("Arrow")) return;
  const next = neighbour(event.target, event.key);
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

if (heat) {
  const place = document.querySelector("#heat .panel-place");
  metric.addEventListener("change", paintCells);
  heat.addEventListener("keydown", moveInHeat);
  heat.addEventListener("click", (event) => {
    const cell = event.target.closest("button");
    if (!cell) return;
    showPanel(cell, Number(cell.dataset.tensor), Number(cell.dataset.matrix), (panel) => {
      place.append(panel);
      panel.scrollIntoView({ block: "nearest" });
    });
  });
  paintCells();
}

// The clipboard may be forbidden; then the command is selected, ready for the keyboard.
async function copyCommand(button) {
  const code = button.parentElement.querySelector("code");
  let said = "Copied";
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    getSelection().selectAllChildren(code);
    said = "Selected";
  }
  button.textContent = said;
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", () => copyCommand(button));
}

function isDark() {
  return document.documentElement.style.colorScheme
    ? document.documentElement.style.colorScheme === "dark" : darkWindow.matches;
}

function nameScheme() {
  scheme.textContent = isDark() ? "Light" : "Dark";
  scheme.setAttribute("aria-label", `Show in ${isDark() ? "light" : "dark"} colours`);
}

scheme.addEventListener("click", () => {
  document.documentElement.style.colorScheme = isDark() ? "light" : "dark";
  nameScheme();
});
darkWindow.addEventListener("change", nameScheme);
nameScheme();
