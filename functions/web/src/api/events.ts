/** Events that an API call raises and the page as a whole handles. */
import type { ReactNode } from "react";
import type { components } from "./schema.d.ts";

type Listener<T> = (value: T) => void;

function channel<T>(): { send: Listener<T>; listen(listener: Listener<T>): () => void } {
  const listeners = new Set<Listener<T>>();
  return {
    send: (value) => {
      for (const listener of listeners) listener(value);
    },
    listen: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

const ended = channel<void>();
const waiting = channel<Date>();
const dropped = channel<void>();
const finished = channel<FinishedChange>();

/** The session expired. The page asks the user to sign in and keeps the current view. */
export const sessionEnded = ended.send;
export const onSessionEnded = ended.listen;

/** A rate-limited call waits until the given time. */
export const waitingUntil = waiting.send;
export const onWaiting = waiting.listen;

/** The form was closed: changes that wait to be sent are dropped. */
export const dropChanges = dropped.send;
export const onChangesDropped = dropped.listen;

/** The result of a change whose form was closed before the response arrived. */
export interface FinishedChange {
  /** The title of the form. */
  title: string;
  problem?: components["schemas"]["Problem"];
  /** Content that is shown only once, such as a new token. */
  outcome?: ReactNode;
}
export const changeFinished = finished.send;
export const onChangeFinished = finished.listen;
