// The HTTP request listener of the simulated cloud: finds the service of a request, applies role assignments and faults, and
// records the request.

import { randomUUID } from "node:crypto";
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import type { Authorization } from "./authorization.ts";
import type { Faults } from "./faults.ts";
import { type IncomingRequest, type Operation, readRequest, type Service, type ServiceResponse, send } from "./http.ts";
import type { RequestLog } from "./request-log.ts";

/** Dependencies of the listener. */
export interface ListenerOptions {
  authorization: Authorization;
  faults: Faults;
  requestLog: RequestLog;
  /** Origin of a host that no client should contact: `https://evil.localhost:port`. */
  foreignHost(): string;
  /** Finds the service of a request by host. Undefined if no service has the host. */
  serviceFor(request: IncomingRequest): Service | undefined;
}

/** Creates the listener of one port. */
export function listener(options: ListenerOptions): RequestListener {
  return (message, response) => {
    serve(options, message, response).catch((error: unknown) => {
      // A client that disconnects before the response is not an error.
      if (message.destroyed && !response.writable) return;
      const detail = error instanceof Error ? error.message : String(error);
      if (response.headersSent) response.destroy();
      else send(response, { status: 500, body: { error: { code: "StandInFailure", message: detail } } });
    });
  };
}

async function serve(options: ListenerOptions, message: IncomingMessage, response: ServerResponse): Promise<void> {
  const request = await readRequest(message);
  const operation = options.serviceFor(request)?.(request) ?? unknownOperation(request);
  const isDenied = options.authorization.denies(request, operation);
  const checkedOperation = isDenied ? { ...operation, answer: operation.errorResponses.denied } : operation;
  const { answer, fault } = await options.faults.apply(request, checkedOperation, options.foreignHost());
  options.requestLog.add({
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

/** Returns the operation of a request that no service knows. It responds with 404. */
function unknownOperation(request: IncomingRequest): Operation {
  const answer = (): ServiceResponse => ({
    status: 404,
    body: { error: { code: "NotFound", message: `Unknown path: ${request.method} ${request.path}.` } },
  });
  const errorResponses = {
    throttled: answer,
    denied: answer,
    firewalled: answer,
    failed: (status: number) => ({ ...answer(), status }),
  };
  return { name: request.host === "evil.localhost" ? "evil.request" : "unknown", errorResponses, answer };
}
