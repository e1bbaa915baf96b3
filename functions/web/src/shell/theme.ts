/** The theme, light or dark. It is the operating system's until the user selects one, which is stored in local storage. */
import { useSyncExternalStore } from "react";

const STORAGE_KEY = "theme";
const system = matchMedia("(prefers-color-scheme: dark)");
/** Components that render again after `chooseTheme`. Local storage sends no event to the tab that changes it. */
const listeners = new Set<() => void>();

const isDark = (): boolean => {
  const selected = localStorage.getItem(STORAGE_KEY);
  return selected === null ? system.matches : selected === "dark";
};

function listen(listener: () => void): () => void {
  listeners.add(listener);
  system.addEventListener("change", listener);
  return () => {
    listeners.delete(listener);
    system.removeEventListener("change", listener);
  };
}

/** Returns whether the theme is dark. The component renders again when the theme changes. */
export const useIsDark = (): boolean => useSyncExternalStore(listen, isDark);

/** Stores the theme that the user selected, and applies it. */
export function chooseTheme(theme: "light" | "dark"): void {
  localStorage.setItem(STORAGE_KEY, theme);
  for (const listener of listeners) listener();
}
