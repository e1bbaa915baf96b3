import { useEffect, useSyncExternalStore } from "react";

const narrowScreen = matchMedia("(max-width: 767px)");
const listeners = new Set<() => void>();
/** The result of `useIsNarrow`. While frozen, it can differ from the screen. */
let isNarrow = narrowScreen.matches;
/** Number of open dialogs. Each open dialog freezes the width. */
let freezes = 0;

function updateWidth(): void {
  if (freezes > 0) return;
  isNarrow = narrowScreen.matches;
  for (const listener of listeners) listener();
}
narrowScreen.addEventListener("change", updateWidth);

function listen(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Returns whether the screen is narrower than 768 pixels. */
export const useIsNarrow = (): boolean => useSyncExternalStore(listen, () => isNarrow);

/**
 * Freezes the result of `useIsNarrow` while `isFrozen` is true, so that the view behind an open dialog keeps its layout. A
 * changed layout would remove the dialog.
 */
export function useFrozenWidth(isFrozen: boolean): void {
  useEffect(() => {
    if (!isFrozen) return undefined;
    freezes++;
    return () => {
      freezes--;
      updateWidth();
    };
  }, [isFrozen]);
}
