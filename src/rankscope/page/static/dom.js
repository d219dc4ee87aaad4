// Elements from plain calls; text is always text, never markup.

export const byId = (id) => document.getElementById(id);

// h("button", { class: "quiet", onclick: save }, "Save"): properties that begin with "on" are
// listeners, null and false leave an attribute out, true gives an empty one.
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) setAttribute(element, name, value);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// The same in the namespace of SVG.
export function s(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes ?? {})) setAttribute(element, name, value);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function setAttribute(element, name, value) {
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (value === true) element.setAttribute(name, "");
  else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
}

// An SVG that this package drew, as an element; a style sheet cannot be inside, nor a script.
export function picture(text) {
  const named = text.includes("xmlns=") ? text : text.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"');
  const parsed = new DOMParser().parseFromString(named, "image/svg+xml").documentElement;
  for (const each of parsed.querySelectorAll("script, foreignObject")) each.remove();
  return document.importNode(parsed, true);
}

// The same for a picture that is only looked at: its title and description say it all.
export function still(text) {
  const svg = picture(text);
  for (const each of svg.querySelectorAll("[aria-label]:not([role])")) each.removeAttribute("aria-label");
  return svg;
}

// Tell a screen reader what changed.
export function say(text) {
  byId("say").textContent = text;
}

export function debounce(wait, callback) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => callback(...values), wait);
  };
}

// Work that waits for an answer: while it is under way only the newest call waits, and when none does
// it is at rest.
export function oneAtATime(work, atRest = () => {}) {
  let isBusy = false;
  let isWanted = false;
  return async () => {
    isWanted = true;
    if (isBusy) return;
    isBusy = true;
    try {
      while (isWanted) {
        isWanted = false;
        await work();
      }
    } finally {
      isBusy = false;
    }
    atRest();
  };
}
