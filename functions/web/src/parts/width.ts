import { useEffect, useSyncExternalStore } from "react";

const narrow = matchMedia("(max-width: 767px)");
const listeners = new Set<() => void>();
let isNarrow = narrow.matches;
let holders = 0;

function follow(): void {
  if (holders > 0) return;
  isNarrow = narrow.matches;
  for (const listener of listeners) listener();
}
narrow.addEventListener("change", follow);

function listen(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Returns whether the screen is narrower than 768 pixels. */
export const useIsNarrow = (): boolean => useSyncExternalStore(listen, () => isNarrow);

/** Freezes the result of `useIsNarrow` while `isHeld` is true, so that an open dialog keeps the layout it belongs to. */
export function useFrozenWidth(isHeld: boolean): void {
  useEffect(() => {
    if (!isHeld) return undefined;
    holders++;
    return () => {
      holders--;
      follow();
    };
  }, [isHeld]);
}
