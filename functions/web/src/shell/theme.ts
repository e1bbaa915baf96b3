/** The theme, light or dark: the system's, until the user chooses one. */
import { useSyncExternalStore } from "react";

const KEY = "theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

const isDark = (): boolean => {
  const chosen = localStorage.getItem(KEY);
  return chosen === null ? system.matches : chosen === "dark";
};

function listen(listener: () => void): () => void {
  listeners.add(listener);
  system.addEventListener("change", listener);
  return () => {
    listeners.delete(listener);
    system.removeEventListener("change", listener);
  };
}

export const useIsDark = (): boolean => useSyncExternalStore(listen, isDark);

export function chooseTheme(theme: "light" | "dark"): void {
  localStorage.setItem(KEY, theme);
  for (const listener of listeners) listener();
}
