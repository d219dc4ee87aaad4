// Light and dark follow the window until one is chosen.
import { byId } from "./dom.js";

const KEY = "rankscope-theme";

function kept() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;  // a page from a folder may have no storage
  }
}

function keep(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch { /* as above */ }
}

export function keepTheme() {
  const root = document.documentElement;
  const apply = (theme) => {
    root.classList.toggle("light", theme === "light");
    root.classList.toggle("dark", theme === "dark");
  };
  apply(kept());
  byId("theme").addEventListener("click", () => {
    const isDark = root.classList.contains("dark") ||
      (!root.classList.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
    keep(isDark ? "light" : "dark");
    apply(isDark ? "light" : "dark");
  });
}
