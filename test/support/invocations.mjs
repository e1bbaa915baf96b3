import { AsyncLocalStorage } from "node:async_hooks";
import { channel, subscribe } from "node:diagnostics_channel";

/**
 * Preload (`node --import`) of a functions host. Each HTTP request of an invocation, by Node's client or by undici, gets a
 * header that names its cause: the test's call if the invocation answers one (its own header of this name), otherwise the
 * function. Tests can then exclude requests of timers and other concurrent work.
 *
 * Plain JavaScript, so that the file loads on every Node without type stripping.
 */
const HEADER = "x-test-by";

const by = new AsyncLocalStorage();
channel("local-host.invocation").bindStore(
  by,
  ({ functionId, inputData }) => inputData[0]?.data?.http?.nullableHeaders?.[HEADER]?.value ?? functionId,
);
const whose = () => by.getStore();
subscribe("http.client.request.created", ({ request }) => whose() !== undefined && request.setHeader(HEADER, whose()));
subscribe("undici:request:create", ({ request }) => whose() !== undefined && request.addHeader(HEADER, whose()));
