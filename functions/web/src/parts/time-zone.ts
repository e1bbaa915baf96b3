/** The time zone of displayed times: the browser's until the user selects UTC, which is stored in local storage. */
import { useSyncExternalStore } from "react";

const STORAGE_KEY = "timeZone";
const listeners = new Set<() => void>();

/** The browser's time zone, such as "Europe/Berlin". */
export const LOCAL_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

const current = (): string => (localStorage.getItem(STORAGE_KEY) === "UTC" ? "UTC" : LOCAL_ZONE);

function listen(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Returns the selected time zone. The component renders again when it changes. */
export const useTimeZone = (): string => useSyncExternalStore(listen, current);

/** Stores the selected time zone, and applies it. */
export function chooseTimeZone(zone: string): void {
  if (zone === "UTC") localStorage.setItem(STORAGE_KEY, zone);
  else localStorage.removeItem(STORAGE_KEY);
  for (const listener of listeners) listener();
}
