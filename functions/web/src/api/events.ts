/**
 * Events between API calls, forms and the frame of the page. For each event, one function sends it and one subscribes to it.
 */
import type { ReactNode } from "react";
import type { components } from "./schema.d.ts";

type Listener<T> = (value: T) => void;

/** Creates an event. `listen` returns a function that ends the subscription. */
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

const sessionEnd = channel<void>();
const rateLimitWait = channel<Date>();
const droppedChanges = channel<void>();
const finishedChanges = channel<FinishedChange>();

/** The session expired. The page asks the user to sign in and keeps the current view. */
export const sessionEnded = sessionEnd.send;
export const onSessionEnded = sessionEnd.listen;

/** A request that needs a step-up. `finish` says whether the user confirmed, so that the request is sent again. */
export interface StepUpRequest {
  problem: components["schemas"]["Problem"] & { methods?: unknown; signInUrl?: string };
  finish(isConfirmed: boolean): void;
}
const stepUps = channel<StepUpRequest>();
export const stepUpRequired = stepUps.send;
export const onStepUpRequired = stepUps.listen;

/** A rate-limited call waits until the given time. */
export const waitingUntil = rateLimitWait.send;
export const onWaiting = rateLimitWait.listen;

/** A form was closed. Changes that wait to be sent are dropped. */
export const dropChanges = droppedChanges.send;
export const onChangesDropped = droppedChanges.listen;

/** The result of a change whose form was closed before the response arrived. */
export interface FinishedChange {
  /** The title of the form. */
  title: string;
  problem?: components["schemas"]["Problem"];
  /** Content that is shown only once, such as a new token. */
  outcome?: ReactNode;
}
export const changeFinished = finishedChanges.send;
export const onChangeFinished = finishedChanges.listen;
