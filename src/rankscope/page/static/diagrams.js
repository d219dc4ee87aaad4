// The view "Diagrams".
import { h } from "./dom.js";

export function mount(root) {
  root.append(h("h1", {}, "Diagrams"), h("p", {}, "Nothing here yet."));
}
