// The view "Split".
import { h } from "./dom.js";

export function mount(root) {
  root.append(h("h1", {}, "Split"), h("p", {}, "Nothing here yet."));
}
