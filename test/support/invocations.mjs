import { AsyncLocalStorage } from "node:async_hooks";
import { channel, subscribe } from "node:diagnostics_channel";

/**
 * Preload (`node --import`) of a functions host: each HTTP request that an invocation sends, by Node's client or by undici, says in a header whose it is: the
 * test's call where the invocation answers one (its own header of this name), else the function's name. What a process does at
 * the same time, such as its timers, can so be told from what a test counts.
 *
 * Plain JavaScript, so that it loads on every Node without type stripping.
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
