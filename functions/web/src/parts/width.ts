import { useSyncExternalStore } from "react";

const narrow = matchMedia("(max-width: 767px)");

function listen(listener: () => void): () => void {
  narrow.addEventListener("change", listener);
  return () => narrow.removeEventListener("change", listener);
}

/** Whether the screen is too narrow for more than the most important. */
export const useIsNarrow = (): boolean => useSyncExternalStore(listen, () => narrow.matches);
