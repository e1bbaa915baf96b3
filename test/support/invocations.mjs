import { AsyncLocalStorage } from "node:async_hooks";
import { channel, subscribe } from "node:diagnostics_channel";

/**
 * A module that the functions hosts of tests load at their start (`node --import`). It adds a header to each HTTP request that
 * a function sends, for example to storage. The header names the cause of the request: the test's call that the function
 * answers, which the call has in the same header, otherwise the function. Tests can then count the requests of one call,
 * without those of timers and other concurrent work.
 *
 * Plain JavaScript, so that the file loads on every Node without type stripping.
 */
const HEADER = "x-test-by";

/** The cause of the requests of the current invocation. */
const causes = new AsyncLocalStorage();
channel("local-host.invocation").bindStore(
  causes,
  // `inputData` is the request in the form in which the platform's host sends it to the worker.
  ({ functionId, inputData }) => inputData[0]?.data?.http?.nullableHeaders?.[HEADER]?.value ?? functionId,
);
const currentCause = () => causes.getStore();
// Node's own HTTP client and undici, the two clients that the app's libraries use.
subscribe(
  "http.client.request.created",
  ({ request }) => currentCause() !== undefined && request.setHeader(HEADER, currentCause()),
);
subscribe(
  "undici:request:create",
  ({ request }) => currentCause() !== undefined && request.addHeader(HEADER, currentCause()),
);
