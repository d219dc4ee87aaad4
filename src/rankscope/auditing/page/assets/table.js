// The table of layers: sorting, filtering, opening.

const table = document.querySelector("table.layers");
const filter = document.getElementById("filter");

function key(row, column) {
  const cell = row.cells[column];
  if (!cell || cell.colSpan > 1) return null;
  const written = cell.dataset.value ?? (cell.classList.contains("number") ? null : cell.textContent);
  return cell.classList.contains("number") && written !== null ? Number(written) : written;
}

function compare(first, second) {
  if (typeof first === "number") return first - second;
  return first.localeCompare(second, "en", { numeric: true });
}

function sortBy(column, isDescending) {
  const body = table.tBodies[0], rows = [...body.rows];
  const keyed = rows.map((row) => [key(row, column), row]);
  // Rows without a number stay at the end, whichever way it is sorted.
  keyed.sort(([first], [second]) => {
    if (first === null || second === null) return (first === null) - (second === null);
    return isDescending ? compare(second, first) : compare(first, second);
  });
  body.append(...keyed.map(([, row]) => row));
}

function sortOnClick(event) {
  const button = event.target.closest("button[data-column]");
  if (!button) return;
  closePanel(false);
  const heading = button.closest("th");
  const isDescending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) {
    if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
  }
  heading.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
  sortBy(Number(button.dataset.column), isDescending);
}

function applyFilter() {
  closePanel(false);
  const wanted = filter.value.trim().toLowerCase().split(/\s+/);
  const rows = [...table.tBodies[0].rows];
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !wanted.every((word) => text.includes(word));
    shown += !row.hidden;
  }
  document.getElementById("count").textContent =
    shown === rows.length ? `${rows.length} rows` : `${shown} of ${rows.length} rows`;
}

function openRow(row) {
  const button = row.querySelector("button.open");
  showPanel(button, Number(row.dataset.tensor), Number(row.dataset.matrix), (panel) => {
    const below = element("tr", "opened"), cell = element("td");
    cell.colSpan = table.tHead.rows[0].cells.length;
    cell.append(panel);
    below.append(cell);
    row.after(below);
    row.classList.add("selected");
  });
}

if (table) {
  table.tHead.addEventListener("click", sortOnClick);
  table.tBodies[0].addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-matrix]");
    // A click that ends a selection of text is no wish to open.
    if (row && (event.target.closest("button") || !String(getSelection()))) openRow(row);
  });
  filter.addEventListener("input", applyFilter);
  applyFilter();
}
