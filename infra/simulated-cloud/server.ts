// Dispatches requests to the simulated services, applies faults and records requests.

import { randomUUID } from "node:crypto";
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import type { Authorization } from "./authorization.ts";
import type { Faults } from "./faults.ts";
import { type Answer, type Incoming, type Operation, readRequest, type Service, send } from "./http.ts";
import type { RequestLog } from "./request-log.ts";

export interface Listening {
  authorization: Authorization;
  faults: Faults;
  ledger: RequestLog;
  /** `https://evil.localhost:port` */
  foreignHost(): string;
  /** Finds the service of a request by host. Undefined if no service has the host. */
  serviceFor(request: Incoming): Service | undefined;
}

/** Handles a request: finds its operation, applies faults, sends the response and records it in the ledger. */
export function listener(parts: Listening): RequestListener {
  return (message, response) => {
    serve(parts, message, response).catch((error: unknown) => {
      // A client that disconnects before the response is not an error.
      if (message.destroyed && !response.writable) return;
      const detail = error instanceof Error ? error.message : String(error);
      if (response.headersSent) response.destroy();
      else send(response, { status: 500, body: { error: { code: "StandInFailure", message: detail } } });
    });
  };
}

async function serve(parts: Listening, message: IncomingMessage, response: ServerResponse): Promise<void> {
  const request = await readRequest(message);
  const operation = parts.serviceFor(request)?.(request) ?? nothing(request);
  const refused = parts.authorization.refuses(request, operation);
  const permitted = refused ? { ...operation, answer: operation.refusals.denied } : operation;
  const { answer, fault } = await parts.faults.apply(request, permitted, parts.foreignHost());
  parts.ledger.add({
    at: new Date().toISOString(),
    operation: operation.name,
    method: request.method,
    host: request.host,
    path: request.target,
    ...(operation.vault !== undefined && { vault: operation.vault }),
    ...(operation.subscription !== undefined && { subscription: operation.subscription }),
    ...(operation.resource !== undefined && { resource: operation.resource }),
    token: request.headers.authorization !== undefined,
    ...(request.headers["user-agent"] !== undefined && { userAgent: request.headers["user-agent"] }),
    status: answer?.status ?? 0,
    ...(fault !== undefined && { fault }),
  });
  if (answer === undefined) message.socket.destroy();
  else send(response, { ...answer, headers: { "x-ms-request-id": randomUUID(), ...answer.headers } });
}

function nothing(request: Incoming): Operation {
  const answer = (): Answer => ({
    status: 404,
    body: { error: { code: "NotFound", message: `Unknown path: ${request.method} ${request.path}.` } },
  });
  const refusals = {
    throttled: answer,
    denied: answer,
    firewalled: answer,
    failed: (status: number) => ({ ...answer(), status }),
  };
  return { name: request.host === "evil.localhost" ? "evil.request" : "unknown", refusals, answer };
}
