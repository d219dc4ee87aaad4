// The view "Model".
import { h } from "./dom.js";

export function mount(root) {
  root.append(h("h1", {}, "Model"), h("p", {}, "Nothing here yet."));
}
