// The picture: tensors can be selected, walked along with arrows, dragged and nudged; wires clicked.
import { h, picture, s } from "./dom.js";

const UNIT = 96; // pixels of a unit of the layout's grid
const NUDGE = 0.125;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Canvas {
  constructor(root, actions) {
    this.root = root;
    this.actions = actions;
    root.addEventListener("keydown", (event) => this.key(event));
    root.addEventListener("pointerdown", (event) => this.grab(event));
  }

  show(view, state) {
    const focused = document.activeElement?.closest?.("svg [data-tensor]")?.getAttribute("data-tensor");
    if (!view.tensors.length) {
      this.root.replaceChildren(h("p", { class: "nothing" },
        "Nothing is drawn yet. Choose a template, type an einsum such as ij,jk->ik, or press T for a tensor."));
      return;
    }
    this.svg = picture(view.svg);
    this.svg.setAttribute("role", "group");
    const tensors = new Map(view.tensors.map((tensor) => [tensor.name, tensor]));
    const wires = new Set(view.wires.map((wire) => wire.name));
    for (const element of this.svg.querySelectorAll("[data-name]")) {
      const name = element.getAttribute("data-name");
      const isTensor = element.classList.contains("tensor") && tensors.has(name);
      if (isTensor) {
        element.setAttribute("tabindex", "0");
        element.setAttribute("role", "button");
        element.addEventListener("click", (event) => {
          if (!this.wasDragged) this.actions.select(name, event.shiftKey || event.ctrlKey);
        });
      }
      if (element.classList.contains("wire") && wires.has(name)) this.thick(element, name);
      if (!isTensor) element.setAttribute("aria-hidden", "true");
      if (element.classList.contains("label")) element.setAttribute("pointer-events", "none");
      if (tensors.has(name) && !element.classList.contains("wire")) element.setAttribute("data-tensor", name);
      else if (wires.has(name)) element.setAttribute("data-wire", name);
    }
    for (const element of this.svg.querySelectorAll("[aria-label]:not([data-name])")) element.setAttribute("aria-hidden", "true");
    this.root.replaceChildren(this.svg);
    this.mark(state);
    if (focused) this.tensor(focused)?.focus();
  }

  // A wire is thin; what is clicked is a wide, invisible stroke on it.
  thick(element, name) {
    const wide = element.cloneNode();
    for (const attribute of ["class", "aria-label", "data-name", "stroke-dasharray"]) wide.removeAttribute(attribute);
    wide.setAttribute("class", "grip");
    wide.setAttribute("data-wire", name);
    wide.setAttribute("aria-hidden", "true");
    wide.addEventListener("click", () => { if (!this.wasDragged) this.actions.wire(name); });
    element.after(wide);
  }

  showStill(svg, caption) {
    const still = picture(svg);
    this.root.replaceChildren(still, h("p", { class: "caption" }, caption));
  }

  mark(state) {
    if (!this.svg) return;
    for (const element of this.svg.querySelectorAll(".tensor[data-tensor]")) {
      const isOn = state.selected.includes(element.getAttribute("data-tensor"));
      element.classList.toggle("selected", isOn);
      element.setAttribute("aria-pressed", String(isOn));
    }
    for (const element of this.svg.querySelectorAll(".wire[data-wire]")) {
      element.classList.toggle("selected", element.getAttribute("data-wire") === state.wire);
    }
  }

  tensor(name) {
    return [...this.svg.querySelectorAll(".tensor[data-tensor]")].find((each) => each.getAttribute("data-tensor") === name);
  }

  centre(element) {
    const box = element.getBBox();
    return [box.x + box.width / 2, box.y + box.height / 2];
  }

  // Where every tensor stands, so that moving one leaves the others where they are.
  positions() {
    const all = {};
    for (const element of this.svg.querySelectorAll(".tensor[data-tensor]")) {
      const [x, y] = this.centre(element);
      all[element.getAttribute("data-tensor")] = [x / UNIT, y / UNIT];
    }
    return all;
  }

  key(event) {
    const here = event.target.closest(".tensor[data-tensor]");
    if (!here) return;
    const name = here.getAttribute("data-tensor");
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.actions.select(name, event.shiftKey);
      return;
    }
    const direction = ARROWS[event.key];
    if (!direction) return;
    event.preventDefault();
    if (event.shiftKey) {
      const all = this.positions();
      all[name] = [all[name][0] + NUDGE * direction[0], all[name][1] + NUDGE * direction[1]];
      this.actions.edit({ do: "pin", positions: all });
    } else this.walk(here, direction);
  }

  walk(here, [dx, dy]) {
    const [x, y] = this.centre(here);
    let best = null;
    for (const element of this.svg.querySelectorAll(".tensor[data-tensor]")) {
      const [u, v] = this.centre(element);
      const along = (u - x) * dx + (v - y) * dy;
      const aside = Math.abs((u - x) * dy) + Math.abs((v - y) * dx);
      const cost = along + 2 * aside;
      if (element !== here && along > 1 && (!best || cost < best.cost)) best = { element, cost };
    }
    best?.element.focus();
  }

  // A wire that is dropped on another becomes one with it; on a bond, a hyperedge.
  pull(event, grip) {
    const name = grip.getAttribute("data-wire");
    const at = (each) => new DOMPoint(each.clientX, each.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    const start = at(event);
    const thread = s("path", { class: "pulled", "aria-hidden": "true" });
    const target = (each) => {
      const found = document.elementFromPoint(each.clientX, each.clientY)?.closest?.(".grip[data-wire]")?.getAttribute("data-wire");
      return found === name ? null : found ?? null;
    };
    const move = (each) => {
      const end = at(each);
      if (!this.wasDragged && Math.hypot(end.x - start.x, end.y - start.y) < 6) return;
      this.wasDragged = true;
      if (!thread.isConnected) this.svg.append(thread);
      thread.setAttribute("d", `M${start.x} ${start.y}L${end.x} ${end.y}`);
      const onto = target(each);
      for (const wire of this.svg.querySelectorAll(".wire[data-wire]")) wire.classList.toggle("target", wire.getAttribute("data-wire") === onto);
    };
    const drop = (each) => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", drop);
      thread.remove();
      for (const wire of this.svg.querySelectorAll(".wire.target")) wire.classList.remove("target");
      const onto = this.wasDragged ? target(each) : null;
      if (onto) this.actions.edit({ do: "connect", first: name, second: onto });
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", drop);
  }

  grab(event) {
    const element = event.target.closest(".tensor[data-tensor]");
    this.wasDragged = false;
    const grip = event.target.closest(".grip[data-wire]");
    if (grip && event.button === 0) {
      event.preventDefault();  // or the drag would select text
      this.root.focus({ preventScroll: true });
      this.pull(event, grip);
      return;
    }
    if (!element || event.button !== 0) return;
    const start = [event.clientX, event.clientY];
    const scale = this.svg.getScreenCTM().a;
    const move = (each) => {
      const [dx, dy] = [(each.clientX - start[0]) / scale, (each.clientY - start[1]) / scale];
      if (Math.hypot(dx, dy) < 5 && !this.wasDragged) return;
      this.wasDragged = true;
      element.setAttribute("transform", `translate(${dx} ${dy})`);
      this.moved = [dx / UNIT, dy / UNIT];
    };
    const drop = () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", drop);
      if (!this.wasDragged) return;
      element.removeAttribute("transform");
      const all = this.positions();
      const name = element.getAttribute("data-tensor");
      all[name] = [all[name][0] + this.moved[0], all[name][1] + this.moved[1]];
      this.actions.edit({ do: "pin", positions: all });
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", drop);
  }
}
