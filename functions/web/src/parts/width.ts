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

/** Whether the screen is too narrow for more than the most important. */
export const useIsNarrow = (): boolean => useSyncExternalStore(listen, () => isNarrow);

/** While it is held, what is shown stays as it is, whatever becomes of the screen. */
export function useHeldWidth(isHeld: boolean): void {
  useEffect(() => {
    if (!isHeld) return undefined;
    holders++;
    return () => {
      holders--;
      follow();
    };
  }, [isHeld]);
}
