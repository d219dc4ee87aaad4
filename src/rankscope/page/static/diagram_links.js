// Linked highlighting: whatever stands for a tensor or a wire is marked together, on hover and focus.

const KINDS = ["tensor", "wire"];

export function linkAll(root) {
  for (const [event, isOn] of [["mouseover", true], ["mouseout", false], ["focusin", true], ["focusout", false]]) {
    root.addEventListener(event, (each) => {
      for (const kind of KINDS) {
        const element = each.target.closest?.(`[data-${kind}]`);
        if (element) mark(root, kind, element.getAttribute(`data-${kind}`).split(" "), isOn);
      }
    });
  }
}

function mark(root, kind, names, isOn) {
  for (const element of root.querySelectorAll(`[data-${kind}]`)) {
    if (element.getAttribute(`data-${kind}`).split(" ").some((name) => names.includes(name))) {
      element.classList.toggle("linked", isOn);
    }
  }
}
