/** What a call finds out and the whole page shows. */
import type { ReactNode } from "react";
import type { components } from "./schema.d.ts";

type Listener<T> = (value: T) => void;

function channel<T>(): { tell: Listener<T>; listen(listener: Listener<T>): () => void } {
  const listeners = new Set<Listener<T>>();
  return {
    tell: (value) => {
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
const unseen = channel<Unseen>();

/** The session holds no longer: the page asks to sign in, and stays where it is. */
export const sessionEnded = ended.tell;
export const onSessionEnded = ended.listen;

/** A call waits, since there were too many. */
export const waitingUntil = waiting.tell;
export const onWaiting = waiting.listen;

/** Nobody wants the changes any more that wait to be sent. */
export const dropChanges = dropped.tell;
export const onChangesDropped = dropped.listen;

/** How a change ended whose form was closed or left before its answer. */
export interface Unseen {
  /** Of the form. */
  title: string;
  problem?: components["schemas"]["Problem"];
  /** What is shown only once. */
  outcome?: ReactNode;
}
export const doneUnseen = unseen.tell;
export const onDoneUnseen = unseen.listen;
