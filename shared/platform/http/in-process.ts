import type { Logger } from "../runtime.ts";
import { authorize, type Gate } from "./admission.ts";
import type { Actor, Caller, Endpoint } from "./endpoint.ts";
import { parse } from "./parse-request.ts";
import { confirm, NO_CONFIRMATIONS, withoutUnreadableRows } from "./pipeline.ts";
import type { Reply } from "./reply.ts";

/** The input of a request in its wire form: texts in `params` and `query`, and JSON in `body`. */
export interface RequestInput {
  params: Record<string, string>;
  query: Record<string, string>;
  /** Undefined for a request without a body. */
  body?: unknown;
  /** The header `If-Match`. */
  ifMatch?: string | undefined;
}

/** The caller of an endpoint inside of the process. It was authenticated and counted with the request that causes the call. */
export interface InProcessCaller<Services> {
  actor: Actor;
  caller: Caller;
  /** See `ownOrigin`. */
  origin: string | undefined;
  gate: Gate;
  services: Services;
  log: Logger;
}

/**
 * Calls an endpoint inside of the process, with the same checks of the caller, the same validation and the same handler as over
 * HTTP. `Idempotency-Key` is not supported.
 *
 * @param beforeHandling - Runs after all checks, and before the handler.
 * @throws {Problem} of `authorize`, of the validation, of the confirmations, or of the handler
 */
export async function callInProcess<Services>(
  endpoint: Endpoint<Services>,
  { params: givenParams, query: givenQuery, body: givenBody, ifMatch }: RequestInput,
  { actor, caller, origin, gate, services, log }: InProcessCaller<Services>,
  beforeHandling: () => Promise<void> = async () => {},
): Promise<Reply> {
  await authorize(endpoint as unknown as Endpoint<never>, actor, gate);
  if (endpoint.paced !== undefined) await gate.pace.waitForSlot(endpoint.paced);
  const params = endpoint.params ? parse(endpoint.params, givenParams, "path") : undefined;
  const query = endpoint.query ? parse(endpoint.query, givenQuery, "query") : undefined;
  const body = endpoint.body ? parse(endpoint.body, givenBody ?? {}, "body") : undefined;
  const input = { params, query, body, actor };
  const { guarded } = endpoint;
  const confirmed = guarded
    ? await confirm({ ...endpoint, guarded }, input, caller, { gate, services })
    : NO_CONFIRMATIONS;
  await beforeHandling();
  const handle = () =>
    endpoint.handle({
      ...input,
      confirmed,
      caller,
      ifMatch,
      headers: new Headers(),
      url: new URL(
        `${origin ?? "http://localhost"}${pathOf(endpoint, givenParams)}?${new URLSearchParams(givenQuery)}`,
      ),
      origin,
      services,
      // Only standalone endpoints call it, which authenticate their caller themselves. This caller is authenticated.
      admit: async () => ({ actor, services }),
      log,
    });
  return endpoint.method === "GET" ? await withoutUnreadableRows(handle) : await handle();
}

/** Returns the path of a request to an endpoint. */
export const pathOf = ({ route }: Pick<Endpoint<never>, "route">, params: Record<string, string>): string =>
  `/${route.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(params[name] ?? ""))}`;
