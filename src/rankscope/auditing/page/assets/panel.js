// The panel of one matrix: it opens where it was asked for, below a row or below the heat map.

const data = JSON.parse(document.getElementById("data").textContent);
let openPanel = null, opener = null;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function closePanel(giveBackFocus) {
  if (!openPanel) return;
  (openPanel.closest("tr.opened") ?? openPanel).remove();
  if (opener) {
    opener.setAttribute("aria-expanded", "false");
    opener.closest("tr")?.classList.remove("selected");
    if (giveBackFocus) opener.focus();
  }
  openPanel = opener = null;
}

function numbers(tensor, matrix) {
  const shares = Object.keys(matrix.rank_at);  // percent, ascending
  return [
    ["Tensor", `${tensor.shape.map(readable).join(" × ")}, ${tensor.dtype}`],
    ["Matrix", `${matrix.shape.map(readable).join(" × ")}`],
    ["Singular values", readable(matrix.num_values)],
    ["Largest (spectral norm)", readable(matrix.largest)],
    ["Frobenius norm", readable(matrix.frobenius)],
    ["Numeric rank", readable(matrix.numeric_rank)],
    ["Stable rank", readable(matrix.stable_rank)],
    ["Effective rank", readable(matrix.effective_rank)],
    ["Entropy, 0 to 1", readable(matrix.entropy)],
    [`Rank at ${shares.join(", ")} %`, shares.map((share) => readable(matrix.rank_at[share])).join(", ")],
    ["Random edge", readable(matrix.random_edge)],
    ["Outliers above it", readable(matrix.outliers)],
    ["Distance from random, 0 to 1", readable(matrix.random_distance)],
    ...(tensor.same_as ? [["Same content as", tensor.same_as]] : []),
  ];
}

function fillSpectrum(figure, matrix) {
  const svg = drawSpectrum(matrix, data.references);
  figure.replaceChildren(svg ?? element("p", "nothing", "All singular values are zero."));
  if (!svg) return;
  const caption = element("figcaption");
  caption.append(element("span", "key values", "singular values"));
  if (matrix.outliers) caption.append(element("span", "key outlier", "outliers"));
  if (matrix.reference) caption.append(element("span", "key twin", "a random matrix of this shape"));
  const isCut = matrix.singular_values.some((value) => value <= matrix.largest * SMALLEST_SHARE);
  if (isCut) caption.append(element("span", "", `Values below ${SMALLEST_SHARE} of the largest are not drawn.`));
  figure.append(caption);
}

function fillDiagram(figure, tensor) {
  const drawn = document.querySelector(`template[data-diagram="${tensor.diagram}"]`);
  figure.hidden = !drawn && !data.problem;
  figure.replaceChildren();
  if (drawn) {
    figure.append(drawn.content.cloneNode(true));
    const title = figure.querySelector("title").textContent;
    figure.append(element("figcaption", "", `${title} as a tensor diagram: a wire between tensors is a sum over its index.`));
  } else if (data.problem) {
    figure.append(element("p", "nothing", `No diagram: ${data.problem}`));
  }
}

function fillViews(panel, tensor, chosen) {
  const views = panel.querySelector(".views");
  views.hidden = tensor.matrices.length < 2;
  views.replaceChildren(...tensor.matrices.map((matrix, number) => {
    const button = element("button", "view", matrix.name || "the whole");
    button.type = "button";
    button.setAttribute("aria-pressed", String(number === chosen));
    button.addEventListener("click", () => {
      fillPanel(panel, tensor, number);
      panel.querySelector('.views [aria-pressed="true"]').focus();
    });
    return button;
  }));
}

function fillPanel(panel, tensor, number) {
  const matrix = tensor.matrices[number], title = panel.querySelector("h3");
  title.textContent = matrix.name ? `${tensor.name}, ${matrix.name}` : tensor.name;
  panel.setAttribute("aria-label", title.textContent);
  fillViews(panel, tensor, number);
  fillSpectrum(panel.querySelector(".spectrum"), matrix);
  const list = panel.querySelector(".numbers");
  list.replaceChildren();
  for (const [name, value] of numbers(tensor, matrix)) {
    list.append(element("dt", "", name), element("dd", "", value));
  }
  fillDiagram(panel.querySelector(".diagram"), tensor);
}

// `put` places the panel in the page; the button that asked gets the focus back.
function showPanel(button, tensorNumber, matrixNumber, put) {
  const wasOpen = opener === button;
  closePanel(false);
  if (wasOpen) return;
  openPanel = document.getElementById("panel").content.firstElementChild.cloneNode(true);
  fillPanel(openPanel, data.tensors[tensorNumber], matrixNumber);
  openPanel.querySelector(".close").addEventListener("click", () => closePanel(true));
  opener = button;
  opener.setAttribute("aria-expanded", "true");
  put(openPanel);
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && openPanel) closePanel(true);
});
